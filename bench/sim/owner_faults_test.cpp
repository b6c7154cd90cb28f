// What is done to owners alone: each kind does what it says, and loses nothing acknowledged.
#include "bench/sim/owner_faults.h"

#include "bench/sim/erase_ranges.h"
#include "bench/sim/sim_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::IsEmpty;

SimRunOptions Owned(uint64_t seed, int compute_servers) {
  SimRunOptions options;
  options.sim.seed = seed;
  options.tree.mode = TreeOptions::Mode::kOwned;
  options.client.log_bytes = 128 << 10;
  options.client.hot_bytes = 128 << 10;
  options.compute_servers = compute_servers;
  options.operations = 1500;
  options.moves = 0.02;
  return options;
}

TEST(ErasedRanges, WhatOthersHadOfARangeWasAbsentByItsEnd) {
  using history::OperationKind;
  std::vector<history::Operation> erases = EraseOperations({"a", "b", "c", "d"}, 1, 5);
  RangeErasing erasing;
  erasing.erased.next = "d";  // and no further
  erasing.keys.perhaps = {"a"};
  erasing.keys.elsewhere = {{{"b", /*after=*/false}, {"c", /*after=*/false}}};
  SettleErases(erasing, 9, &erases);
  ASSERT_EQ(erases.size(), 4u);
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(erases[i].kind, OperationKind::kClear) << i;
    EXPECT_EQ(erases[i].return_ns, 9) << i;
  }
  EXPECT_EQ(erases[2].kind, OperationKind::kDelete);
  EXPECT_FALSE(erases[2].found);
  EXPECT_EQ(erases[2].return_ns, 9);
  EXPECT_TRUE(erases[3].unknown());
}

TEST(OwnerFaults, PeersAreCutOffForAWhileAndGoOn) {
  SimRunResult all;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SimRunOptions options = Owned(seed, 3);
    options.owner_faults.peer_cuts = 4;
    options.owner_faults.peer_cut_max_ns = 5 * kMillisecondNs;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    EXPECT_EQ(result.operations, options.operations);
    all.peer_cuts += result.peer_cuts;
    all.peer_cuts_one_way += result.peer_cuts_one_way;
    all.sim.peer_hellos_lost += result.sim.peer_hellos_lost;
    all.sim.peer_links_mute += result.sim.peer_links_mute;
    all.sim.peer_messages_lost += result.sim.peer_messages_lost;
  }
  EXPECT_GT(all.peer_cuts, 40u);
  EXPECT_GT(all.peer_cuts_one_way, 20u);
  EXPECT_LT(all.peer_cuts_one_way, all.peer_cuts);
  EXPECT_GT(all.sim.peer_links_mute, 20u) << "in use when they were cut";
  EXPECT_GT(all.sim.peer_hellos_lost, 20u) << "and still cut when somebody connected";
  EXPECT_GT(all.sim.peer_messages_lost, 40u);
}

TEST(OwnerFaults, MembersAreCutOffFromAMemoryServerForAboutALease) {
  SimRunResult all;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SimRunOptions options = Owned(seed, 3);
    options.memory_servers = 3;
    options.lease_ns = 4 * kMillisecondNs;
    options.owner_faults.member_cuts = 4;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    all.member_cuts += result.member_cuts;
    all.cut_off_from_logs += result.cut_off_from_logs;
    all.cut_off_and_alive += result.cut_off_and_alive;
    all.dead_for_one += result.dead_for_one;
    all.reconnects += result.reconnects;
  }
  EXPECT_GT(all.member_cuts, 40u);
  EXPECT_GT(all.cut_off_from_logs, 5u);
  EXPECT_GT(all.cut_off_and_alive, 8u) << "for less than a lease";
  EXPECT_GT(all.dead_for_one, 3u) << "for more";
  EXPECT_GT(all.reconnects, 3u);
}

TEST(OwnerFaults, OthersComeInThePlaceOfTheKilled) {
  SimRunResult all;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SimRunOptions options = Owned(seed, 3);
    options.crashes = 5;  // more than there were at first
    options.owner_faults.replace_killed = true;
    options.owner_faults.replace_max_ns = seed % 2 == 0 ? 100 * kMicrosecondNs : kSecondNs;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    EXPECT_EQ(result.operations, options.operations);
    all.killed_replaced += result.killed_replaced;
    all.replaced_before_recovered += result.replaced_before_recovered;
  }
  EXPECT_GT(all.killed_replaced, 24u) << "more than two in a run: nobody would be left";
  EXPECT_GT(all.replaced_before_recovered, 5u) << "they meet recoveries";
}

// Where a memory server is dead no tree is looked at as a whole, so the last client reads each key.
TEST(OwnerFaults, TheLastClientReadsAllKeysOnceAMemoryServerIsDead) {
  uint64_t read = 0;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SimRunOptions options = Owned(seed, 3);
    options.memory_servers = 3;
    options.server_deaths = 1;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    EXPECT_EQ(result.server_deaths, 1u);
    read += result.read_after_server_death;
  }
  EXPECT_GT(read, 6u * 64 / 4) << "what is not on the dead server";
}

SimRunOptions DiesWithItsLog(uint64_t seed) {
  SimRunOptions options = Owned(seed, 3);
  options.memory_servers = 4;
  options.operations = 4000;
  options.keys = 40;
  options.flushes = 0.002;
  options.owner_faults.log_deaths = 1;
  return options;
}

// Exactly what its owner had not brought to leaves may be lost, and only once that is accepted.
TEST(OwnerFaults, AnOwnerThatDiesWithItsLogLosesNoMoreThanItMay) {
  SimRunResult all;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    const SimRunResult result = RunSim(DiesWithItsLog(seed));
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    all.owner_and_log_deaths += result.owner_and_log_deaths;
    all.ranges_lost += result.ranges_lost;
  }
  EXPECT_EQ(all.owner_and_log_deaths, 10u);
  EXPECT_GT(all.ranges_lost, 6u);
}

// Few keys, which are written all the time, also while they are flushed (rule B4).
TEST(OwnerFaults, WhatIsWrittenAgainWhileItIsFlushedIsNotLost) {
  SimRunResult all;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimRunOptions options = DiesWithItsLog(seed);
    options.keys = 8;
    options.flushes = 0.01;
    const SimRunResult result = RunSim(options);
    EXPECT_THAT(result.problems, IsEmpty()) << "seed " << seed;
    all.ranges_lost += result.ranges_lost;
  }
  EXPECT_GT(all.ranges_lost, 6u);
}

// Something is lost indeed: whoever does not know what may be finds that.
TEST(OwnerFaults, WhatIsLostWithAnOwnerAndItsLogIsFound) {
  int found = 0;
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SimRunOptions options = DiesWithItsLog(seed);
    options.owner_faults.losses_unsaid = true;
    found += RunSim(options).ok() ? 0 : 1;
  }
  EXPECT_GT(found, 2);
}

}  // namespace
}  // namespace pando
