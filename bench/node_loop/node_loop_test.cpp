#include "bench/node_loop/node_loop.h"

#include "bench/host/paths.h"
#include "bench/host/process.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

TEST(NodeLoopTest, EveryRecordIsInItsNode) {
  NodeArray nodes(10'000);
  EXPECT_GE(nodes.records(), 10'000u);
  for (uint64_t record = 0; record < nodes.records(); ++record) {
    ASSERT_EQ(nodes.Find(record), record + 1);
  }
}

TEST(NodeLoopTest, TheLoopFindsWhatItAsksFor) {
  NodeArray nodes(1);
  const NodeLoopResult result = RunNodeLoop(&nodes, 0.01, 1);
  EXPECT_GT(result.operations, 0u);
  EXPECT_EQ(result.found, result.operations);
  EXPECT_GE(result.seconds, 0.01);
}

// Not memory that is not there, nor a rate of no time.
TEST(ProgramsTest, RefuseWhatTheyCannotMeasure) {
  const auto ending = [](const char* program, const char* flag) {
    Process process = *Process::Spawn({.arguments = {ProgramFolder() / program, flag}});
    EXPECT_TRUE(process.WaitFor(20'000)) << program << " " << flag;
    return process.ending().value_or("none");
  };
  EXPECT_EQ(ending("pando-node-loop", "--records=68719476736"), "exited with 1");
  EXPECT_EQ(ending("pando-shm-speed", "--duration=nan"), "exited with 2");
  EXPECT_EQ(ending("pando-shm-speed", "--duration=-1"), "exited with 2");
}

}  // namespace
}  // namespace pando::bench
