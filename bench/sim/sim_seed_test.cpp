// Many seeds of the mixed preset: a fixed range, and a fresh one that differs from run to run. And
// some of owned trees.
//
// PANDO_SIM_SHARD=I/N takes the I-th of N parts of the fixed range (0-based).
// PANDO_SIM_FRESH_SECONDS bounds the fresh one.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#include "bench/sim/coverage.h"
#include "bench/sim/sim_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

constexpr uint64_t kFirstSeed = 1, kSeeds = 640, kOwnedSeeds = 80;

void RunSeed(uint64_t seed, Coverage* coverage, const std::string& preset = "mixed",
             const MixOptions& mix = {}) {
  const SimRunOptions options = MixedRun(seed, mix);
  const SimRunResult result = RunSim(options);
  coverage->Add(result);
  EXPECT_THAT(result.problems, testing::IsEmpty())
      << "repeat: pando-sim --preset=" << preset << " --seed=" << seed << "\n("
      << DescribeRun(options) << ")";
}

TEST(SimSeeds, FixedRange) {
  uint64_t shard = 0, shards = 1;
  if (const char* given = std::getenv("PANDO_SIM_SHARD"); given != nullptr) {
    unsigned long long i = 0, n = 1;
    ASSERT_EQ(std::sscanf(given, "%llu/%llu", &i, &n), 2) << given;
    ASSERT_LT(i, n);
    shard = i;
    shards = n;
  }
  Coverage coverage;
  for (uint64_t seed = kFirstSeed + shard; seed < kFirstSeed + kSeeds; seed += shards) {
    RunSeed(seed, &coverage);
  }
  std::cout << coverage.Describe();
  // Nothing proves anything about code that it does not reach.
  for (const auto& [name, total] : coverage.Counters()) {
    const bool by_design =
        name == "verbs_overtaken" || name == "missing_separators_left" ||
        name == "verbs_of_the_dead" || name == "verbs_of_the_cut_off" ||
        // Rare here; exhaustive_crashes_test sees to them.
        name == "repairs" || name == "redone" || name == "swept_free" || name == "swept_settled" ||
        // Each takes a drop, and the first to come is rarely a loader.
        name == "bulk_loads" ||
        // A few in all seeds, not in each part of them.
        name == "dead_while_taken_up" ||
        // Of owned trees, which have seeds of their own.
        name == "ranges_divided" || name == "ranges_given" || name == "moves_stopped" ||
        name.starts_with("members_") || name.starts_with("owners_") ||
        name.starts_with("killed_replaced") || name == "peers_cut_off" ||
        name == "of_them_in_one_direction" || name == "peer_links_cut_in_one_way" ||
        name == "peers_connected_in_vain" || name == "flushed_on_request" ||
        name == "longest_wait_us_for_nothing";
    if (!by_design) {
      EXPECT_GT(total, 0u) << name;
    }
  }
}

// Seeds that have broken once. Of what became of them only the seed is kept: with other code a run
// goes another way, and shows it again only by chance.
TEST(SimSeeds, SeedsThatHaveBroken) {
  Coverage coverage;
  // As these runs were, before other unkindness was added.
  MixOptions owned = {.owned = true,
                      .server_pauses = false,
                      .late_packets = false,
                      .shapes = false,
                      .turns = false,
                      .clocks = false,
                      .log_deaths = false,
                      .deadlines = false,
                      .threads = false,
                      .restarts = false};
  const std::string without =
      "server_pauses,late_packets,shapes,turns,clocks,log_deaths,deadlines,threads,restarts";
  MixOptions owned_cruel = owned;
  owned_cruel.cruel_moves = true;
  // An owner that did not know yet that it was fenced passed on what a memory server had refused
  // it.
  RunSeed(5'300'817, &coverage, "owned_cruel --without=" + without, owned_cruel);
  // Little logs, and leaves on a memory server that is gone: what nobody takes any more was three
  // quarters of the log, and then all of it, behind one erase.
  RunSeed(6'100'597, &coverage, "owned --without=" + without, owned);
  RunSeed(6'100'717, &coverage, "owned --without=" + without, owned);
  // A put on a tree that was lost asked the next life of a memory server for nodes.
  RunSeed(10'261'228, &coverage, "cruel", {.cruel_share = 1});
  RunSeed(10'261'741, &coverage, "owned", {.owned = true});
}

TEST(SimSeeds, OwnedTreesThatAreDroppedAndMoversThatAreStopped) {
  Coverage coverage;
  for (uint64_t seed = kFirstSeed; seed < kFirstSeed + kOwnedSeeds; ++seed) {
    RunSeed(seed, &coverage, "owned_cruel", {.owned = true, .cruel_moves = true});
  }
  std::cout << coverage.Describe();
  std::map<std::string, uint64_t> totals;
  for (const auto& [name, total] : coverage.Counters()) totals[name] = total;
  for (const char* const name : {"ranges_divided",
                                 "ranges_given",
                                 "moves_stopped",
                                 "trees_dropped",
                                 "flushed_on_request",
                                 "ranges_erased",
                                 "fenced_and_back",
                                 "peers_cut_off",
                                 "peer_links_cut_in_one_way",
                                 "peers_connected_in_vain",
                                 "members_cut_off",
                                 "members_cut_off_from_logs",
                                 "members_cut_off_and_back",
                                 "members_dead_for_one_alone",
                                 "killed_replaced",
                                 "killed_replaced_unrecovered",
                                 "owners_dead_with_logs",
                                 "memory_servers_back",
                                 "memory_servers_taken_up",
                                 "lost_trees_dropped"}) {
    EXPECT_GT(totals[name], 0u) << name;
  }
}

TEST(SimSeeds, FreshRange) {
  const char* given = std::getenv("PANDO_SIM_FRESH_SECONDS");
  const int seconds = given != nullptr ? std::atoi(given) : 10;
  const auto start = std::chrono::steady_clock::now();
  const auto first =
      static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count()) / 1000;
  std::cout << "seeds from " << first << " on\n";
  Coverage coverage;
  uint64_t seed = first;
  do {
    RunSeed(seed++, &coverage);
  } while (std::chrono::steady_clock::now() - start < std::chrono::seconds(seconds));
  std::cout << seed - first << " seeds\n" << coverage.Describe();
}

}  // namespace
}  // namespace pando
