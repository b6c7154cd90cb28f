#include "compute/core/node_allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "common/wire/node_image.h"
#include "compute/core/node_allocator_test_util.h"

namespace pando {
namespace {

TEST_F(NodeAllocatorTest, HandsEachNodeOutOnce) {
  Start({3});
  EXPECT_FALSE(allocator_.TryTake(kTree, 1).has_value());
  std::set<uint64_t> seen;
  for (int chunk = 0; chunk < 3; ++chunk) {
    ASSERT_TRUE(Refill().ok());
    while (const auto node = allocator_.TryTake(kTree, 1)) {
      EXPECT_EQ(node->address.offset() % kNodeBytes, 0u);
      EXPECT_TRUE(seen.insert(node->address.raw()).second);
    }
  }
  EXPECT_EQ(seen.size(), 12u);
  EXPECT_FALSE(allocator_.TryTake(kTree + 1, 1).has_value()) << "chunks are of one tree";
}

TEST_F(NodeAllocatorTest, WhatIsPutBackIsHandedOutAgain) {
  Start({1});
  ASSERT_TRUE(Refill().ok());
  std::vector<RemoteAddress> nodes;
  while (const auto node = allocator_.TryTake(kTree, 1)) nodes.push_back(node->address);
  ASSERT_EQ(nodes.size(), 4u);
  for (const size_t i : {1, 3, 0, 2}) allocator_.PutBack(kTree, {.address = nodes[i]});
  std::set<uint64_t> again;
  while (const auto node = allocator_.TryTake(kTree, 1)) again.insert(node->address.raw());
  EXPECT_EQ(again.size(), 4u);
  for (const RemoteAddress node : nodes) EXPECT_TRUE(again.contains(node.raw()));
}

TEST_F(NodeAllocatorTest, PrefersTheServerThatIsAskedFor) {
  Start({1, 1});
  ASSERT_TRUE(Refill(2).ok());
  EXPECT_EQ(servers_[1]->requests, 1) << "equally free: the preferred one";
  ASSERT_TRUE(Refill(2).ok());
  EXPECT_EQ(servers_[0]->requests, 1) << "the other has more left now";
  for (int i = 0; i < 4; ++i) EXPECT_EQ(allocator_.TryTake(kTree, 2)->address.server(), 2);
  EXPECT_EQ(allocator_.TryTake(kTree, 2)->address.server(), 1) << "anywhere is better than nowhere";
}

TEST_F(NodeAllocatorTest, SpreadsChunksByFreeSpace) {
  Start({2, 8});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(Refill(1).ok());
  EXPECT_EQ(servers_[0]->requests, 2);
  EXPECT_EQ(servers_[1]->requests, 8);
}

TEST_F(NodeAllocatorTest, AllFullIsAStatusAndOneFullServerIsNot) {
  Start({1, 3});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Refill(1).ok());
  const absl::Status full = Refill(1);
  EXPECT_TRUE(absl::IsResourceExhausted(full)) << full;
  std::set<uint64_t> nodes;
  while (const auto node = allocator_.TryTake(kTree, 1)) nodes.insert(node->address.raw());
  EXPECT_EQ(nodes.size(), 16u) << "what was handed out is still there";
  EXPECT_TRUE(absl::IsResourceExhausted(Refill(2)));
}

TEST_F(NodeAllocatorTest, AMalformedGrantIsRefused) {
  Start({4});
  servers_[0]->malformed = true;
  EXPECT_TRUE(absl::IsDataLoss(Refill()));
  EXPECT_FALSE(allocator_.TryTake(kTree, 1).has_value());
  servers_[0]->malformed = false;
  EXPECT_TRUE(Refill().ok());
}

TEST_F(NodeAllocatorTest, ConcurrentCallersShareOneRequest) {
  Start({10});
  int served = 0;
  for (int i = 0; i < 4; ++i) {
    Spawn([&](OperationContext& context) {
      while (!allocator_.TryTake(kTree, 1).has_value()) {
        ASSERT_TRUE(allocator_.Refill(context, kTree, kNodeBytes, 1).ok());
      }
      ++served;
    });
  }
  session_->scheduler().Drain();
  EXPECT_EQ(served, 4);
  EXPECT_EQ(servers_[0]->requests, 1);
}

TEST_F(NodeAllocatorTest, ClosingATreeReturnsWhatWasNotUsed) {
  Start({1, 1});
  ASSERT_TRUE(Refill(1).ok());
  ASSERT_TRUE(Refill(2).ok());
  const RemoteAddress used = allocator_.TryTake(kTree, 1)->address;
  EXPECT_TRUE(ReturnAll()) << "the one that was used is linked";
  ASSERT_EQ(servers_[0]->returned.size(), 1u);
  EXPECT_EQ(servers_[0]->returned[0].offset, used.offset() + kNodeBytes);
  EXPECT_EQ(servers_[0]->returned[0].bytes, 3 * kNodeBytes);
  ASSERT_EQ(servers_[1]->returned.size(), 1u);
  EXPECT_EQ(servers_[1]->returned[0].bytes, kChunkBytes);
  EXPECT_FALSE(allocator_.TryTake(kTree, 1).has_value());
  EXPECT_TRUE(ReturnAll());
  EXPECT_EQ(servers_[0]->returned.size(), 1u) << "once";
}

TEST_F(NodeAllocatorTest, ARecycledNodeComesWithItsOldImageAndGetsTheLifeOfItsGrant) {
  Start({1});
  const NodeLayout layout = *NodeLayout::Create(8, 8);
  alignas(64) std::byte image[kNodeBytes] = {};
  NodeHeader header;
  header.tree_id = kTree;
  header.life = 41;
  WriteHeader(image, layout, header);
  for (int i = 0; i < 5; ++i) SealNodeLevel(image, image, layout, false);
  std::byte* const memory = world_.Memory(1).main.data();
  for (int node = 0; node < 3; ++node) {
    std::memcpy(memory + 65536 + node * kNodeBytes, image, kNodeBytes);
  }
  servers_[0]->recycled = {{65536, 2 * kNodeBytes, 1, 43},
                           {65536 + 2 * kNodeBytes, kNodeBytes, 1, 44}};
  ASSERT_TRUE(Refill().ok());
  std::set<uint64_t> seen;
  for (int i = 0; i < 3; ++i) {
    auto spare = allocator_.TryTake(kTree, 1);
    ASSERT_TRUE(spare.has_value());
    EXPECT_TRUE(seen.insert(spare->address.offset()).second);
    const uint32_t life = spare->address.offset() < 65536 + 2 * kNodeBytes ? 43 : 44;
    EXPECT_EQ(spare->life, life);
    EXPECT_EQ(spare->reference(), (Reference{spare->address, life}));
    EXPECT_EQ(std::memcmp(spare->OldImage(nullptr), image, kNodeBytes), 0);
    if (i == 0) {  // with its image
      seen.clear();
      allocator_.PutBack(kTree, *std::move(spare));
      spare = allocator_.TryTake(kTree, 1);
      EXPECT_GE(spare->life, 43u);
      seen.insert(spare->address.offset());
    }
  }
  EXPECT_FALSE(allocator_.TryTake(kTree, 1).has_value());
  const std::byte zero[1] = {};
  EXPECT_EQ(SpareNode{}.OldImage(zero), zero);
}

// Rule R5: it may be somebody's.
TEST_F(NodeAllocatorTest, ANodeThatHasHadTheLifeOfItsGrantIsNotUsed) {
  Start({0});
  NodeHeader header;
  header.tree_id = kTree;
  header.life = 41;
  WriteHeader(world_.Memory(1).main.data() + 65536, *NodeLayout::Create(8, 8), header);
  servers_[0]->recycled = {{65536, kNodeBytes, 1, 41}};
  EXPECT_TRUE(absl::IsDataLoss(Refill()));
  EXPECT_FALSE(allocator_.TryTake(kTree, 1).has_value());
  EXPECT_FALSE(ReturnAll()) << "nobody knows what became of it";
}

TEST_F(NodeAllocatorTest, FreedNodesGoBackInBatches) {
  Start({10, 10}, uint64_t{64} << 20);
  for (uint32_t i = 0; i < kNodesPerRequestMax - 1; ++i) {
    allocator_.Free(kTree, {RemoteAddress(1 + i % 2, 65536 + i * kNodeBytes), i + 1});
  }
  FlushIfMany();
  EXPECT_EQ(servers_[0]->free_calls, 0) << "not many yet";
  allocator_.Free(kTree, {RemoteAddress(2, 4096), 9});
  FlushIfMany();
  EXPECT_EQ(servers_[0]->free_calls, 1);
  EXPECT_EQ(servers_[1]->free_calls, 1);
  EXPECT_EQ(servers_[0]->freed.size() + servers_[1]->freed.size(), kNodesPerRequestMax);
  EXPECT_EQ(servers_[0]->freed[0], (NodeLife{65536, 1}));
  // One alone goes with the next request for nodes, or when the tree is closed.
  allocator_.Free(kTree, {RemoteAddress(1, 4096), 1});
  ASSERT_TRUE(Refill().ok());
  EXPECT_EQ(servers_[0]->free_calls, 2);
  allocator_.Free(kTree, {RemoteAddress(1, 8192), 1});
  EXPECT_TRUE(ReturnAll());
  EXPECT_EQ(servers_[0]->free_calls, 3);
}

TEST_F(NodeAllocatorTest, WhatCannotBeSaidLeavesTheTreeUnsettled) {
  Start({10});
  allocator_.Free(kTree, {RemoteAddress(1, 4096), 1});
  servers_[0]->refuses = true;
  EXPECT_FALSE(ReturnAll()) << "a free that nobody took";
  servers_[0]->refuses = false;
  EXPECT_TRUE(ReturnAll());
  ASSERT_TRUE(Refill().ok());
  servers_[0]->refuses = true;
  EXPECT_FALSE(ReturnAll()) << "spare nodes that nobody took back";
  servers_[0]->refuses = false;
  allocator_.NoteUncertain(kTree);
  const ServerDoubts doubts = DoubtsAtClose();
  EXPECT_TRUE(doubts.Has(1) && doubts.Has(2)) << "a node that may be linked, anywhere";
  EXPECT_TRUE(ReturnAll());
}

TEST_F(NodeAllocatorTest, WhoRefusesAFreeGetsSpareNodesBackAllTheSame) {
  Start({10});
  ASSERT_TRUE(Refill().ok());
  allocator_.Free(kTree, {RemoteAddress(1, 65536), 1});
  servers_[0]->refuses_frees = true;
  EXPECT_FALSE(ReturnAll());
  ASSERT_EQ(servers_[0]->returned.size(), 1u);
  EXPECT_EQ(servers_[0]->returned[0].bytes, kChunkBytes);
}

TEST_F(NodeAllocatorTest, AFreeThatFailsIsSaidAgain) {
  Start({10});
  allocator_.Free(kTree, {RemoteAddress(1, 4096), 1});
  servers_[0]->refuses = true;
  EXPECT_FALSE(Refill().ok());
  servers_[0]->refuses = false;
  EXPECT_TRUE(ReturnAll());
  EXPECT_EQ(servers_[0]->freed, std::vector<NodeLife>({{4096, 1}}));
}

TEST_F(NodeAllocatorTest, TellsOnceThatOrphansWait) {
  Start({10});
  EXPECT_FALSE(allocator_.TakeOrphanHint(kTree));
  servers_[0]->orphans = 3;
  ASSERT_TRUE(Refill().ok());
  EXPECT_TRUE(allocator_.TakeOrphanHint(kTree));
  EXPECT_FALSE(allocator_.TakeOrphanHint(kTree));
}

TEST_F(NodeAllocatorTest, ARequestThatFailedMayHaveBeenGranted) {
  Start({3});
  servers_[0]->malformed = true;
  EXPECT_TRUE(absl::IsDataLoss(Refill()));
  servers_[0]->malformed = false;
  EXPECT_FALSE(ReturnAll());
}

// --- A server that starts again (rules R7, R8).

class RestartTest : public NodeAllocatorTest {
 protected:
  RestartTest() { Start({10}); }
  void Start(const std::vector<uint64_t>& chunks) {
    NodeAllocatorTest::Start(chunks);
    members_.Publish(1, kFirstLife, 0);
    session_->set_membership(&members_);
    growing_.AddServer(1, servers_[0]->FreeBytes(), kFirstLife);
  }
  // As a client does it whose trees have nothing there.
  void StartAgain() {
    growing_.NoteGone(1);
    members_.Publish(1, kFirstLife + 1, 0);
    growing_.AddServer(1, servers_[0]->FreeBytes(), kFirstLife + 1);
  }
  absl::Status Refill() {
    absl::Status status;
    Spawn([&](OperationContext& context) {
      status = growing_.Refill(context, kTree, kNodeBytes, 1);
    });
    session_->scheduler().Drain();
    return status;
  }
  bool ReturnAll() {
    bool settled = false;
    Spawn([&](OperationContext& context) { settled = growing_.ReturnAll(context, kTree).empty(); });
    session_->scheduler().Drain();
    return settled;
  }

  static constexpr uint64_t kFirstLife = 7;
  Membership members_;
  std::function<void()> on_grow_;
  std::vector<uint64_t> grown_;
  NodeAllocator growing_{&control_, {}, [this](OperationContext&, const TreeGrowth& growth) {
                           grown_.push_back(growth.on.life);
                           if (on_grow_) on_grow_();
                           return absl::OkStatus();
                         }};
};

TEST_F(RestartTest, NodesOfAnEarlierLifeAreHandedToNobody) {
  on_grow_ = [this] { StartAgain(); };
  EXPECT_TRUE(absl::IsUnavailable(Refill()));
  EXPECT_FALSE(growing_.TryTake(kTree, 1).has_value()) << "somebody else has them by now";
  on_grow_ = nullptr;
  EXPECT_TRUE(Refill().ok());
  EXPECT_TRUE(growing_.TryTake(kTree, 1).has_value());
  EXPECT_EQ(grown_, (std::vector<uint64_t>{kFirstLife, kFirstLife + 1}));
}

TEST_F(RestartTest, NoTreeGrowsOntoALifeThatIsOver) {
  servers_[0]->on_request = [this] { StartAgain(); };
  EXPECT_TRUE(absl::IsUnavailable(Refill()));
  EXPECT_TRUE(grown_.empty()) << "everybody would take the tree for lost";
  EXPECT_FALSE(growing_.TryTake(kTree, 1).has_value());
}

// The next life knows nothing of the tree, and would say that its client has not opened it.
TEST_F(RestartTest, ALostTreeAsksNobodyForNodes) {
  TreeFate fate;
  int asked = 0;
  servers_[0]->on_request = [&] { ++asked; };
  absl::Status status;
  Spawn([&](OperationContext& context) {
    context.fate = &fate;
    StartAgain();
    fate.Lose(absl::DataLossError("its nodes are gone"));
    status = growing_.Refill(context, kTree, kNodeBytes, 1);
  });
  session_->scheduler().Drain();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(asked, 0);
}

// Nobody adds a life again that was taken for dead.
TEST_F(RestartTest, WhatWasSentToAnEndedLifeSaysNothingOfTheNextOne) {
  world_.PauseCalls(1, true);
  world_.At(session_->NowNs() + 50 * kMillisecondNs, [this] {
    world_.KillServer(1);
    StartAgain();
  });
  const absl::Status sent = Refill();
  EXPECT_TRUE(absl::IsUnavailable(sent)) << sent;
  growing_.PutBack(kTree, {.address = RemoteAddress(1, 4096), .life = 1});
  EXPECT_TRUE(growing_.TryTake(kTree, 1).has_value()) << "its next life is there";
  growing_.NoteFailure(1, kFirstLife + 1, absl::UnavailableError("gone"));
  growing_.PutBack(kTree, {.address = RemoteAddress(1, 4096), .life = 1});
  EXPECT_FALSE(growing_.TryTake(kTree, 1).has_value());
}

TEST_F(RestartTest, WhatAnEndedLifeHasFreeSaysNothingOfTheNextOne) {
  const auto free = [this](uint64_t offset) {
    growing_.Free(kTree, {RemoteAddress(1, offset), 1});
    Spawn([this](OperationContext& context) { growing_.FlushIfMany(context, kTree); });
    session_->scheduler().Drain();
    return servers_[0]->free_calls;
  };
  servers_[0]->on_free = [this] {
    servers_[0]->free_elsewhere = uint64_t{64} << 20;
    StartAgain();
    servers_[0]->free_elsewhere = 0;
  };
  EXPECT_EQ(free(4096), 1) << "memory is scarce there";
  EXPECT_EQ(free(8192), 1) << "and not on its next life";
}

TEST_F(RestartTest, AnEndedLifeThatDidNotAnswerDoesNotMakeTheNextOneSilent) {
  const auto free = [this](uint64_t offset) {
    growing_.Free(kTree, {RemoteAddress(1, offset), 1});
    Spawn([this](OperationContext& context) { growing_.Flush(context, kTree); });
    session_->scheduler().Drain();
  };
  world_.PauseCalls(1, true);
  world_.At(session_->NowNs() + 50 * kMillisecondNs, [this] { StartAgain(); });
  free(4096);
  world_.PauseCalls(1, false);
  const int before = servers_[0]->free_calls;
  free(8192);
  EXPECT_GT(servers_[0]->free_calls, before);
}

// It is there before the request, and nobody here knows of it until the request is sent.
TEST_F(RestartTest, WhatANextLifeHasGrantedToAnEarlierOnesRequestIsNotTakenForLinked) {
  servers_[0]->on_request = [this] { StartAgain(); };
  EXPECT_TRUE(absl::IsUnavailable(Refill()));
  EXPECT_TRUE(servers_[0]->returned.empty());
  EXPECT_FALSE(ReturnAll()) << "the server would settle what is neither linked nor given back";
}

TEST_F(RestartTest, NorOfATreeThatHasGrownOntoTheEarlierOne) {
  growing_.NoteGrown(kTree, {{.server = 1, .life = kFirstLife}});
  servers_[0]->on_request = [this] { StartAgain(); };
  EXPECT_TRUE(absl::IsUnavailable(Refill()));
  EXPECT_TRUE(servers_[0]->returned.empty());
  EXPECT_FALSE(ReturnAll());
}

}  // namespace
}  // namespace pando
