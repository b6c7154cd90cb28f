// A living compute server that is not heard of any more: rules C1 and C2, seen from outside.
#include <gtest/gtest.h>

#include <vector>

#include "memory/server_test_util.h"

namespace pando::memory {
namespace {

constexpr int64_t kLeaseNs = 100 * kMillisecondNs;

class LeaseTest : public TwoClientsTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(Start({.lease_ns = kLeaseNs, .fence = &fence_}));
    Tick();
  }
  // What the fabric does after each call.
  int64_t Tick() { return server_->OnTimer(clock_.NowNs()); }
  // Bert pings, Anna does not.
  void LetAnnaRunOut() {
    for (int i = 0; i < 6; ++i) {
      clock_.now_ns += kLeaseNs / 4;
      ASSERT_TRUE(bert_->Call(ControlOpcode::kPing).ok());
      Tick();
    }
  }

  RecordingFence fence_;
};

TEST_F(LeaseTest, TheSilentOneIsCutOffAndDeadOnlyWhenNothingOfItIsInFlight) {
  memory_.lock_words()[300] = WordOf(anna_->id);
  LetAnnaRunOut();
  EXPECT_EQ(fence_.peers, std::vector<PeerId>{1});
  EXPECT_EQ(bert_->StateOf(anna_->id), ClientLiveness::kJoined) << "a WRITE may be on its way";
  EXPECT_EQ(memory_.lock_words()[300], WordOf(anna_->id));
  server_->OnPeerGone(1);
  EXPECT_EQ(bert_->StateOf(anna_->id), ClientLiveness::kDead);
  EXPECT_EQ(memory_.lock_words()[300], 0u);
  LetAnnaRunOut();
  EXPECT_EQ(fence_.peers.size(), 1u) << "once";
}

TEST_F(LeaseTest, APeerIsGoneOnceItsConnectionIs) {
  const auto peers_gone = [&] { return CounterOf(*server_, "peers_gone"); };
  LetAnnaRunOut();
  server_->OnPeerGone(1);  // nothing of it is in flight any more
  EXPECT_EQ(peers_gone(), 0u);
  server_->OnPeerGone(1);
  EXPECT_EQ(peers_gone(), 1u);
  server_->OnPeerGone(2);
  EXPECT_EQ(peers_gone(), 2u) << "was not cut off";
}

TEST_F(LeaseTest, TheFencedIsToldAndComesBackOnlyOverAnotherConnection) {
  LetAnnaRunOut();
  for (const bool gone : {false, true}) {
    if (gone) server_->OnPeerGone(1);
    const absl::Status ping = anna_->Call(ControlOpcode::kPing).status();
    EXPECT_EQ(ping.code(), absl::StatusCode::kFailedPrecondition) << ping;
    EXPECT_EQ(anna_->CreateTree("a").status().code(), absl::StatusCode::kFailedPrecondition);
    TestClient same_connection(server_.get(), 1);
    same_connection.sequence = anna_->sequence + 100;
    EXPECT_EQ(same_connection.Join().code(), absl::StatusCode::kFailedPrecondition);
  }
  TestClient again(server_.get(), 3);
  ASSERT_TRUE(again.Join().ok());
  EXPECT_GT(again.id.incarnation, anna_->id.incarnation);
  EXPECT_TRUE(again.Call(ControlOpcode::kPing).ok());
}

TEST_F(LeaseTest, AServerThatWasAsleepCutsNobodyOff) {
  clock_.now_ns += 10 * kLeaseNs;
  Tick();
  EXPECT_TRUE(fence_.peers.empty());
  EXPECT_TRUE(anna_->Call(ControlOpcode::kPing).ok());
}

TEST_F(LeaseTest, AskingForItsTurnKeepsTheTimerGoing) {
  EXPECT_LE(Tick(), clock_.NowNs() + kLeaseNs / 4);
  ASSERT_TRUE(anna_->Call(ControlOpcode::kLeave).ok());
  ASSERT_TRUE(bert_->Call(ControlOpcode::kLeave).ok());
  EXPECT_EQ(Tick(), kNeverNs);
}

TEST_F(LeaseTest, ALeaseNeedsAFabricThatCanFence) {
  PlainMemory memory;
  EXPECT_EQ(MemoryServer::Create(memory.memory(), {.lease_ns = kLeaseNs}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      MemoryServer::Create(memory.memory(), {.lease_ns = -1, .fence = &fence_}).status().code(),
      absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace pando::memory
