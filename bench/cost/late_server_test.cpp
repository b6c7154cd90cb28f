// Who holds a node's lock, or the root record's, needs a node on a memory server that has come
// since its client connected: it waits for the server under no lock, and goes on then (rule L2).
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "bench/cost/sim_cluster.h"
#include "common/base/clock.h"
#include "common/wire/internal_node.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_image.h"
#include "common/wire/root_record.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/index/descend.h"
#include "compute/index/held_node.h"
#include "compute/index/operations.h"

namespace pando {
namespace {

class LateServerTest : public testing::Test {
 protected:
  static constexpr uint64_t kKeys = 50;
  static constexpr int64_t kComesNs = 200 * kMillisecondNs;

  // A root and two leaves, on the server that the client knows. The other one has come since.
  void SetUp() override {
    for (uint64_t n = 0; n < kKeys; ++n) ASSERT_TRUE(session_->Put(*tree_, KeyOf(n), "v").ok());
    ASSERT_EQ(context().root.Load(&root_), 1);
    ASSERT_TRUE(DecodeInternal(cluster_.At(root_.address), layout(), &root_node_).ok());
    ASSERT_EQ(root_node_.entries.size(), 1u);
    left_ = root_node_.header.leftmost;
    right_ = root_node_.entries[0].child;
    late_ = cluster_.StartOneMore();
  }
  TreeContext& context() { return ImplOf(*tree_).context(); }
  const NodeLayout& layout() { return context().layout; }

  NodeHeader HeaderOf(const Reference& node) {
    return ReadHeader(cluster_.At(node.address), layout());
  }
  void SetHeader(const Reference& node, const NodeHeader& header) {
    std::byte* const image = cluster_.At(node.address);
    WriteHeader(image, layout(), header);
    SealNodeLevel(image, image, layout(), context().environment.crc);
  }
  void WriteRoot() {
    std::byte* const image = cluster_.At(root_.address);
    EncodeInternal(root_node_, layout(), image, context().environment.crc, image);
  }
  // To the late server. Who leads there is not told.
  void Move(Reference* node) {
    const Reference moved = {RemoteAddress(late_, 1 << 20), node->life};
    std::memcpy(cluster_.At(moved.address), cluster_.At(node->address), layout().node_bytes());
    std::memset(cluster_.At(node->address), 0, layout().node_bytes());
    *node = moved;
  }
  void MoveLeft() {
    Move(&left_);
    root_node_.header.leftmost = left_;
    WriteRoot();
  }
  void MoveRight() {
    Move(&right_);
    root_node_.entries[0].child = right_;
    WriteRoot();
    NodeHeader header = HeaderOf(left_);
    header.right = right_;
    SetHeader(left_, header);
  }
  // The writer of the root dies after line 0.
  void TearRoot() {
    std::byte* const image = cluster_.At(root_.address);
    std::vector<std::byte> next(image, image + layout().node_bytes());
    EncodeInternal(root_node_, layout(), image, context().environment.crc, next.data());
    std::memcpy(image, next.data(), kLineBytes);
  }

  // The job waits until the server is taken up, and nobody waits for the lock meanwhile.
  void ExpectWaitsWithout(const LockTarget& lock,
                          absl::FunctionRef<absl::Status(OperationContext&)> job) {
    sim::SimWorld& world = cluster_.world();
    Membership* const members = ImplOf(*session_).context().membership();
    members->StartLooking();
    const int64_t begun_ns = world.clock().NowNs();
    std::optional<uint64_t> word;
    absl::Status added;
    world.At(begun_ns + kComesNs / 2, [&] { word = cluster_.LockWordAt(lock); });
    world.At(begun_ns + kComesNs, [&] {
      added = ImplOf(*client_).AddMember({.id = late_});
      members->EndLook();
    });
    const absl::Status done = ImplOf(*session_).Perform(*tree_, {}, job);
    members->StopLooking();
    EXPECT_TRUE(added.ok()) << added;
    EXPECT_TRUE(done.ok()) << done;
    EXPECT_GE(world.clock().NowNs() - begun_ns, kComesNs) << "nobody had to wait";
    ASSERT_TRUE(word.has_value());
    EXPECT_EQ(*word, LockWord::kFree) << "it is held while its holder waits";
    EXPECT_EQ(cluster_.LockWordAt(lock), LockWord::kFree);
  }
  // Holds the root, which is torn, as every change of it begins.
  absl::Status HoldRoot(OperationContext& operation) {
    PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                           operation.session.buffers().Lease(layout().node_bytes()));
    Descent descent(operation, context(), KeyOf(0), /*level=*/1);
    HeldNode held(operation, context(), image.buffer());
    while (true) {
      PANDO_ASSIGN_OR_RETURN(const HeldNode::Attempt attempt, held.Hold(descent));
      if (attempt == HeldNode::Attempt::kHeld) return held.ReleaseUnchanged();
    }
  }
  absl::Status Link(OperationContext& operation) {
    return InsertSeparator(operation, context(),
                           {.parent_level = 1, .separator = HeaderOf(right_).low, .child = right_});
  }
  // For a client that knows nothing of what was before.
  void ExpectKeys(uint64_t count) {
    const auto fresh = cluster_.NewClient();
    const auto tree = *fresh->OpenTree("t");
    const auto session = *fresh->NewSession();
    std::vector<KeyValue> rows;
    ASSERT_TRUE(session->Scan(*tree, "", SIZE_MAX, &rows).ok());
    ASSERT_EQ(rows.size(), count);
    for (uint64_t n = 0; n < count; ++n) EXPECT_EQ(rows[n].key, KeyOf(n));
    EXPECT_EQ(fresh->Stats().tree.moves_right, 0u);
  }

  SimCluster cluster_{{.sim = {.mode = sim::DeliveryMode::kWhole}, .memory_servers = 1}};
  std::unique_ptr<Client> client_ = cluster_.NewClient();
  std::unique_ptr<Tree> tree_ = *client_->CreateTree("t", {});
  std::unique_ptr<Session> session_ = *client_->NewSession();
  Reference root_, left_, right_;
  InternalNode root_node_;
  ServerId late_ = 0;
};

TEST_F(LateServerTest, ARepairThatNeedsItsLeftmostChild) {
  MoveLeft();
  TearRoot();
  ExpectWaitsWithout(*context().NodeLock(root_),
                     [&](auto& operation) { return HoldRoot(operation); });
  EXPECT_EQ(client_->Stats().tree.repairs, 1u);
  ExpectKeys(kKeys);
}

TEST_F(LateServerTest, ARepairThatNeedsAnotherChild) {
  MoveRight();
  TearRoot();
  ExpectWaitsWithout(*context().NodeLock(root_),
                     [&](auto& operation) { return HoldRoot(operation); });
  EXPECT_EQ(client_->Stats().tree.repairs, 1u);
  ExpectKeys(kKeys);
}

TEST_F(LateServerTest, ARootThatShrinks) {
  uint64_t kept = 0;
  while (KeyOf(kept) < root_node_.entries[0].key) ++kept;
  root_node_.entries.clear();
  NodeHeader header = HeaderOf(left_);
  header.right = {};
  header.high.clear();
  SetHeader(left_, header);
  MoveLeft();
  ExpectWaitsWithout(context().RootLock(), [&](auto& operation) {
    return ShrinkRoot(operation, context(), /*level=*/1);
  });
  EXPECT_EQ(client_->Stats().tree.root_shrinks, 1u);
  ExpectKeys(kept);
}

TEST_F(LateServerTest, AParentThatDoesNotKnowItsChild) {
  MoveRight();
  root_node_.entries.clear();
  WriteRoot();
  ExpectWaitsWithout(*context().NodeLock(root_), [&](auto& operation) { return Link(operation); });
  ExpectKeys(kKeys);
}

TEST_F(LateServerTest, ARootThatGrows) {
  MoveRight();
  const RootRecord record = {.tree_id = context().id(), .root = left_, .level = 0};
  std::byte* const line = cluster_.At(context().entry.root_record);
  EncodeRootRecord(record, line, context().environment.crc, line);
  context().root.Store(record);
  const uint64_t before = client_->Stats().tree.root_splits;
  ExpectWaitsWithout(context().RootLock(), [&](auto& operation) { return Link(operation); });
  EXPECT_EQ(client_->Stats().tree.root_splits, before + 1);
  ExpectKeys(kKeys);
}

// Nobody would ever tell it: it is not the server's client yet, and renews no lease there.
TEST(LateServerLeaseTest, WhoIsTakenForDeadWhileItTakesAServerUpLeaves) {
  constexpr int64_t kLeaseNs = 20 * kMillisecondNs, kLookNs = kMicrosecondNs;
  SimCluster cluster(
      {.sim = {.mode = sim::DeliveryMode::kWhole}, .memory_servers = 1, .lease_ns = kLeaseNs});
  sim::SimWorld& world = cluster.world();
  const auto client = cluster.NewClient();
  const auto tree = *client->CreateTree("t", {});
  const ServerId late = cluster.StartOneMore();
  const auto attaches = [&] {
    for (const auto& [name, value] : cluster.server(late - 1).Counters()) {
      if (name == "attaches") return value;
    }
    return uint64_t{0};
  };
  // It has met the client, and hears of it no more for three leases.
  std::function<void()> watch = [&] {
    const int64_t now_ns = world.clock().NowNs();
    if (attaches() == 0) return world.At(now_ns + kLookNs, watch);
    world.PauseCalls(late, true);
    world.At(now_ns + 3 * kLeaseNs, [&] { world.PauseCalls(late, false); });
  };
  watch();
  const absl::Status added = ImplOf(*client).AddMember({.id = late});
  EXPECT_TRUE(absl::IsFailedPrecondition(added)) << added;
  EXPECT_TRUE(client->fenced()) << "the server will never be its client's again";
}

}  // namespace
}  // namespace pando
