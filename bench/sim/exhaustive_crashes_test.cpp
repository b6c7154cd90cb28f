#include "bench/sim/exhaustive_crashes.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::HasSubstr;

// Slots of two lines, nodes of one packet, three levels: quick.
ExhaustiveOptions SmallNodes() {
  ExhaustiveOptions options;
  options.tree = {.key_bytes_max = 60, .value_bytes_max = 8, .node_bytes = 1024};
  options.key_prefix_bytes = 44;
  options.keys = 160;
  return options;
}

ExhaustiveResult ExpectOk(const ExhaustiveOptions& options) {
  ExhaustiveResult result = RunExhaustiveCrashes(options);
  for (const std::string& problem : result.problems) ADD_FAILURE() << problem;
  return result;
}

class ExhaustiveCrashes : public testing::TestWithParam<sim::DeliveryMode> {};

TEST_P(ExhaustiveCrashes, OthersGoOnAndNothingIsLost) {
  ExhaustiveOptions options;
  options.mode = GetParam();
  ExpectOk(options);
}

TEST_P(ExhaustiveCrashes, TheRecovererMayDieToo) {
  ExhaustiveOptions options = SmallNodes();
  options.mode = GetParam();
  options.victims_of_a_kind = 1;
  options.kill_recoverer = 6;
  ExpectOk(options);
}

// Rule L5: the client lives, and what it has posted may yet be executed. Found so: a merge of
// unknown outcome took a node out that nobody ever gave back.
TEST_P(ExhaustiveCrashes, WhereQueuePairsBreakEverybodyGoesOn) {
  ExhaustiveOptions options = SmallNodes();
  options.mode = GetParam();
  options.break_only = true;
  options.victims_of_a_kind = 1;
  const ExhaustiveResult exact = ExpectOk(options);
  EXPECT_GT(exact.locks_recovered, exact.worlds / 2);
  options.break_late = true;
  const ExhaustiveResult late = ExpectOk(options);
  EXPECT_GT(late.verbs_late, 0u);
}

// Rule L5 with lists: several coroutines of a session have chains to one server under way, and the
// queue pair breaks between any two packets of them, so also between any two of the chains. Those
// before are done or of unknown outcome, those behind may have been executed or not.
void BreakLists(sim::DeliveryMode mode, int memory_servers) {
  ExhaustiveOptions options = SmallNodes();
  options.mode = mode;
  options.memory_servers = memory_servers;
  options.break_only = options.side_by_side = true;
  options.victims_of_a_kind = 1;
  const ExhaustiveResult exact = ExpectOk(options);
  EXPECT_GT(exact.locks_recovered, exact.worlds / 2);
  EXPECT_GT(exact.lists_broken, exact.worlds / 3);
  options.break_late = true;
  const ExhaustiveResult late = ExpectOk(options);
  EXPECT_GT(late.verbs_late, late.worlds / 4);
  EXPECT_GT(late.lists_broken, late.worlds / 3);
  options.break_late = false;
  options.break_heard = true;
  EXPECT_GT(ExpectOk(options).lists_broken, exact.worlds / 3);
}

TEST_P(ExhaustiveCrashes, AListBreaksBetweenAnyTwoPacketsOfItsChains) { BreakLists(GetParam(), 1); }

TEST(ExhaustiveCrashesTest, ListsToTwoServersBreakTogether) {
  BreakLists(sim::DeliveryMode::kLines, 2);
}

TEST(ExhaustiveCrashesTest, WhoHasSeveralOperationsUnderWayMayDie) {
  ExhaustiveOptions options = SmallNodes();
  options.side_by_side = true;
  options.victims_of_a_kind = 1;
  ExpectOk(options);
}

TEST(ExhaustiveCrashesTest, TheQueuePairsOfTheRecovererMayBreakToo) {
  ExhaustiveOptions options = SmallNodes();
  options.break_only = options.break_late = true;
  options.victims_of_a_kind = 1;
  options.kill_recoverer = 3;
  EXPECT_GT(ExpectOk(options).locks_recovered, 0u);
}

// Rules U6, S4, S5: runs of 20 writes, with up to eight new leaves over two servers, into nodes of
// one packet and of four.
TEST_P(ExhaustiveCrashes, RunsOfWritesAreAllOrNothingALeaf) {
  ExhaustiveOptions options = SmallNodes();
  options.mode = GetParam();
  options.run_length = 20;
  const ExhaustiveResult result = ExpectOk(options);
  std::string kinds;
  for (const auto& [kind, kills] : result.kinds) kinds += kind + "\n";
  EXPECT_THAT(kinds, HasSubstr("run of 20, 4 splits"));
  options.break_only = options.break_late = true;
  const ExhaustiveResult late = ExpectOk(options);
  EXPECT_GT(late.locks_recovered, late.worlds / 2);
  EXPECT_GT(late.verbs_late, 0u);
}

TEST(ExhaustiveCrashesTest, WhoDiesBetweenTwoPacketsOfARunsNodes) {
  ExhaustiveOptions options;
  options.run_length = 20;
  ExpectOk(options);
}

TEST(ExhaustiveCrashesTest, TheRecovererOfARunMayDieToo) {
  ExhaustiveOptions options = SmallNodes();
  options.run_length = 20;
  options.kill_recoverer = 4;
  ExpectOk(options);
}

// Rules N: with windows, into slots that share several lines; what others find they find by narrow
// gets, where nobody has left the leaf torn.
TEST_P(ExhaustiveCrashes, NarrowGetsGoOnToo) {
  ExhaustiveOptions options = SmallNodes();
  options.mode = GetParam();
  options.victims_of_a_kind = 1;
  options.tree.narrow_reads = true;
  ExpectOk(options);
  options.run_length = 20;
  ExpectOk(options);
  options.run_length = 0;
  options.tree = {
      .key_bytes_max = 8, .value_bytes_max = 8, .node_bytes = 2048, .narrow_reads = true};
  options.key_prefix_bytes = 0;
  options.keys = 240;
  ExpectOk(options);
}

// Rules K: values in cells, which others find, and which nobody loses or keeps.
TEST_P(ExhaustiveCrashes, CellsAreLinkedOrFreed) {
  ExhaustiveOptions options = SmallNodes();
  options.mode = GetParam();
  options.victims_of_a_kind = 1;
  options.tree.inline_value_bytes_max = 1;
  options.keys = 60;
  ExpectOk(options);
  options.break_only = options.break_late = true;
  ExpectOk(options);
}

// Rule N8: the victims, and those after them, know no more of a leaf than a window says.
TEST_P(ExhaustiveCrashes, NarrowWritesGoOnToo) {
  ExhaustiveOptions options = SmallNodes();
  options.mode = GetParam();
  options.victims_of_a_kind = 1;
  options.narrow_writes = true;
  options.tree = {
      .key_bytes_max = 8, .value_bytes_max = 8, .node_bytes = 2048, .narrow_reads = true};
  options.key_prefix_bytes = 0;
  options.keys = 240;
  ExpectOk(options);
}

// Rule M8: ranges of 60 keys, with leaves that go, up to twelve at once.
TEST_P(ExhaustiveCrashes, LeavesOfAnErasedRangeGoTogether) {
  ExhaustiveOptions options = SmallNodes();
  options.mode = GetParam();
  options.erase_length = 60;
  const ExhaustiveResult result = ExpectOk(options);
  uint64_t kills = 0;
  for (const auto& [kind, count] : result.kinds) kills += count;
  EXPECT_GT(kills, 100u);
  options.break_only = options.break_late = true;
  EXPECT_GT(ExpectOk(options).locks_recovered, 0u);
}

TEST(ExhaustiveCrashesTest, WhoDiesBetweenTwoPacketsOfAnErasedRangesNodes) {
  ExhaustiveOptions options;
  options.erase_length = 60;
  ExpectOk(options);
}

TEST(ExhaustiveCrashesTest, TheRecovererOfAnErasedRangeMayDieToo) {
  ExhaustiveOptions options = SmallNodes();
  options.erase_length = 60;
  options.kill_recoverer = 4;
  ExpectOk(options);
}

INSTANTIATE_TEST_SUITE_P(Modes, ExhaustiveCrashes,
                         testing::Values(sim::DeliveryMode::kLines, sim::DeliveryMode::kWords,
                                         sim::DeliveryMode::kShmOrder, sim::DeliveryMode::kWhole),
                         [](const auto& info) {
                           return std::string(sim::DeliveryModeName(info.param));
                         });

// The script is worth nothing if it does not make the tree do all it can do.
TEST(ExhaustiveCrashesTest, EveryKindOfOperationIsKilled) {
  ExhaustiveOptions options;
  options.mode = sim::DeliveryMode::kWhole;
  options.victims_of_a_kind = 1;
  const ExhaustiveResult result = RunExhaustiveCrashes(options);
  std::string kinds;
  for (const auto& [kind, kills] : result.kinds) kinds += kind + "\n";
  for (const char* kind : {"update\n", "insert\n", "insert, 1 splits\n", "insert, 2 splits\n",
                           "1 root splits", "insert, 3 splits", "delete\n", "delete, 1 merges\n",
                           "delete, 2 merges\n", "delete, 3 merges", "root shrinks"}) {
    EXPECT_THAT(kinds, HasSubstr(kind));
  }
}

}  // namespace
}  // namespace pando
