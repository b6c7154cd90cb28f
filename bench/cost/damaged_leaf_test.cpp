// Damage that no rule of the protocol leaves behind, done to a leaf in remote memory: who meets it
// is told, nobody aborts, and no lock stays behind.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "common/wire/internal_node.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_image.h"
#include "common/wire/slot.h"
#include "compute/client/access.h"
#include "compute/client/tree_impl.h"

namespace pando {
namespace {

class DamagedLeafTest : public testing::Test {
 protected:
  // A tree of one leaf, without a free slot: KeyOf(0), KeyOf(10), KeyOf(20), ...
  void SetUp() override {
    slots_ = layout().slot_count();
    for (uint32_t i = 0; i < slots_; ++i) {
      ASSERT_TRUE(session_->Put(*tree_, KeyOf(10 * i), "v").ok());
    }
    ASSERT_EQ(ImplOf(*tree_).context().root.Load(&leaf_), 0) << "the root is no leaf any more";
  }
  const NodeLayout& layout() { return ImplOf(*tree_).context().layout; }
  std::byte* Image() { return cluster_.At(leaf_.address); }
  int SlotOf(uint64_t n) { return wire::ScanSlots(Image(), layout(), KeyOf(n)).slot; }
  void CopySlot(int from, int to) {
    const auto start = [this](int slot) {
      return wire::SlotStart(Image(), wire::PlaceOf(layout(), static_cast<uint32_t>(slot)));
    };
    if (from != to) std::memcpy(start(to), start(from), layout().slot_bytes());
  }
  uint64_t LockWordOfLeaf() {
    return cluster_.LockWordAt(*ImplOf(*tree_).context().NodeLock(leaf_));
  }
  // By this client and by one that does not know the tree yet.
  void ExpectPutIsDataLoss(uint64_t n) {
    auto other = cluster_.NewClient();
    auto other_tree = *other->OpenTree("t");
    auto other_session = *other->NewSession();
    for (int round = 0; round < 3; ++round) {
      const absl::Status own = session_->Put(*tree_, KeyOf(n), "v", {.timeout_ms = 5});
      EXPECT_EQ(own.code(), absl::StatusCode::kDataLoss) << own;
      EXPECT_EQ(LockWordOfLeaf(), 0u) << "the lock was left behind";
      const absl::Status others = other_session->Put(*other_tree, KeyOf(n), "v", {.timeout_ms = 5});
      EXPECT_EQ(others.code(), absl::StatusCode::kDataLoss) << others;
    }
  }

  SimCluster cluster_{{.sim = {.mode = sim::DeliveryMode::kWhole}}};
  std::unique_ptr<Client> client_ = cluster_.NewClient();
  std::unique_ptr<Tree> tree_ = *client_->CreateTree("t", {});
  std::unique_ptr<Session> session_ = *client_->NewSession();
  uint32_t slots_ = 0;
  Reference leaf_;
};

TEST_F(DamagedLeafTest, AllSlotsOfOneKey) {
  const int from = SlotOf(10);
  for (uint32_t to = 0; to < slots_; ++to) CopySlot(from, static_cast<int>(to));
  ExpectPutIsDataLoss(5);
  ExpectPutIsDataLoss(10);
  ExpectPutIsDataLoss(15);
}

TEST_F(DamagedLeafTest, TwoSlotsOfOneKey) {
  CopySlot(SlotOf(10), SlotOf(200));
  ExpectPutIsDataLoss(5);
  ExpectPutIsDataLoss(201);
  ExpectPutIsDataLoss(10'000);
  // Keys that are sound are served.
  EXPECT_EQ(session_->Get(*tree_, KeyOf(20)).value_or("lost"), "v");
  EXPECT_TRUE(session_->Update(*tree_, KeyOf(20), "w").ok());
  EXPECT_EQ(session_->Get(*tree_, KeyOf(20)).value_or("lost"), "w");
  EXPECT_EQ(LockWordOfLeaf(), 0u);
}

TEST_F(DamagedLeafTest, SeveralAtOnce) {
  CopySlot(SlotOf(10), SlotOf(200));
  std::vector<KeyValue> entries;
  for (uint64_t n = 1; n < 10; ++n) entries.push_back({KeyOf(n), "v"});
  for (const absl::Status& put : session_->MultiPut(*tree_, entries, {.timeout_ms = 50})) {
    EXPECT_EQ(put.code(), absl::StatusCode::kDataLoss) << put;
  }
  EXPECT_EQ(LockWordOfLeaf(), 0u);
}

// A node is lost. Before the check of a live tree is sure of that, a leaf is torn: what is behind
// it cannot be reached any more, and of lost nodes nothing can be said.
TEST(DamagedWhileChecked, TheDamageIsSaidAndNothingIsCalledLost) {
  for (const bool stopped : {false, true}) {
    SimCluster cluster({.sim = {.mode = sim::DeliveryMode::kWhole}});
    auto client = cluster.NewClient();
    auto tree = *client->CreateTree("t", {});
    auto session = *client->NewSession();
    for (uint64_t n = 0; n < 300; ++n) ASSERT_TRUE(session->Put(*tree, KeyOf(n), "v").ok());
    session->Run();
    session.reset();
    tree.reset();  // now its nodes are known to be linked
    tree = *client->OpenTree("t");
    session = *client->NewSession();
    ASSERT_TRUE(session->Get(*tree, KeyOf(0)).ok());
    const TreeContext& context = ImplOf(*tree).context();
    const bool crc = context.environment.crc;
    Reference root;
    ASSERT_EQ(context.root.Load(&root), 1);
    InternalNode parent;
    ASSERT_TRUE(DecodeInternal(cluster.At(root.address), context.layout, &parent).ok());
    ASSERT_GE(parent.entries.size(), 3u);
    const Reference left = parent.entries[0].child, lost = parent.entries[1].child;
    const Reference torn = parent.entries[2].child;
    std::byte* const image = cluster.At(left.address);
    NodeHeader header = ReadHeader(image, context.layout);
    const NodeHeader skipped = ReadHeader(cluster.At(lost.address), context.layout);
    header.right = skipped.right;
    header.high = skipped.high;
    WriteHeader(image, context.layout, header);
    SealNodeLevel(image, image, context.layout, crc);
    parent.entries.erase(parent.entries.begin() + 1);
    std::byte* const above = cluster.At(root.address);
    EncodeInternal(parent, context.layout, above, crc, above);

    sim::SimWorld& world = cluster.world();
    world.At(world.clock().NowNs() + 70 * kMillisecondNs, [&] {
      cluster.At(torn.address)[5 * kLineBytes] ^= std::byte{1};
      if (stopped) cluster.SetLockWord(*context.NodeLock(torn), LockWord{777, 5}.Encode());
    });
    const auto report = session->Check(*tree, {.recheck_ms = 100});
    if (stopped) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(report.status())) << report.status();
      cluster.SetLockWord(*context.NodeLock(torn), LockWord::kFree);
      continue;
    }
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_EQ(report->problems.size(), 1u);
    EXPECT_NE(report->problems[0].find("is inconsistent"), std::string::npos)
        << report->problems[0];
  }
}

}  // namespace
}  // namespace pando
