// NodeAllocator where answers come too late for who asked, or not at all.
#include <gtest/gtest.h>

#include "compute/core/node_allocator_test_util.h"

namespace pando {
namespace {

TEST_F(NodeAllocatorTest, WhatIsGrantedTooLateGoesToTheNextCaller) {
  Start({1});
  // The request arrives, and the answer does not find its caller.
  EXPECT_TRUE(absl::IsDeadlineExceeded(Refill(1, 41 * kMicrosecondNs)));
  ASSERT_EQ(servers_[0]->requests, 1);
  SleepFor(kSecondNs);
  ASSERT_EQ(servers_[0]->FreeBytes(), 0u) << "it was granted";
  EXPECT_TRUE(Refill().ok());
  EXPECT_EQ(servers_[0]->requests, 1);
  int taken = 0;
  while (allocator_.TryTake(kTree, 1).has_value()) ++taken;
  EXPECT_EQ(taken, 4);
  EXPECT_TRUE(absl::IsResourceExhausted(Refill()));
  EXPECT_FALSE(DoubtsAtClose().Has(1)) << "nothing of it is left";
}

TEST_F(NodeAllocatorTest, AServerThatGoesBeforeItsLateAnswerIsKnownIsInDoubt) {
  Start({10, 2});
  EXPECT_TRUE(absl::IsDeadlineExceeded(Refill(1, 41 * kMicrosecondNs)));
  allocator_.NoteGone(1);
  const ServerDoubts doubts = DoubtsAtClose();
  EXPECT_TRUE(doubts.Has(1));
  EXPECT_FALSE(doubts.Has(2));
}

TEST_F(NodeAllocatorTest, AServerThatIsAskedInVainForALateAnswerIsInDoubt) {
  Start({10, 2});
  EXPECT_TRUE(absl::IsDeadlineExceeded(Refill(1, 41 * kMicrosecondNs)));
  world_.KillServer(1);
  EXPECT_TRUE(Refill().ok());
  const ServerDoubts doubts = DoubtsAtClose();
  EXPECT_TRUE(doubts.Has(1));
  EXPECT_FALSE(doubts.Has(2));
}

// What a server keeps is not crowded out by what others are asked.
TEST_F(NodeAllocatorTest, WhatIsGrantedTooLateWaitsWhileOthersAreAsked) {
  Start({10, 20});
  const auto free_on = [this](ServerId server, uint32_t i) {
    allocator_.Free(kTree, {RemoteAddress(server, (uint64_t{1} << 20) + i * kNodeBytes), 1});
    Spawn([this](OperationContext& context) { allocator_.Flush(context, kTree); });
    session_->scheduler().Drain();
  };
  EXPECT_TRUE(absl::IsDeadlineExceeded(Refill(2, 41 * kMicrosecondNs)));
  ASSERT_EQ(servers_[1]->requests, 1);
  for (uint32_t i = 0; i < kRepliesKept; ++i) free_on(1, i);
  EXPECT_TRUE(Refill(2).ok());
  EXPECT_EQ(servers_[1]->requests, 1) << "it says again what it has said";
  EXPECT_FALSE(DoubtsAtClose().Has(2));
}

// It may be asked again long after: servers keep some replies only.
TEST_F(NodeAllocatorTest, WhatIsGrantedTooLateIsNotGrantedTwice) {
  Start({10});
  EXPECT_TRUE(absl::IsDeadlineExceeded(Refill(1, 41 * kMicrosecondNs)));
  ASSERT_EQ(servers_[0]->requests, 1);
  for (uint32_t i = 0; i < kRepliesKept; ++i) {
    allocator_.Free(kTree, {RemoteAddress(1, (uint64_t{1} << 20) + i * kNodeBytes), 1});
    Spawn([this](OperationContext& context) { allocator_.Flush(context, kTree); });
    session_->scheduler().Drain();
  }
  EXPECT_EQ(servers_[0]->behind, 0u) << "all servers keep their replies for as long";
  EXPECT_TRUE(Refill().ok());
  EXPECT_EQ(servers_[0]->requests, 2) << "it is asked for other nodes";
  EXPECT_TRUE(DoubtsAtClose().Has(1)) << "nobody knows of the first ones";
}

// A thread that stood still while the others went on sends its request again: servers keep some
// replies only, and what has been granted twice nobody would know of.
TEST_F(NodeAllocatorTest, ARequestIsNotRepeatedOnceItsReplyMayBeForgotten) {
  Start({10});
  for (const uint32_t others : {10u, ControlChannel::kRepeatWithin + 10}) {
    world_.PauseCalls(1, true);
    world_.At(session_->NowNs() + 100 * kMillisecondNs, [this] { world_.PauseCalls(1, false); });
    const std::string request =
        EncodeNodeRequest({.tree_id = kTree, .node_bytes = kNodeBytes, .nodes_max = 1});
    absl::Status answered = absl::UnknownError("not yet");
    Spawn([&](OperationContext& context) {
      uint32_t number = 0;
      answered =
          control_.Call(context, 1, ControlOpcode::kAllocateNodes, request, &number).status();
    });
    Spawn([&](OperationContext& context) {
      for (uint32_t i = 0; i < others; ++i) {
        OperationContext brief(context, context.session.NowNs() + kMicrosecondNs);
        (void)control_.Call(brief, 1, ControlOpcode::kFreeNodes, "");
      }
    });
    session_->scheduler().Drain();
    if (others < ControlChannel::kRepeatWithin) {
      EXPECT_TRUE(answered.ok()) << answered;
    } else {
      EXPECT_TRUE(absl::IsDeadlineExceeded(answered)) << answered;
    }
    EXPECT_EQ(servers_[0]->requests, 1) << "that of the first round";
  }
}

TEST_F(NodeAllocatorTest, NoReplyOfAServerThatIsGoneIsWaitedFor) {
  Start({10, 2});
  world_.CutLink(*fabric_, 1, true);
  world_.At(session_->NowNs() + 50 * kMillisecondNs, [this] { allocator_.NoteGone(1); });
  ASSERT_TRUE(Refill().ok());
  ASSERT_TRUE(Refill().ok());
  EXPECT_EQ(servers_[1]->behind, 0u) << "servers keep what they answered for as long";
  EXPECT_TRUE(DoubtsAtClose().Has(1)) << "it may have handed out nodes, and live all the same";
}

TEST_F(NodeAllocatorTest, ARefusalThatComesTooLateIsNotBelieved) {
  Start({0});
  EXPECT_TRUE(absl::IsDeadlineExceeded(Refill(1, 41 * kMicrosecondNs)));
  ASSERT_EQ(servers_[0]->requests, 1);
  servers_[0]->rested_ns = session_->NowNs() + kMillisecondNs;
  EXPECT_TRUE(Refill().ok());
}

TEST_F(NodeAllocatorTest, AServerThatDoesNotAnswerMayHaveHandedOutNodes) {
  Start({100, 10});
  world_.CutLink(*fabric_, 1, true);
  const int64_t start_ns = session_->NowNs();
  ASSERT_TRUE(Refill().ok());
  EXPECT_EQ(allocator_.TryTake(kTree, 1)->address.server(), 2);
  EXPECT_LT(session_->NowNs() - start_ns, kSecondNs);
  world_.CutLink(*fabric_, 1, false);
  const ServerDoubts doubts = DoubtsAtClose();
  EXPECT_TRUE(doubts.Has(1));
  EXPECT_FALSE(doubts.Has(2)) << "it has nothing to do with that";
}

TEST_F(NodeAllocatorTest, AServerThatDoesNotAnswerIsAloneInDoubtWhenATreeIsClosed) {
  Start({1, 1, 1, 1});
  const NodePoolId cells(kTree, kNodeBytes / kLineBytes);
  for (const ServerId server : {1, 2, 3, 4}) {
    ASSERT_TRUE(Refill(server).ok());
    allocator_.Free(cells, {RemoteAddress(server, 4096), 1});
  }
  for (const ServerId server : {1, 2}) world_.CutLink(*fabric_, server, true);
  const int64_t start_ns = session_->NowNs();
  world_.At(start_ns + 4 * kSecondNs, [this] { world_.CutLink(*fabric_, 2, false); });
  const ServerDoubts doubts = DoubtsAtClose();
  EXPECT_TRUE(doubts.Has(1));
  for (const ServerId server : {2, 3, 4}) {
    EXPECT_FALSE(doubts.Has(server)) << server;
    EXPECT_EQ(servers_[server - 1u]->returned.size(), 1u) << server;
    EXPECT_EQ(servers_[server - 1u]->freed.size(), 1u) << server;
  }
  EXPECT_LT(session_->NowNs() - start_ns, 6 * kSecondNs) << "the tree is to be detached as well";
}

// What was returned twice would be taken from who was granted it in between.
TEST_F(NodeAllocatorTest, AReturnIsNotRepeatedOnceItsReplyMayBeForgotten) {
  Start({1});
  ASSERT_TRUE(Refill(1).ok());
  world_.PauseCalls(1, true);
  world_.At(session_->NowNs() + 100 * kMillisecondNs, [this] { world_.PauseCalls(1, false); });
  Spawn([&](OperationContext& context) {
    for (uint32_t i = 0; i < ControlChannel::kRepeatWithin + 10; ++i) {
      OperationContext brief(context, context.session.NowNs() + kMicrosecondNs);
      (void)control_.Call(brief, 1, ControlOpcode::kFreeNodes, "");
    }
  });
  EXPECT_TRUE(DoubtsAtClose().Has(1));
  EXPECT_EQ(servers_[0]->returned.size(), 0u);
}

}  // namespace
}  // namespace pando
