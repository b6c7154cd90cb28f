// What many writes in one call cost: chains, counted on the simulated fabric.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "bench/cost/loaded_tree.h"

namespace pando {
namespace {

constexpr uint64_t kRecords = 1'000'000, kWrites = 10'000;

SimCluster::Options Quiet(uint64_t seed) {
  return {.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole}};
}

class WriteManyCost : public testing::Test {
 protected:
  // Chains that the call takes in all. `key_of(n)`: of the n-th write.
  template <typename KeyOfWrite>
  double Chains(Write::Kind kind, const KeyOfWrite& key_of) {
    std::vector<Write> writes;
    for (uint64_t n = 0; n < kWrites; ++n) {
      writes.push_back({.kind = kind, .key = KeyOf(key_of(n)), .value = "new"});
    }
    const uint64_t before = loaded_.client->Stats().fabric.chains;
    const uint64_t splits_before = loaded_.client->Stats().tree.splits;
    const std::vector<WriteResult> results = loaded_.session->WriteMany(*loaded_.tree, writes);
    for (const WriteResult& result : results) EXPECT_TRUE(result.status.ok()) << result.status;
    const ClientStats stats = loaded_.client->Stats();
    const auto chains = static_cast<double>(stats.fabric.chains - before);
    std::printf("%.0f chains, %.4f a key, %lu splits\n", chains, chains / kWrites,
                stats.tree.splits - splits_before);
    return chains;
  }
  // Of so many records that lie beside each other.
  double Leaves(uint64_t records) {
    const auto size = loaded_.session->Check(*loaded_.tree, {.quiet_tree = true});
    EXPECT_TRUE(size.ok()) << size.status();
    EXPECT_TRUE(size->ok()) << size->problems.front();
    const auto leaves = static_cast<double>(size->nodes_per_level[0]);
    return leaves * static_cast<double>(records) / static_cast<double>(size->keys);
  }

  LoadedTree loaded_{Quiet(1), {}, kRecords};
};

TEST_F(WriteManyCost, UpdatesOfNeighboursTakeTwoChainsALeaf) {
  const double leaves = Leaves(kWrites);
  const double chains =
      Chains(Write::Kind::kUpdate, [](uint64_t n) { return 2 * (kRecords / 2 + n); });
  EXPECT_LE(chains, 2.1 * leaves);
}

TEST_F(WriteManyCost, AMultiPutOfNeighboursTakesTwoChainsALeaf) {
  const double leaves = Leaves(kWrites);
  std::vector<KeyValue> entries;
  for (uint64_t n = 0; n < kWrites; ++n) entries.push_back({KeyOf(2 * (kRecords / 3 + n)), "new"});
  const uint64_t before = loaded_.client->Stats().fabric.chains;
  for (const absl::Status& put : loaded_.session->MultiPut(*loaded_.tree, entries)) {
    ASSERT_TRUE(put.ok()) << put;
  }
  const auto chains = static_cast<double>(loaded_.client->Stats().fabric.chains - before);
  std::printf("%.0f chains for %.0f leaves\n", chains, leaves);
  EXPECT_LE(chains, 2.1 * leaves);
}

// One key a leaf, and there is room for it.
TEST_F(WriteManyCost, NewKeysFarApartTakeTwoChainsEach) {
  const double chains =
      Chains(Write::Kind::kInsert, [](uint64_t n) { return n * 2 * (kRecords / kWrites) + 1; });
  EXPECT_LE(chains, 2.1 * kWrites);
}

// Between each two neighbours a new key: all leaves have to be split, and their parents to hear of
// it. Of what they are afterwards, that is no more.
TEST_F(WriteManyCost, NewKeysAmongNeighboursTakeTwoChainsALeaf) {
  const double leaves = Leaves(kWrites);
  const uint64_t splits_before = loaded_.client->Stats().tree.splits;
  const double chains =
      Chains(Write::Kind::kInsert, [](uint64_t n) { return 2 * (kRecords / 2 + n) + 1; });
  const uint64_t splits = loaded_.client->Stats().tree.splits - splits_before;
  EXPECT_GE(static_cast<double>(splits), leaves);
  EXPECT_LE(chains, 2.1 * (leaves + static_cast<double>(splits)));
}

TEST_F(WriteManyCost, AscendingKeysBeyondTheEndTakeAChainForTen) {
  const double chains = Chains(Write::Kind::kInsert, [](uint64_t n) { return 2 * kRecords + n; });
  EXPECT_LE(chains, 0.1 * kWrites);
  EXPECT_TRUE(loaded_.session->Check(*loaded_.tree, {.quiet_tree = true})->ok());
}

// By somebody who knows nothing of the tree yet, and where there was nothing.
TEST(WriteManyCostOfAFreshTree, AscendingKeysTakeAChainForTen) {
  SimCluster cluster(Quiet(2));
  const auto client = cluster.NewClient();
  const auto tree = *client->CreateTree("t", {});
  const auto session = *client->NewSession();
  std::vector<KeyValue> entries;
  for (uint64_t n = 0; n < kWrites; ++n) entries.push_back({KeyOf(n), "new"});
  for (const absl::Status& put : session->MultiPut(*tree, entries)) ASSERT_TRUE(put.ok()) << put;
  const auto chains = static_cast<double>(client->Stats().fabric.chains);
  std::printf("%.0f chains, %.4f a key\n", chains, chains / kWrites);
  EXPECT_LE(chains, 0.1 * kWrites);
  EXPECT_TRUE(session->Check(*tree, {.quiet_tree = true})->ok());
}

}  // namespace
}  // namespace pando
