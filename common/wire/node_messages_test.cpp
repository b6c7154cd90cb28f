#include "common/wire/node_messages.h"

#include <gtest/gtest.h>

#include <string>

#include "common/wire/control.h"
#include "common/wire/test_messages.h"

namespace pando {
namespace {

constexpr auto kLoss = absl::StatusCode::kDataLoss;

TEST(NodeMessagesTest, EveryBodyHasItsLength) {
  ExpectExactLength(EncodeNodeRequest({3, 1024, 64}), ParseNodeRequest);
  ExpectExactLength(EncodeNodeGrant({9, 2, {{4096, 1024, 1, 8}, {8192, 2048, 0, 1}}}),
                    ParseNodeGrant);
  ExpectExactLength(EncodeNodeReturn({3, {{4096, 1024}, {8192, 2048}}}), ParseNodeReturn);
  ExpectExactLength(EncodeNodeFree({3, {{4096, 7}}}), ParseNodeFree);
  ExpectExactLength(EncodeNodeGrant({.free_bytes = 9, .rested_in_ns = 8}), ParseNodeGrant);
  ExpectExactLength(EncodeNodesFreed({5, 4096}), ParseNodesFreed);
  ExpectExactLength(EncodeNodeCount(5), ParseNodeCount);
  ExpectExactLength(EncodeNodeSettle({3, {{4096, 7}, {8192, 1}}}), ParseNodeSettle);
  ExpectExactLength(EncodeTreeDetach({3, 1}), ParseTreeDetach);
  ExpectExactLength(EncodeNodeQuery({3, 4096, 10}), ParseNodeQuery);
  ExpectExactLength(EncodeOrphanList({1, 8192, {{4096, 3, 4, 5}, {8192, 0, 0, 1}}}),
                    ParseOrphanList);
  ExpectExactLength(EncodeNodeList({1, 8192, {{4096, 1024, NodeUse::kOut, 5}}}), ParseNodeList);
}

TEST(NodeMessagesTest, FieldsRoundTrip) {
  const auto request = ParseNodeRequest(EncodeNodeRequest({3, 1024, 64}));
  EXPECT_EQ(request->tree_id, 3u);
  EXPECT_EQ(request->node_bytes, 1024u);
  EXPECT_EQ(request->nodes_max, 64u);
  const std::vector<NodeRun> runs = {{4096, 1024, 1, 8}, {8192, 2048, 0, 1}};
  const auto grant = ParseNodeGrant(EncodeNodeGrant({9, 2, runs}));
  EXPECT_EQ(grant->free_bytes, 9u);
  EXPECT_EQ(grant->orphans, 2u);
  EXPECT_EQ(grant->runs, runs);
  EXPECT_EQ(grant->rested_in_ns, 0);
  const auto later =
      ParseNodeGrant(EncodeNodeGrant({.free_bytes = 9, .orphans = 2, .rested_in_ns = 8}));
  EXPECT_EQ(later->orphans, 2u);
  EXPECT_EQ(later->rested_in_ns, 8);
  EXPECT_TRUE(later->runs.empty());
  EXPECT_EQ(ParseNodeReturn(EncodeNodeReturn({3, runs}))->runs[1], (NodeRun{8192, 2048}));
  const std::vector<NodeLife> freed = {{4096, 7}, {8192, 8}};
  EXPECT_EQ(ParseNodeFree(EncodeNodeFree({3, freed}))->nodes, freed);
  EXPECT_EQ(ParseNodesFreed(EncodeNodesFreed({5, 4096}))->count, 5u);
  EXPECT_EQ(ParseNodesFreed(EncodeNodesFreed({5, 4096}))->free_bytes, 4096u);
  EXPECT_EQ(*ParseNodeCount(EncodeNodeCount(5)), 5u);
  EXPECT_EQ(ParseNodeSettle(EncodeNodeSettle({3, freed}))->nodes, freed);
  EXPECT_EQ(ParseTreeDetach(EncodeTreeDetach({3, 1}))->settled, 1);
  EXPECT_EQ(ParseNodeQuery(EncodeNodeQuery({3, 77, 10}))->after_offset, 77u);
  const std::vector<Orphan> orphans = {{4096, 3, 4, 5}, {8192, 0, 0, 1}};
  const auto list = ParseOrphanList(EncodeOrphanList({1, 8192, orphans}));
  EXPECT_EQ(list->more, 1);
  EXPECT_EQ(list->next, 8192u);
  EXPECT_EQ(list->orphans, orphans);
  const std::vector<NodeUseRun> uses = {{4096, 1024, NodeUse::kOrphan, 5}};
  EXPECT_EQ(ParseNodeList(EncodeNodeList({0, 4096, uses}))->runs, uses);
}

TEST(NodeMessagesTest, ValuesOutOfRangeAreRefused) {
  EXPECT_EQ(ParseNodeRequest(EncodeNodeRequest({3, 1000, 1})).status().code(),
            absl::StatusCode::kInvalidArgument);
  const auto returned = [](uint64_t offset, uint64_t bytes) {
    return ParseNodeReturn(EncodeNodeReturn({3, {{offset, bytes}}})).status().code();
  };
  EXPECT_EQ(returned(0, 1024), kLoss);
  EXPECT_EQ(returned(4097, 1024), kLoss);
  EXPECT_EQ(returned(4096, 0), kLoss);
  EXPECT_EQ(returned(4096, 1000), kLoss);
  EXPECT_EQ(returned(4096, UINT64_MAX - 63), kLoss);
  EXPECT_EQ(returned(UINT64_MAX - 63, 1024), kLoss);
  EXPECT_EQ(ParseNodeFree(EncodeNodeFree({3, {{4097, 1}}})).status().code(), kLoss);
  EXPECT_EQ(ParseNodeSettle(EncodeNodeSettle({3, {{0, 1}}})).status().code(), kLoss);
  EXPECT_EQ(ParseTreeDetach(EncodeTreeDetach({3, 3})).status().code(), kLoss);
  EXPECT_EQ(ParseNodeGrant(EncodeNodeGrant({0, 0, {{4096, 1024, 2, 1}}})).status().code(), kLoss);
  EXPECT_EQ(ParseNodeGrant(EncodeNodeGrant({0, 0, {{4096, 1024, 1, 0}}})).status().code(), kLoss);
  const auto later = [](std::vector<NodeRun> runs, int64_t rested_in_ns) {
    const NodeGrant grant = {.runs = std::move(runs), .rested_in_ns = rested_in_ns};
    return ParseNodeGrant(EncodeNodeGrant(grant)).status().code();
  };
  EXPECT_EQ(later({}, 0), kLoss) << "neither nodes nor a time to wait for them";
  EXPECT_EQ(later({}, -1), kLoss);
  EXPECT_EQ(later({}, kRestNsMax), absl::StatusCode::kOk);
  EXPECT_EQ(later({}, kRestNsMax + 1), kLoss);
  EXPECT_EQ(later({{4096, 1024, 0, 1}}, 1), kLoss) << "both";
  EXPECT_EQ(ParseOrphanList(EncodeOrphanList({2, 0, {}})).status().code(), kLoss);
  const auto use = static_cast<NodeUse>(5);
  EXPECT_EQ(ParseNodeList(EncodeNodeList({0, 0, {{4096, 1024, use, 0}}})).status().code(), kLoss);
}

TEST(NodeMessagesTest, ListsHaveAnEndAndTheLongestFitAMessage) {
  const auto nodes = [](size_t count) {
    return EncodeNodeFree({3, std::vector<NodeLife>(count, {4096, 1})});
  };
  EXPECT_TRUE(ParseNodeFree(nodes(kNodesPerRequestMax)).ok());
  EXPECT_FALSE(ParseNodeFree(nodes(kNodesPerRequestMax + 1)).ok());
  EXPECT_FALSE(
      ParseNodeReturn(EncodeNodeReturn({3, std::vector<NodeRun>(kRunsPerRequestMax + 1, {64, 64})}))
          .ok());
  const std::string orphans =
      EncodeOrphanList({1, 0, std::vector<Orphan>(kListedNodesMax, {4096, 1, 1, 1})});
  EXPECT_TRUE(ParseOrphanList(orphans).ok());
  EXPECT_LE(orphans.size(), kControlBodyBytesMax);
  const std::string list = EncodeNodeList(
      {1, 0, std::vector<NodeUseRun>(kListedNodesMax, {4096, 1024, NodeUse::kOut, 1})});
  EXPECT_TRUE(ParseNodeList(list).ok());
  EXPECT_LE(list.size(), kControlBodyBytesMax);
  EXPECT_FALSE(ParseNodeList(std::string(17, '\xff')).ok()) << "4 billion of nothing";
}

}  // namespace
}  // namespace pando
