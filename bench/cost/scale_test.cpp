// What size costs: nothing in round trips as long as the parents are cached, and memory within its
// bound where they cannot be. Counted on the simulated fabric.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "bench/cost/loaded_tree.h"
#include "common/base/random.h"

namespace pando {
namespace {

SimCluster::Options Big(uint64_t seed) {
  return {.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole},
          .main_bytes = uint64_t{512} << 20,
          .chunk_bytes = 4 << 20};
}

struct Costs {
  double get = 0, update = 0, insert = 0, scan = 0;  // round trips
};

Costs CostsWith(uint64_t records) {
  constexpr uint64_t kOperations = 10'000;
  const LoadedTree loaded(Big(1), {}, records);
  Session* const session = loaded.session.get();
  const Tree* const tree = loaded.tree.get();
  Random random(records);
  OperationCost get, update, insert, scan;
  std::vector<KeyValue> rows;
  for (uint64_t i = 0; i < kOperations; ++i) {
    const uint64_t n = random.Uniform(records);
    const auto value = session->Get(*tree, KeyOf(n * 2), {.cost = &get});
    EXPECT_TRUE(value.ok()) << value.status();
    EXPECT_EQ(value.value_or(""), KeyOf(n));
    const uint64_t m = random.Uniform(records);
    EXPECT_TRUE(session->Update(*tree, KeyOf(m * 2), KeyOf(m), {.cost = &update}).ok());
    if (i % 10 != 0) continue;
    const uint64_t fresh = random.Uniform(records) * 2 + 1;
    EXPECT_TRUE(session->Put(*tree, KeyOf(fresh), KeyOf(fresh), {.cost = &insert}).ok());
    EXPECT_TRUE(session->Scan(*tree, KeyOf(n * 2), 20, &rows, {.cost = &scan}).ok());
    EXPECT_LE(rows.size(), 20u);
  }
  const auto mean = [](const OperationCost& cost, uint64_t count) {
    return static_cast<double>(cost.round_trips) / static_cast<double>(count);
  };
  return {.get = mean(get, kOperations),
          .update = mean(update, kOperations),
          .insert = mean(insert, kOperations / 10),
          .scan = mean(scan, kOperations / 10)};
}

TEST(Scale, TenMillionKeysCostWhatOneMillionDo) {
  const Costs one = CostsWith(1'000'000);
  const Costs ten = CostsWith(10'000'000);
  std::printf("round trips: get %.3f %.3f, update %.3f %.3f, insert %.3f %.3f, scan %.3f %.3f\n",
              one.get, ten.get, one.update, ten.update, one.insert, ten.insert, one.scan, ten.scan);
  EXPECT_LE(ten.get, 1.02);
  EXPECT_LE(ten.update, 2.05);
  EXPECT_NEAR(ten.get, one.get, 0.01);
  EXPECT_NEAR(ten.update, one.update, 0.01);
  EXPECT_NEAR(ten.insert, one.insert, 0.15);
  EXPECT_NEAR(ten.scan, one.scan, 0.1);
}

// What the level-1 nodes of a tree take when all are cached.
uint64_t CacheBytesNeeded(SimCluster& cluster, uint64_t records) {
  auto client = cluster.NewClient();
  auto tree = *client->CreateTree("t", {});
  auto session = *client->NewSession();
  BulkLoad(*session, *tree, records);
  Warm(*session, *tree, records);
  EXPECT_EQ(client->Stats().tree.cache_evictions, 0u);
  return client->Stats().tree.cache_bytes;
}

class SmallCacheTest : public testing::TestWithParam<int> {};

TEST_P(SmallCacheTest, EverythingWorksWithinTheBound) {
  constexpr uint64_t kRecords = 200'000, kOperations = 20'000;
  SimCluster cluster(Big(2));
  const uint64_t needed_bytes = CacheBytesNeeded(cluster, kRecords);
  ClientOptions options;
  options.index_cache_bytes =
      GetParam() == 0 ? 0 : needed_bytes / static_cast<uint64_t>(GetParam());
  auto client = cluster.NewClient(options);
  auto tree = *client->OpenTree("t");
  auto session = *client->NewSession();
  Random random(3);
  OperationCost get;
  uint64_t gets = 0;
  std::vector<KeyValue> rows;
  for (uint64_t i = 0; i < kOperations; ++i) {
    const uint64_t n = random.Uniform(kRecords);
    switch (random.Uniform(5)) {
      case 0:
        ASSERT_TRUE(session->Update(*tree, KeyOf(n * 2), KeyOf(n)).ok());
        break;
      case 1:
        ASSERT_TRUE(session->Put(*tree, KeyOf(n * 2 + 1), "odd").ok());
        break;
      case 2:
        ASSERT_TRUE(session->Scan(*tree, KeyOf(n * 2), 50, &rows).ok());
        ASSERT_FALSE(rows.empty());
        ASSERT_EQ(rows[0], (KeyValue{KeyOf(n * 2), KeyOf(n)}));
        break;
      default: {
        const auto value = session->Get(*tree, KeyOf(n * 2), {.cost = &get});
        ASSERT_TRUE(value.ok()) << value.status();
        ASSERT_EQ(*value, KeyOf(n));
        ++gets;
      }
    }
    ASSERT_LE(client->Stats().tree.cache_bytes, options.index_cache_bytes);
  }
  const TreeStats stats = client->Stats().tree;
  const double round_trips = static_cast<double>(get.round_trips) / static_cast<double>(gets);
  std::printf("cache of %zu bytes, %lu needed: %.3f round trips a get, %lu evictions\n",
              options.index_cache_bytes, needed_bytes, round_trips, stats.cache_evictions);
  // The leaf, and its parent where that is not cached; upper levels mostly are.
  EXPECT_LE(round_trips, 2.05);
  if (GetParam() != 0) {
    // Upper levels count; where they leave no room a node is kept all the same.
    EXPECT_GT(stats.cache_bytes, GetParam() == 100 ? 0 : options.index_cache_bytes / 2);
    EXPECT_GT(stats.cache_evictions, 0u);
    EXPECT_GT(stats.cache_hits, 0u);
    EXPECT_LE(round_trips, 2.05 - 0.8 / GetParam());
  }
}

// All of what is needed would be 1.
INSTANTIATE_TEST_SUITE_P(Share, SmallCacheTest, testing::Values(2, 10, 100, 0),
                         [](const testing::TestParamInfo<int>& info) {
                           return info.param == 0 ? std::string("Nothing")
                                                  : "OneIn" + std::to_string(info.param);
                         });

}  // namespace
}  // namespace pando
