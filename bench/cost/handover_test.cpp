// Rule L5: where a chain of the holder may still be in flight, its lock is handed to nobody. A
// handover posts nothing, so it would succeed, and the next holder would trust the node.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "bench/cost/sim_cluster.h"
#include "common/wire/line.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_image.h"
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
  TreeContext& context() { return tree_->impl().context(); }
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

}  // namespace
}  // namespace pando
