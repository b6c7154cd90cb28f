// Seeds of random runs of owners: a fixed range of each kind; PANDO_OWNED_SEEDS=FROM-TO: another.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

#include "bench/owned/owned_run.h"
#include "common/base/random.h"

namespace pando {
namespace {

using Fill = std::function<void(Random*, OwnedRunOptions*)>;

OwnedRunOptions OptionsOf(uint64_t seed) {
  Random random(seed);
  OwnedRunOptions options = {.seed = seed};
  options.mode = static_cast<sim::DeliveryMode>(random.Uniform(4));
  options.memory_servers = static_cast<int>(1 + random.Uniform(3));
  options.trees = 1 + random.Uniform(3);
  options.sessions = 1 + random.Uniform(3);
  options.coroutines = static_cast<int>(1 + random.Uniform(4));
  options.moves = random.Chance(0.5) ? 0.05 : 0;
  return options;
}

// What all of them did.
OwnedRunResult RunSeeds(uint64_t seeds, const Fill& fill) {
  uint64_t from = 1, to = seeds;
  if (const char* const range = std::getenv("PANDO_OWNED_SEEDS"); range != nullptr) {
    std::sscanf(range, "%lu-%lu", &from, &to);
  }
  const bool goes_on = std::getenv("PANDO_OWNED_GO_ON") != nullptr;
  OwnedRunResult all;
  for (uint64_t seed = from; seed <= to; ++seed) {
    OwnedRunOptions options = OptionsOf(seed);
    Random random(seed + 1'000'000);
    fill(&random, &options);
    const OwnedRunResult result = RunOwners(options);
    EXPECT_EQ(result.what(), "") << "seed " << seed << ", mode " << DeliveryModeName(options.mode);
    if (!result.ok() && !goes_on) break;
    all.concluded += result.concluded;
    all.unknown += result.unknown;
    all.refused += result.refused;
    all.adopted += result.adopted;
    all.cut_off += result.cut_off;
    all.refused_records += result.refused_records;
    all.moves += result.moves;
    all.retired += result.retired;
    all.lent += result.lent;
  }
  std::printf(
      "%lu concluded, %lu unknown, %lu refused, %lu adopted, %lu cut off, %lu refused records, %lu "
      "moves, %lu retired, %lu lent\n",
      all.concluded, all.unknown, all.refused, all.adopted, all.cut_off, all.refused_records,
      all.moves, all.retired, all.lent);
  return all;
}

TEST(OwnedRandom, Deaths) {
  const OwnedRunResult all = RunSeeds(60, [](Random*, OwnedRunOptions*) {});
  EXPECT_GT(all.adopted, 0u);
}

TEST(OwnedRandom, RangesAreErased) {
  const OwnedRunResult all = RunSeeds(60, [](Random* random, OwnedRunOptions* options) {
    options->erase = random->Chance(0.5) ? 0.03 : 0.1;
    options->break_probability = random->Chance(0.3) ? 0.002 : 0;
    // By several owners, while keys go from one to the other.
    if (random->Chance(0.5)) options->moves = 0.2;
  });
  EXPECT_GT(all.adopted, 0u);
}

TEST(OwnedRandom, BreakingQueuePairs) {
  const OwnedRunResult all = RunSeeds(40, [](Random* random, OwnedRunOptions* options) {
    options->break_probability = random->Chance(0.5) ? 0.002 : 0.02;
  });
  EXPECT_GT(all.adopted, 0u);
}

TEST(OwnedRandom, PausesBeyondLeases) {
  const OwnedRunResult all = RunSeeds(40, [](Random* random, OwnedRunOptions* options) {
    options->leases = true;
    options->pause = 0.8;
    options->kill = 0.2;
    options->break_probability = random->Chance(0.3) ? 0.002 : 0;
  });
  EXPECT_GT(all.cut_off, 0u);
}

TEST(OwnedRandom, LittleMemory) {
  const OwnedRunResult all = RunSeeds(8, [](Random*, OwnedRunOptions* options) {
    options->little_memory = true;
    options->keys = 2000;
    options->operations = 400;
    options->kill = 0.1;
  });
  EXPECT_GT(all.refused_records, 0u);
}

// Ranges are divided and given away all the time, while members die, break or are stopped.
TEST(OwnedRandom, Moves) {
  const OwnedRunResult all = RunSeeds(60, [](Random* random, OwnedRunOptions* options) {
    options->moves = 0.2;
    options->keys = 20;
    options->kill = random->Chance(0.5) ? 0.2 : 0.6;
    options->break_probability = random->Chance(0.3) ? 0.002 : 0;
    if (random->Chance(0.4)) {
      options->leases = true;
      options->pause = 0.5;
    }
    // A stopped member may not come to drop it.
    options->drop = !options->leases && random->Chance(0.3);
    if (options->drop) options->trees = 1 + options->trees % 3;
  });
  EXPECT_GT(all.moves, 200u);
  EXPECT_GT(all.retired, 0u);
}

// Keys are read from leaves on loan (rule O15), under all of that.
TEST(OwnedRandom, RangesAreLent) {
  const OwnedRunResult all = RunSeeds(80, [](Random* random, OwnedRunOptions* options) {
    options->lends = true;
    options->operations = 300;
    options->keys = random->Chance(0.5) ? 8 : 30;
    options->cells = random->Chance(0.2);
    options->moves = random->Chance(0.5) ? 0.01 : 0.1;
    options->kill = random->Chance(0.5) ? 0.2 : 0.6;
    options->break_probability = random->Chance(0.3) ? 0.002 : 0;
    if (random->Chance(0.4)) {
      options->leases = true;
      options->pause = 0.5;
    }
  });
  EXPECT_GT(all.lent, 1000u);
  EXPECT_GT(all.adopted, 0u);
}

// Values in cells (rules K6 to K8), under all of that.
TEST(OwnedRandom, LargeValues) {
  const OwnedRunResult all = RunSeeds(60, [](Random* random, OwnedRunOptions* options) {
    options->cells = true;
    options->keys = random->Chance(0.5) ? 20 : 60;
    options->kill = random->Chance(0.5) ? 0.3 : 0.8;
    options->erase = random->Chance(0.3) ? 0.03 : 0;
    options->moves = random->Chance(0.5) ? 0.2 : 0;
    options->break_probability = random->Chance(0.3) ? 0.002 : 0;
    if (random->Chance(0.3)) {
      options->leases = true;
      options->pause = 0.5;
    }
    options->drop = !options->leases && random->Chance(0.2);
    if (options->drop) options->trees = 1 + options->trees % 3;
  });
  EXPECT_GT(all.adopted, 0u);
}

TEST(OwnedRandom, DroppedTrees) {
  RunSeeds(40, [](Random*, OwnedRunOptions* options) {
    options->drop = true;
    options->trees = 1 + options->trees % 3;
    options->lives = 5;
  });
}

}  // namespace
}  // namespace pando
