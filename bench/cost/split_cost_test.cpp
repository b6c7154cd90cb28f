// What a split costs those who work beside it: counted on the simulated fabric.
#include <gtest/gtest.h>

#include <cstdio>

#include "bench/cost/sim_cluster.h"

namespace pando {
namespace {

// Ascending inserts, many at once: all of them are about to write the leaf that splits. They find
// the new one from the old one, and by the parent as soon as the splitter has written it; nearly
// nobody reads the parent for that. To leave the word alone after each turn would save a seventh of
// the round trips, and take 2.6 times as long.
TEST(SplitCost, AscendingInsertsSideBySideReadHardlyAnyParents) {
  constexpr uint64_t kKeys = 30'000, kBatch = 128;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    const sim::SimOptions options = {.seed = seed, .mode = sim::DeliveryMode::kWhole};
    const int64_t chain_ns = 2 * options.delay_ns + options.jitter_ns;
    SimCluster cluster({.sim = options});
    auto client = cluster.NewClient();
    auto tree = *client->CreateTree("t", {});
    auto session = *client->NewSession();
    for (uint64_t n = 0; n < kKeys; ++n) {
      session->Spawn([&, n] {
        const absl::Status put = session->Put(*tree, KeyOf(n), KeyOf(n));
        EXPECT_TRUE(put.ok()) << put;
      });
      if ((n + 1) % kBatch == 0 || n + 1 == kKeys) session->Run();
    }
    const double chains = static_cast<double>(cluster.world().clock().NowNs()) /
                          static_cast<double>(chain_ns) / static_cast<double>(kKeys);
    const ClientStats stats = client->Stats();
    const double round_trips =
        static_cast<double>(stats.fabric.round_trips) / static_cast<double>(kKeys);
    std::printf("%lu splits, %lu parents read, %.3f round trips and %.2f chain times an insert\n",
                stats.tree.splits, stats.tree.cache_misses, round_trips, chains);
    EXPECT_GT(stats.tree.splits, 800u);
    EXPECT_LE(stats.tree.cache_misses, 100u);
    EXPECT_LE(round_trips, 0.5);
    EXPECT_LE(chains, 0.5);
  }
}

}  // namespace
}  // namespace pando
