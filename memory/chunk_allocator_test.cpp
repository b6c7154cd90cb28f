#include "memory/chunk_allocator.h"

#include <set>

#include "gtest/gtest.h"
#include "memory/test_support.h"

namespace pando::memory {
namespace {

constexpr ClientId kAnna = {1, 10};
constexpr ClientId kBert = {2, 11};
constexpr uint32_t kTree = 5;
constexpr uint32_t kNode = 1024;

class ChunkAllocatorTest : public testing::Test {
 protected:
  PlainMemory memory_;
  ManualClock clock_;
  Region region_ = *Region::Format(memory_.memory(), {});
  ChunkAllocator chunks_{&region_, &clock_, kSecondNs};
  const uint64_t chunk_count_ = region_.superblock().chunk_count;
  const uint64_t chunk_bytes_ = region_.superblock().chunk_bytes;

  void ExpectConsistent() {
    const auto counts = chunks_.counts();
    EXPECT_EQ(counts.free + counts.held + counts.partial + counts.full, chunk_count_);
    EXPECT_EQ(chunks_.free_bytes(), counts.free * chunk_bytes_);
    EXPECT_EQ(chunks_.free_bytes() + chunks_.used_bytes(), chunk_count_ * chunk_bytes_);
  }
  void Touch(uint64_t offset) { memory_.main()[offset] = std::byte{0xff}; }
};

TEST_F(ChunkAllocatorTest, GrantsDisjointChunksUntilTheServerIsFull) {
  std::set<uint64_t> offsets;
  for (uint64_t i = 0; i < chunk_count_; ++i) {
    const auto grant = chunks_.Allocate(kAnna, kTree, kNode);
    ASSERT_TRUE(grant.ok()) << grant.status();
    EXPECT_EQ(grant->bytes, chunk_bytes_);
    EXPECT_EQ(grant->free_bytes, (chunk_count_ - i - 1) * chunk_bytes_);
    EXPECT_GE(grant->offset, region_.superblock().chunk_offset);
    EXPECT_LE(grant->offset + grant->bytes, region_.superblock().region_bytes);
    EXPECT_TRUE(offsets.insert(grant->offset).second);
  }
  EXPECT_EQ(chunks_.Allocate(kBert, kTree, kNode).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(chunks_.counts().exhausted, 1u);
  ExpectConsistent();
}

TEST_F(ChunkAllocatorTest, GrantsAreWholeNodes) {
  const auto grant = chunks_.Allocate(kAnna, kTree, 1216);
  ASSERT_TRUE(grant.ok());
  EXPECT_EQ(grant->bytes % 1216, 0u);
  EXPECT_LE(grant->bytes, chunk_bytes_);
  EXPECT_GT(grant->bytes + 1216, chunk_bytes_);
}

TEST_F(ChunkAllocatorTest, RefusesNodeSizesThatAreNoneOrNotTheTrees) {
  for (uint32_t bytes : {0u, 64u, 1000u, 1025u, 128u * 1024, UINT32_MAX}) {
    EXPECT_EQ(chunks_.Allocate(kAnna, kTree, bytes).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bytes;
  }
  ASSERT_TRUE(chunks_.Allocate(kAnna, kTree, 1024).ok());
  EXPECT_EQ(chunks_.Allocate(kAnna, kTree, 2048).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(chunks_.Allocate(kAnna, kTree + 1, 2048).ok());
}

TEST_F(ChunkAllocatorTest, AReturnedRemainderIsHandedOutAgainForItsTreeOnly) {
  const auto grant = chunks_.Allocate(kAnna, kTree, kNode);
  ASSERT_TRUE(grant.ok());
  const ChunkGrant rest = {.offset = grant->offset + 3 * kNode, .bytes = grant->bytes - 3 * kNode};
  ASSERT_TRUE(chunks_.Return(kAnna, rest).ok());
  EXPECT_EQ(chunks_.counts().partial, 1u);
  const auto other_tree = chunks_.Allocate(kBert, kTree + 1, kNode);
  ASSERT_TRUE(other_tree.ok());
  EXPECT_NE(other_tree->offset, rest.offset);
  const auto again = chunks_.Allocate(kBert, kTree, kNode);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->offset, rest.offset);
  EXPECT_EQ(again->bytes, rest.bytes);
  // The second holder cannot return what the first one used.
  EXPECT_FALSE(chunks_.Return(kBert, *grant).ok());
  EXPECT_TRUE(chunks_.Return(kBert, *again).ok());
  ExpectConsistent();
}

TEST_F(ChunkAllocatorTest, RefusesReturnsOfAnythingElse) {
  const auto grant = chunks_.Allocate(kAnna, kTree, kNode);
  ASSERT_TRUE(grant.ok());
  const auto refused = [&](const ClientId& who, uint64_t offset, uint64_t bytes) {
    return chunks_.Return(who, {.offset = offset, .bytes = bytes}).code() ==
           absl::StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refused(kBert, grant->offset, grant->bytes)) << "not the holder";
  EXPECT_TRUE(refused({1, 9}, grant->offset, grant->bytes)) << "another life of the holder";
  EXPECT_TRUE(refused(kAnna, grant->offset + 64, grant->bytes - 64)) << "not a node boundary";
  EXPECT_TRUE(refused(kAnna, grant->offset, grant->bytes - kNode)) << "not up to the end";
  EXPECT_TRUE(refused(kAnna, grant->offset + grant->bytes, 0)) << "nothing";
  EXPECT_TRUE(refused(kAnna, 0, 4096)) << "superblock";
  EXPECT_TRUE(refused(kAnna, UINT64_MAX, 64));
  EXPECT_TRUE(refused(kAnna, grant->offset, UINT64_MAX));
  EXPECT_EQ(chunks_.counts().held, 1u);
  EXPECT_TRUE(chunks_.Return(kAnna, *grant).ok());
  EXPECT_TRUE(refused(kAnna, grant->offset, grant->bytes)) << "twice";
}

TEST_F(ChunkAllocatorTest, TheUntouchedEndOfADeadHoldersChunkIsRecovered) {
  const auto grant = chunks_.Allocate(kAnna, kTree, kNode);
  ASSERT_TRUE(grant.ok());
  Touch(grant->offset + 4 * kNode + 17);
  chunks_.ReleaseHolder(kBert);
  EXPECT_EQ(chunks_.counts().held, 1u);
  chunks_.ReleaseHolder(kAnna);
  EXPECT_EQ(chunks_.counts().held, 0u);
  const auto again = chunks_.Allocate(kBert, kTree, kNode);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->offset, grant->offset + 5 * kNode);
  // A chunk used to its last byte leaves nothing.
  Touch(again->offset + again->bytes - 1);
  chunks_.ReleaseHolder(kBert, kTree);
  EXPECT_EQ(chunks_.counts().full, 1u);
  ExpectConsistent();
}

TEST_F(ChunkAllocatorTest, MemoryOfAFreedTreeRestsAndIsZeroedBeforeItIsUsedAgain) {
  std::vector<ChunkGrant> grants;
  for (uint64_t i = 0; i < chunk_count_; ++i) {
    grants.push_back(*chunks_.Allocate(kAnna, kTree, kNode));
    Touch(grants.back().offset + 100);
  }
  chunks_.FreeTree(kTree);
  EXPECT_EQ(chunks_.counts().free, chunk_count_);
  const auto early = chunks_.Allocate(kBert, kTree + 1, 2048);
  EXPECT_EQ(early.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(early.status().message().find("again within"), absl::string_view::npos)
      << early.status();
  clock_.now_ns += kSecondNs;
  const auto grant = chunks_.Allocate(kBert, kTree + 1, 2048);
  ASSERT_TRUE(grant.ok()) << grant.status();
  EXPECT_EQ(region_.UsedPrefix(grant->offset, chunk_bytes_), 0u);
  EXPECT_EQ(chunks_.counts().zeroed_bytes, chunk_bytes_);
  ExpectConsistent();
}

TEST_F(ChunkAllocatorTest, RestedMemoryIsUsedBeforeFreshMemory) {
  const auto first = chunks_.Allocate(kAnna, kTree, kNode);
  chunks_.FreeTree(kTree);
  const auto second = chunks_.Allocate(kAnna, kTree + 1, kNode);
  EXPECT_NE(second->offset, first->offset) << "the first one rests";
  clock_.now_ns += kSecondNs;
  EXPECT_EQ(chunks_.Allocate(kAnna, kTree + 2, kNode)->offset, first->offset);
}

TEST_F(ChunkAllocatorTest, TheServersOwnNodesShareAChunkWithItsClients) {
  const auto node = chunks_.AllocateNode(kTree, kNode);
  ASSERT_TRUE(node.ok());
  const auto grant = chunks_.Allocate(kAnna, kTree, kNode);
  ASSERT_TRUE(grant.ok());
  EXPECT_EQ(grant->offset, *node + kNode);
  EXPECT_EQ(chunks_.counts().free, chunk_count_ - 1);
}

}  // namespace
}  // namespace pando::memory
