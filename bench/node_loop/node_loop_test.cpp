#include "bench/node_loop/node_loop.h"

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

}  // namespace
}  // namespace pando::bench
