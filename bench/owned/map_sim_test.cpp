// The map in a shared tree on the simulated fabric: members that claim, give up, divide, recover
// each other and leave, while queue pairs break, members are stopped, and killed at any moment.
#include <gtest/gtest.h>

#include "bench/owned/sim_stage.h"

namespace pando {
namespace {

TEST(MapSim, RangesHaveOneOwnerWhateverBreaks) {
  MapPlayResult all;
  for (uint64_t seed = 1; seed <= 400 && !testing::Test::HasFailure(); ++seed) {
    SimStage stage({.seed = seed,
                    .mode = seed % 3 == 0 ? sim::DeliveryMode::kLines : sim::DeliveryMode::kWhole,
                    .members = 3 + seed % 2,
                    .patience_ns_max = seed % 2 == 0 ? uint64_t{2'000'000} : uint64_t{200'000},
                    .break_probability = 0.01 * static_cast<double>(seed % 5),
                    .pauses = seed % 4 == 0 ? 6 : 0,
                    .entries_before = seed % 2 == 0 ? 90 : 0,
                    .neighbours = seed % 3 != 1});
    stage.Play();
    const MapPlayResult result = stage.result();
    for (const std::string& problem : result.problems) {
      ADD_FAILURE() << "seed " << seed << ": " << problem;
    }
    all.won += result.won;
    all.lost += result.lost;
    all.uncertain += result.uncertain;
    all.recovered += result.recovered;
  }
  std::printf("won %lu, lost %lu, uncertain %lu, recovered %lu\n", all.won, all.lost, all.uncertain,
              all.recovered);
  EXPECT_GT(all.won, 5'000u);
  EXPECT_GT(all.lost, 100u) << "claims that met another one";
  EXPECT_GT(all.uncertain, 100u) << "changes that were not decided by their deadline";
  EXPECT_GT(all.recovered, 150u);
}

}  // namespace
}  // namespace pando
