// The map's changes over a store that is as unkind as it may be.
#include <gtest/gtest.h>

#include "bench/owned/model_play.h"

namespace pando {
namespace {

TEST(MapModel, RangesHaveOneOwnerWhateverComesLate) {
  ModelPlayResult all;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    const ModelPlayResult result = PlayModel(seed);
    for (const std::string& problem : result.play.problems)
      ADD_FAILURE() << "seed " << seed << ": " << problem;
    if (HasFailure()) return;
    all.play.won += result.play.won;
    all.play.lost += result.play.lost;
    all.play.uncertain += result.play.uncertain;
    all.late += result.late;
    all.never += result.never;
    all.play.recovered += result.play.recovered;
  }
  EXPECT_GT(all.play.won, 30'000u);
  EXPECT_GT(all.play.lost, 1'000u) << "claims that met another one";
  EXPECT_GT(all.play.uncertain, 5'000u) << "changes that were not decided by their deadline";
  EXPECT_GT(all.late, 5'000u);
  EXPECT_GT(all.never, 1'000u);
  EXPECT_GT(all.play.recovered, 500u);
}

}  // namespace
}  // namespace pando
