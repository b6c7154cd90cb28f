// Rule L5: where a chain of the holder may still be in flight, its lock is handed to nobody. A
// handover posts nothing, so it would succeed, and the next holder would trust the node.
// Rule V5: nor does it answer from the image that came with it unless it still holds the lock.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "common/base/clock.h"
#include "common/wire/line.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_image.h"
#include "compute/client/access.h"
#include "compute/client/tree_impl.h"

namespace pando {
namespace {

class HandoverTest : public testing::Test {
 protected:
  // A tree of one leaf, on server 1.
  void SetUp() override {
    for (uint64_t n = 0; n < kKeys; ++n) {
      ASSERT_TRUE(session_->Put(*tree_, KeyOf(n), "v").ok());
    }
    ASSERT_EQ(context().root.Load(&leaf_), 0) << "the root is no leaf any more";
    ASSERT_EQ(leaf_.address.server(), 1);
  }
  TreeContext& context() { return ImplOf(*tree_).context(); }
  std::byte* Image() { return cluster_.At(leaf_.address); }
  bool IsLocked() { return cluster_.LockWordAt(*context().NodeLock(leaf_)) != LockWord::kFree; }
  // Two updates of the leaf: when the first has its lock, the second waits for that. `under_lock`
  // is called then.
  template <typename Job>
  void UpdateTwice(absl::StatusCode expected, Job under_lock) {
    for (uint64_t n = 0; n < 2; ++n) {
      session_->Spawn([this, n, expected] {
        const absl::Status updated = session_->Update(*tree_, KeyOf(n), "w");
        EXPECT_EQ(updated.code(), expected) << updated;
      });
    }
    while (!IsLocked()) ASSERT_TRUE(cluster_.world().Step());
    under_lock();
    session_->Run();
  }
  // The server cuts the client off: what the holder does about the node may be in flight for ever.
  void CutOffUnderTheLock() {
    UpdateTwice(absl::StatusCode::kUnavailable, [this] { cluster_.world().Fence(1)->CutOff(1); });
  }
  // Three updates of a key that is not there; their outcomes. The compute server is stopped when
  // the first has read the leaf; meanwhile `when_stopped` is called.
  template <typename Job>
  std::vector<absl::StatusCode> StopWhileMissing(const ClientOptions& options, Job when_stopped) {
    const std::shared_ptr<Fabric> fabric = cluster_.world().NewFabric();
    auto client = *ConnectOverFabric(options, fabric);  // peer 2 of the servers
    auto tree = *client->OpenTree("t");
    auto session = *client->NewSession();
    EXPECT_TRUE(session->Get(*tree, KeyOf(0)).ok());  // the root is known
    std::vector<absl::StatusCode> outcomes(3);
    for (absl::StatusCode& outcome : outcomes) {
      session->Spawn([&] { outcome = session->Update(*tree, KeyOf(kKeys), "w").code(); });
    }
    while (!IsLocked()) EXPECT_TRUE(cluster_.world().Step());
    cluster_.world().PauseFabric(*fabric);
    const auto run = [&] {
      cluster_.world().RunUntil(cluster_.world().clock().NowNs() + kMillisecondNs);
    };
    run();
    when_stopped();
    run();
    cluster_.world().ResumeFabric(*fabric);
    session->Run();
    stopped_handovers_ = client->Stats().tree.handovers;
    return outcomes;
  }
  uint64_t Handovers() { return client_->Stats().tree.handovers; }
  static ClientOptions WithoutCombining() {
    ClientOptions options;
    options.techniques.operation_combining = false;
    return options;
  }

  static constexpr uint64_t kKeys = 4;
  SimCluster cluster_{{.sim = {.mode = sim::DeliveryMode::kWhole}}};
  std::unique_ptr<Client> client_ =
      cluster_.NewClient(WithoutCombining());  // peer 1 of the servers
  std::unique_ptr<Tree> tree_ = *client_->CreateTree("t", {});
  std::unique_ptr<Session> session_ = *client_->NewSession();
  Reference leaf_;
  uint64_t stopped_handovers_ = 0;
};

TEST_F(HandoverTest, OfASoundNode) {
  UpdateTwice(absl::StatusCode::kOk, [] {});
  EXPECT_EQ(Handovers(), 1u);
}

TEST_F(HandoverTest, NotAfterARepairThatFailed) {
  std::byte* const line = Image() + (context().layout.lines() - 1) * kLineBytes;
  wire::SealLine(line, wire::FrontEv(line), static_cast<uint16_t>(wire::Nv(line) + 1),
                 /*crc=*/false);
  CutOffUnderTheLock();
  EXPECT_EQ(Handovers(), 0u);
}

TEST_F(HandoverTest, NotAfterAnAbsorbingThatCouldNotBeFinished) {
  const Reference absorbed{RemoteAddress(1, leaf_.address.offset() + context().layout.node_bytes()),
                           1};
  SetMarker(Image(), NodeState::kLive, absorbed);
  SealEntryLevel(Image(), 0, 1, /*crc=*/false);
  CutOffUnderTheLock();
  EXPECT_EQ(Handovers(), 0u);
}

using absl::StatusCode;

TEST_F(HandoverTest, WhatIsMissingIsMissingForWaiters) {
  EXPECT_EQ(StopWhileMissing(WithoutCombining(), [] {}),
            std::vector<StatusCode>(3, StatusCode::kNotFound));
  EXPECT_EQ(stopped_handovers_, 2u);
}

TEST_F(HandoverTest, WhoHasBeenFencedDoesNotAnswerFromAHandedOverImage) {
  // The first one's own READ says so; those after it would repeat what somebody may have changed.
  EXPECT_EQ(StopWhileMissing(WithoutCombining(), [this] { cluster_.world().Fence(1)->CutOff(2); }),
            (std::vector<StatusCode>{StatusCode::kNotFound, StatusCode::kUnavailable,
                                     StatusCode::kUnavailable}));
  EXPECT_EQ(stopped_handovers_, 1u);
}

TEST_F(HandoverTest, WhoseWordIsTakenAwayDoesNotAnswerFromAHandedOverImage) {
  // As if a memory server freed the words of the dead before it cut them off: READs still succeed.
  constexpr LockWord kOthers{9, 9, LockWord::kExclusive};
  const LockTarget lock = *context().NodeLock(leaf_);
  EXPECT_EQ(
      StopWhileMissing(WithoutCombining(), [&] { cluster_.SetLockWord(lock, kOthers.Encode()); }),
      (std::vector<StatusCode>{StatusCode::kNotFound, StatusCode::kFailedPrecondition,
                               StatusCode::kFailedPrecondition}));
  EXPECT_EQ(stopped_handovers_, 1u);
  EXPECT_EQ(cluster_.LockWordAt(lock), kOthers.Encode()) << "the other's lock was freed";
  cluster_.SetLockWord(lock, LockWord::kFree);
}

TEST_F(HandoverTest, WhatIsMissingIsMissingForCombinedOnes) {
  EXPECT_EQ(StopWhileMissing({}, [] {}), std::vector<StatusCode>(3, StatusCode::kNotFound));
  EXPECT_EQ(stopped_handovers_, 0u);  // one batch
}

TEST_F(HandoverTest, WhoHasBeenFencedDoesNotCombine) {
  EXPECT_EQ(StopWhileMissing({}, [this] { cluster_.world().Fence(1)->CutOff(2); }),
            std::vector<StatusCode>(3, StatusCode::kUnavailable));
}

}  // namespace
}  // namespace pando
