// What a memory server has for owned trees: extents (rule W1), whose life and death is a client's,
// and memory kept back for the tree of the owners (rule O2).
#include <cstring>

#include "memory/server_test_util.h"

namespace pando::memory {
namespace {

class OwnerMemoryTest : public TwoClientsTest {
 protected:
  static constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;

  ExtentGrant AnnasExtent(uint64_t bytes = 100'000) {
    const auto grant = anna_->AllocateExtent(bytes);
    EXPECT_TRUE(grant.ok()) << grant.status();
    return grant.value_or(ExtentGrant{});
  }
  // By Bert.
  absl::StatusOr<bool> FreeAnnas(const ExtentGrant& extent) {
    return bert_->FreeExtent(extent, anna_->id.incarnation);
  }
  ClientLiveness HolderState() {
    const auto extents = bert_->ListExtents();
    EXPECT_EQ(extents.size(), 1u);
    return extents.empty() ? ClientLiveness::kUnknown : extents[0].holder;
  }
};

TEST_F(OwnerMemoryTest, AnExtentIsItsHoldersUntilItIsFreed) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  const ExtentGrant extent = AnnasExtent();
  EXPECT_GE(extent.bytes, 100'000u);
  EXPECT_EQ(CounterOf(*server_, "spare_log_bytes"), extent.bytes);  // rule W7
  EXPECT_EQ(server_->Info().used_bytes, 2 * extent.bytes);
  EXPECT_EQ(CounterOf(*server_, "extents"), 1u);
  EXPECT_EQ(CounterOf(*server_, "extent_bytes"), extent.bytes);
  const auto listed = bert_->ListExtents();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0],
            (ListedExtent{extent.id, extent.offset, extent.bytes, anna_->id.compute_server,
                          anna_->id.incarnation, ClientLiveness::kJoined}));
  EXPECT_EQ(FreeAnnas(extent).status().code(), kRefused) << "Anna lives";
  EXPECT_FALSE(*bert_->FreeExtent(extent, bert_->id.incarnation)) << "it is not Bert's";
  EXPECT_TRUE(*anna_->FreeExtent(extent, anna_->id.incarnation));
  EXPECT_FALSE(*anna_->FreeExtent(extent, anna_->id.incarnation)) << "once";
  EXPECT_EQ(server_->Info().used_bytes, CounterOf(*server_, "spare_log_bytes"));
  TestClient stranger(server_.get(), 3);
  EXPECT_EQ(stranger.AllocateExtent(1).status().code(), kRefused);
}

// As a call that was given up, and comes after all.
TEST_F(OwnerMemoryTest, AFreeThatComesLateDoesNotFreeWhatIsThereNow) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  const ExtentGrant first = AnnasExtent();
  EXPECT_TRUE(*anna_->FreeExtent(first, anna_->id.incarnation));
  // Of the two pieces that are kept now (rule W7) the one that has rested for longer comes next.
  ++clock_.now_ns;
  EXPECT_TRUE(*anna_->FreeExtent(AnnasExtent(), anna_->id.incarnation));
  clock_.now_ns += kSecondNs;
  const ExtentGrant second = AnnasExtent();
  ASSERT_EQ(second.offset, first.offset);
  EXPECT_FALSE(*anna_->FreeExtent(first, anna_->id.incarnation));
  ExtentGrant of_another_life = second;
  ++of_another_life.life;
  EXPECT_FALSE(*anna_->FreeExtent(of_another_life, anna_->id.incarnation));
  EXPECT_EQ(bert_->ListExtents().size(), 1u);
}

TEST_F(OwnerMemoryTest, AnExtentOutlivesItsHolderUntilSomebodyFreesIt) {
  ASSERT_NO_FATAL_FAILURE(Start({.fence_words_per_step = 256, .fence_step_ns = 10}));
  const ExtentGrant extent = AnnasExtent();
  std::memset(memory_.main() + extent.offset, 0x5a, extent.bytes);
  server_->OnPeerGone(1);
  EXPECT_EQ(HolderState(), ClientLiveness::kJoined) << "not fenced yet";
  EXPECT_EQ(FreeAnnas(extent).status().code(), kRefused);
  for (int64_t next_ns = clock_.now_ns; next_ns != kNeverNs;) {
    clock_.now_ns = next_ns;
    next_ns = server_->OnTimer(clock_.now_ns);
  }
  EXPECT_EQ(HolderState(), ClientLiveness::kDead);
  EXPECT_EQ(memory_.main()[extent.offset], std::byte{0x5a}) << "it is to be read";
  EXPECT_TRUE(*FreeAnnas(extent));
  EXPECT_FALSE(*FreeAnnas(extent));
  TestClient carl(server_.get(), 3);
  ASSERT_TRUE(carl.Join().ok());
  ASSERT_TRUE(bert_->AllocateExtent(extent.bytes).ok()) << "what was kept";
  const auto too_early = carl.AllocateExtent(server_->Info().free_bytes);
  EXPECT_EQ(too_early.status().code(), absl::StatusCode::kResourceExhausted)
      << "another one would have no spare beside it";
}

TEST_F(OwnerMemoryTest, WhoIsCutOffMayStillWriteUntilItsQueuePairsAreGone) {
  RecordingFence fence;
  ASSERT_NO_FATAL_FAILURE(Start({.lease_ns = kSecondNs, .fence = &fence}));
  const ExtentGrant extent = AnnasExtent();
  ASSERT_TRUE(bert_->Fence(anna_->id).ok());
  server_->OnTimer(clock_.now_ns);
  EXPECT_EQ(HolderState(), ClientLiveness::kJoined);
  EXPECT_EQ(FreeAnnas(extent).status().code(), kRefused);
  EXPECT_EQ(anna_->FreeExtent(extent, anna_->id.incarnation).status().code(), kRefused)
      << "it is not asked any more";
  server_->OnPeerGone(1);
  EXPECT_EQ(HolderState(), ClientLiveness::kDead);
  EXPECT_TRUE(*FreeAnnas(extent));
}

TEST_F(OwnerMemoryTest, WhatALeaverLeftIsListedAsEnded) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  const ExtentGrant extent = AnnasExtent();
  ASSERT_TRUE(anna_->Call(ControlOpcode::kLeave).ok());
  EXPECT_EQ(FreeAnnas(extent).status().code(), kRefused) << "its connection is still there";
  server_->OnPeerGone(1);
  EXPECT_EQ(HolderState(), ClientLiveness::kLeft);
  EXPECT_TRUE(*FreeAnnas(extent));
}

TEST_F(OwnerMemoryTest, NodesOfTheDeadAreSweptAndItsExtentIsNot) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  const auto tree = anna_->CreateTree("a");
  ASSERT_TRUE(anna_->AttachTree(tree->tree_id).ok());
  ASSERT_TRUE(anna_->AllocateNodes(tree->tree_id, tree->shape.node_bytes).ok());
  const ExtentGrant extent = AnnasExtent();
  ASSERT_TRUE(bert_->DropTree(tree->tree_id).ok());
  server_->OnPeerGone(1);
  while (server_->OnTimer(clock_.NowNs()) != kNeverNs) {
  }
  EXPECT_EQ(CounterOf(*server_, "trees_freed"), 1u);
  EXPECT_EQ(server_->Info().used_bytes, extent.bytes + CounterOf(*server_, "spare_log_bytes"));
}

// Rule B5: what owners say is shown as long as they are there, and grows older by itself.
TEST_F(OwnerMemoryTest, WhatErasesWaitForIsShown) {
  ASSERT_NO_FATAL_FAILURE(Start({}));
  const auto say = [](TestClient* client, PendingDeletes deletes) {
    ASSERT_TRUE(client->Call(ControlOpcode::kNoteDeletes, EncodePendingDeletes(deletes)).ok());
  };
  const auto shown = [&] {
    return std::pair(CounterOf(*server_, "tombstones"), CounterOf(*server_, "oldest_tombstone_ms"));
  };
  EXPECT_EQ(shown(), std::pair(uint64_t{0}, uint64_t{0}));
  say(anna_.get(), {.tombstones = 5, .oldest_ms = 700});
  say(bert_.get(), {.tombstones = 6, .oldest_ms = 100});
  EXPECT_EQ(shown(), std::pair(uint64_t{11}, uint64_t{700}));
  clock_.now_ns += 50 * kMillisecondNs;
  EXPECT_EQ(shown(), std::pair(uint64_t{11}, uint64_t{750}));
  say(anna_.get(), {});
  EXPECT_EQ(shown(), std::pair(uint64_t{6}, uint64_t{150}));
  server_->OnPeerGone(2);
  while (server_->OnTimer(clock_.NowNs()) != kNeverNs) {
  }
  EXPECT_EQ(shown(), std::pair(uint64_t{0}, uint64_t{0}));
}

class KeptBackTest : public TwoClientsTest {
 protected:
  static constexpr auto kFull = absl::StatusCode::kResourceExhausted;

  void SetUp() override {
    memory_ = PlainMemory(8 << 20);
    ASSERT_NO_FATAL_FAILURE(Start({}));
    chunk_bytes_ = server_->superblock().chunk_bytes;
  }
  absl::StatusOr<CatalogEntry> CreateClusterTree() {
    return anna_->CreateTree(std::string(kClusterTreeName), Shape(246, 128));
  }
  // Anna has all that anybody gets.
  void FillUp() {
    const auto tree = anna_->CreateTree("a");
    ASSERT_TRUE(tree.ok()) << tree.status();
    ASSERT_TRUE(anna_->AttachTree(tree->tree_id).ok());
    absl::StatusOr<NodeGrant> grant;
    while ((grant = anna_->AllocateNodes(tree->tree_id, tree->shape.node_bytes)).ok()) {
    }
    ASSERT_EQ(grant.status().code(), kFull);
  }

  uint64_t chunk_bytes_ = 0;
};

TEST_F(KeptBackTest, TheOwnersTreeIsCreatedAndGrowsWhenAllElseIsFull) {
  EXPECT_EQ(CounterOf(*server_, "chunks_kept_back"), 1u);
  ASSERT_NO_FATAL_FAILURE(FillUp());
  EXPECT_EQ(server_->Info().free_bytes, 0u);
  EXPECT_EQ(anna_->CreateTree("b").status().code(), kFull);
  EXPECT_EQ(anna_->AllocateExtent(1).status().code(), kFull);
  const auto tree = CreateClusterTree();
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(CounterOf(*server_, "chunks_kept_back"), 0u);
  ASSERT_TRUE(bert_->AttachTree(tree->tree_id).ok());
  uint64_t nodes = 1;
  absl::StatusOr<NodeGrant> grant;
  while ((grant = bert_->AllocateNodes(tree->tree_id, tree->shape.node_bytes)).ok()) {
    for (const NodeRun& run : grant->runs) {
      EXPECT_LE(run.bytes, 4 * tree->shape.node_bytes) << "others need some, too";
      nodes += run.bytes / tree->shape.node_bytes;
    }
  }
  EXPECT_EQ(nodes, chunk_bytes_ / tree->shape.node_bytes);
}

TEST_F(KeptBackTest, WhatItHasIsNotKeptBackAndWhatItGaveBackIs) {
  const auto tree = CreateClusterTree();
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_EQ(CounterOf(*server_, "chunks_kept_back"), 0u);
  ASSERT_TRUE(anna_->DropTree(tree->tree_id).ok());
  EXPECT_EQ(CounterOf(*server_, "chunks_kept_back"), 1u);
  clock_.now_ns += kSecondNs;
  ASSERT_NO_FATAL_FAILURE(FillUp());
  EXPECT_TRUE(CreateClusterTree().ok());
}

TEST_F(KeptBackTest, WhoeverIsRefusedIsNotToldToWaitForIt) {
  const auto tree = CreateClusterTree();
  ASSERT_TRUE(anna_->AttachTree(tree->tree_id).ok());
  ASSERT_NO_FATAL_FAILURE(FillUp());
  ASSERT_TRUE(anna_->DropTree(tree->tree_id).ok());
  ASSERT_TRUE(anna_->DetachTree(tree->tree_id).ok());
  EXPECT_EQ(anna_->CreateTree("b").status().code(), kFull);
  EXPECT_EQ(bert_->AllocateExtent(1).status().code(), kFull) << "it rests, but for others";
}

TEST_F(KeptBackTest, NoOtherServerKeepsSomeBackNorDoesASmallOne) {
  PlainMemory little(4 << 20);
  EXPECT_EQ(CounterOf(**MemoryServer::Create(little.memory(), {}), "chunks_kept_back"), 0u);
  PlainMemory memory(8 << 20);
  const auto server = MemoryServer::Create(memory.memory(), {.server_id = 2, .is_catalog = false});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(CounterOf(**server, "chunks_kept_back"), 0u);
}

}  // namespace
}  // namespace pando::memory
