// What the index cache takes, in bytes a leaf, of trees that came about in different ways, and what
// a get costs where not all of it fits. Counted on the simulated fabric.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/cost/loaded_tree.h"
#include "bench/workload/distribution.h"
#include "bench/workload/keys.h"
#include "common/base/random.h"
#include "compute/cache/index_cache.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"

namespace pando {
namespace {

using bench::Keys;
using bench::Scramble;
using bench::ZipfianRank;

SimCluster::Options Servers(int servers) {
  return {.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole},
          .memory_servers = servers,
          .main_bytes = uint64_t{1} << 30,
          .chunk_bytes = 1 << 20};
}

struct CacheBytes {
  uint64_t leaves = 0, level1_bytes = 0, bytes = 0;
  double ALeaf() const { return static_cast<double>(level1_bytes) / static_cast<double>(leaves); }
};

// A client of its own, its session, and the tree.
struct Writer {
  explicit Writer(SimCluster* cluster, const TreeOptions& options = {})
      : client(cluster->NewClient()) {
    auto created = client->CreateTree("t", options);
    EXPECT_TRUE(created.ok()) << created.status();
    tree = *std::move(created);
    session = *client->NewSession();
  }
  // Many at once, in the order of the keys.
  void Put(const std::vector<std::string>& keys) {
    std::vector<KeyValue> entries;
    for (const std::string& key : keys) {
      entries.push_back({key, "12345678"});
      if (entries.size() == 1'000 || &key == &keys.back()) {
        for (const absl::Status& put : session->MultiPut(*tree, entries))
          ASSERT_TRUE(put.ok()) << put;
        entries.clear();
      }
    }
  }
  void Erase(const std::vector<std::string>& keys) {
    for (const std::string& key : keys) ASSERT_TRUE(session->Erase(*tree, key).ok());
  }

  std::unique_ptr<Client> client;
  std::unique_ptr<Tree> tree;
  std::unique_ptr<Session> session;
};

// The cached level-1 node of a key that was just read. Needs a guard.
const CachedNode* ParentOf(const TreeContext& tree, const SearchKey& key) {
  Reference node;
  const CachedNode* cached = nullptr;
  for (int level = tree.root.Load(&node); level > 0; --level) {
    cached = tree.environment.cache.Find(node);
    if (cached == nullptr) return nullptr;
    node = cached->Child(cached->ChildIndex(key));
  }
  return cached;
}

// With all parents cached a get of a quiet tree is one READ of the right leaf.
void ExpectGetsOfOneRoundTrip(const Client& client, const Tree& tree, Session* session) {
  constexpr uint64_t kGets = 10'000;
  Random random(4);
  OperationCost cost;
  std::string value;
  for (uint64_t i = 0; i < kGets; ++i) {
    const absl::Status got = session->GetTo(tree, KeyOf(random.Next()), &value, {.cost = &cost});
    ASSERT_TRUE(got.ok() || absl::IsNotFound(got)) << got;
  }
  EXPECT_EQ(cost.round_trips, kGets);
  const TreeStats stats = client.Stats().tree;
  EXPECT_EQ(stats.moves_right, 0u);
  EXPECT_EQ(stats.stale_retries, 0u);
  EXPECT_EQ(stats.cache_evictions, 0u);
}

// A fresh client reads below every parent.
CacheBytes Measure(SimCluster* cluster, const std::string& name) {
  const auto client = cluster->NewClient({.index_cache_bytes = size_t{1} << 30});
  const auto tree = *client->OpenTree("t");
  const auto session = *client->NewSession();
  const TreeContext& context = ImplOf(*tree).context();
  EpochDomain::Slot* const slot = ImplOf(*session).context().epoch_slot();
  CacheBytes sum;
  std::string key(1, '\0'), value;
  do {
    const absl::Status got = session->GetTo(*tree, key, &value);
    EXPECT_TRUE(got.ok() || absl::IsNotFound(got)) << got;
    const EpochDomain::Guard guard(context.environment.cache.epochs(), slot);
    const CachedNode* const parent = ParentOf(context, SearchKey(key));
    EXPECT_NE(parent, nullptr) << "is the tree a leaf?";
    if (parent == nullptr) break;
    sum.leaves += parent->child_count();
    key = std::string(parent->high());
  } while (!key.empty());
  sum.level1_bytes = context.environment.cache.level1_bytes();
  sum.bytes = context.environment.cache.bytes();
  std::printf("%s: %lu leaves, %.2f bytes a leaf, %.2f with upper levels\n", name.c_str(),
              sum.leaves, sum.ALeaf(),
              static_cast<double>(sum.bytes) / static_cast<double>(sum.leaves));
  ExpectGetsOfOneRoundTrip(*client, *tree, session.get());
  return sum;
}

std::vector<std::string> RandomKeys(Random* random, uint64_t count) {
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < count; ++i) keys.push_back(KeyOf(random->Next()));
  return keys;
}

class CacheBytesTest : public testing::TestWithParam<int> {};

TEST_P(CacheBytesTest, OfRandomPuts) {
  SimCluster cluster(Servers(GetParam()));
  Writer writer(&cluster);
  Random random(1);
  std::vector<std::string> keys = RandomKeys(&random, 400'000);
  ASSERT_NO_FATAL_FAILURE(writer.Put(keys));
  const std::string servers = std::to_string(GetParam()) + " servers";
  EXPECT_LE(Measure(&cluster, "random puts, " + servers).ALeaf(), 12);
  // Nodes come back with other lives.
  keys.resize(240'000);
  ASSERT_NO_FATAL_FAILURE(writer.Erase(keys));
  EXPECT_LE(Measure(&cluster, "and erases, " + servers).ALeaf(), 12);
  ASSERT_NO_FATAL_FAILURE(writer.Put(RandomKeys(&random, 240'000)));
  EXPECT_LE(Measure(&cluster, "and puts, " + servers).ALeaf(), 12);
}

INSTANTIATE_TEST_SUITE_P(Servers, CacheBytesTest, testing::Values(1, 2, 4));

// Nodes come back so often that hardly two children of a parent have the same life.
TEST(CacheBytes, OfAnOldTree) {
  constexpr uint64_t kKeys = 25'000, kChanged = 15'000;
  SimCluster cluster(Servers(4));
  Writer writer(&cluster);
  Random random(1);
  std::vector<std::string> keys = RandomKeys(&random, kKeys);
  ASSERT_NO_FATAL_FAILURE(writer.Put(keys));
  for (int round = 0; round < 25; ++round) {
    std::shuffle(keys.begin(), keys.end(), random);
    ASSERT_NO_FATAL_FAILURE(writer.Erase({keys.begin(), keys.begin() + kChanged}));
    const std::vector<std::string> fresh = RandomKeys(&random, kChanged);
    std::copy(fresh.begin(), fresh.end(), keys.begin());
    ASSERT_NO_FATAL_FAILURE(writer.Put(fresh));
  }
  EXPECT_LE(Measure(&cluster, "old, 4 servers").ALeaf(), 12);
}

void Shuffle(std::vector<std::string>* keys) {
  Random random(2);
  std::shuffle(keys->begin(), keys->end(), random);
}

TEST(CacheBytes, OfWords) {
  constexpr uint64_t kWords = 300'000;
  const auto words = Keys::Create({.kind = "words"}, kWords);
  ASSERT_TRUE(words.ok()) << words.status();
  std::vector<std::string> one, two;
  for (uint64_t i = 0; i < kWords; ++i) {
    one.push_back((*words)->Make(i));
    // Sixteen keys have the same first word.
    two.push_back((*words)->Make(i / 16 * 7919 % kWords) + " " + (*words)->Make(i * 16 % kWords));
    two.back().resize(std::min<size_t>(two.back().size(), 60));
  }
  Shuffle(&one);
  Shuffle(&two);
  {
    SimCluster cluster(Servers(4));
    Writer writer(&cluster, {.key_bytes_max = 60});
    ASSERT_NO_FATAL_FAILURE(writer.Put(one));
    EXPECT_LE(Measure(&cluster, "words").ALeaf(), 15);
  }
  SimCluster cluster(Servers(4));
  Writer writer(&cluster, {.key_bytes_max = 60});
  ASSERT_NO_FATAL_FAILURE(writer.Put(two));
  EXPECT_LE(Measure(&cluster, "two words a key").ALeaf(), 17);
}

// As much cache as 256 MiB are for a billion records.
TEST(CacheBytes, ASmallCacheAndZipfianGets) {
  constexpr uint64_t kRecords = 10'000'000, kWarm = 750'000, kGets = 250'000;
  SimCluster cluster(Servers(2));
  Writer writer(&cluster);
  BulkLoad(*writer.session, *writer.tree, kRecords);
  const CacheBytes all = Measure(&cluster, "10 M records");
  const auto cache_bytes = static_cast<size_t>(8.9 * static_cast<double>(all.leaves));
  const auto client = cluster.NewClient({.index_cache_bytes = cache_bytes});
  const auto tree = *client->OpenTree("t");
  const auto session = *client->NewSession();
  const ZipfianRank rank(kRecords, 0.99);
  const Scramble scramble(kRecords);
  Random random(3);
  OperationCost cost;
  std::string value;
  for (uint64_t i = 0; i < kWarm + kGets; ++i) {
    if (i == kWarm) cost = {};
    const std::string key = KeyOf(scramble(rank.Next(&random)) * 2);
    ASSERT_TRUE(session->GetTo(*tree, key, &value, {.cost = &cost}).ok());
  }
  const double round_trips = static_cast<double>(cost.round_trips) / kGets;
  std::printf("%zu bytes of cache: %.3f round trips a get\n", cache_bytes, round_trips);
  EXPECT_LE(ImplOf(*tree).context().environment.cache.bytes(), cache_bytes);
  EXPECT_LE(round_trips, 1.12);
}

}  // namespace
}  // namespace pando
