// Damage that no rule of the protocol leaves behind, done to a leaf in remote memory: who meets it
// is told, nobody aborts, and no lock stays behind.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/cost/sim_cluster.h"
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

}  // namespace
}  // namespace pando
