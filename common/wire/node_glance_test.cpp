#include "common/wire/node_glance.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "common/wire/test_images.h"

namespace pando {
namespace {

class NodeGlanceTest : public testing::Test {
 protected:
  const NodeLayout layout_ = *NodeLayout::Create(8, 8);
  alignas(64) std::byte image_[1024] = {};
};

TEST_F(NodeGlanceTest, SeesStateLifeAndPeerOfANode) {
  NodeHeader header;
  header.tree_id = 7;
  header.state = NodeState::kMerging;
  header.life = 0x01020304;
  WriteHeader(image_, layout_, header);
  NodeGlance glance = GlanceAtNode(image_);
  EXPECT_TRUE(glance.is_node);
  EXPECT_EQ(glance.tree_id, 7u);
  EXPECT_EQ(glance.life, 0x01020304u);
  EXPECT_EQ(glance.state, NodeState::kMerging);
  EXPECT_FALSE(glance.has_peer);
  header.peer = {RemoteAddress(1, 4096), 3};
  WriteHeader(image_, layout_, header);
  EXPECT_TRUE(GlanceAtNode(image_).has_peer);
}

TEST_F(NodeGlanceTest, AStampIsAConsistentLineOfNoNodeAndTheNextLifeIsNewer) {
  for (const bool crc : {false, true}) {
    std::memset(image_, 0xff, kLineBytes);
    WriteLifeStamp(image_, 41, crc);
    EXPECT_TRUE(LinesConsistent(image_, layout_, crc)) << "the other lines are zero";
    EXPECT_EQ(Classify(image_, layout_, {.tree_id = 7, .level = 0, .life = 41, .key = "k"}, crc),
              NodeVerdict::kStale);
    const NodeGlance glance = GlanceAtNode(image_);
    EXPECT_FALSE(glance.is_node);
    EXPECT_EQ(glance.life, 41u);
    EXPECT_EQ(NextLife(image_), 42u);
  }
}

TEST(LifeTest, NewerIsSerialAndNoLifeIsOlderThanAny) {
  EXPECT_TRUE(LifeNewer(2, 1));
  EXPECT_FALSE(LifeNewer(1, 2));
  EXPECT_FALSE(LifeNewer(5, 5));
  EXPECT_TRUE(LifeNewer(1, 0));
  EXPECT_TRUE(LifeNewer(UINT32_MAX, 0));
  EXPECT_FALSE(LifeNewer(0, UINT32_MAX));
  EXPECT_FALSE(LifeNewer(0, 0));
  EXPECT_TRUE(LifeNewer(1, UINT32_MAX)) << "NextLife() skips 0";
}

}  // namespace
}  // namespace pando
