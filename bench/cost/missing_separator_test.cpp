// A missing separator is legal, however many are missing side by side (rules S3, V3): the lock of
// the parent, or of the root record, is held by somebody dead while the nodes below go on
// splitting.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "bench/cost/sim_cluster.h"
#include "common/wire/lock_word.h"
#include "compute/client/access.h"
#include "compute/client/tree_impl.h"

namespace pando {
namespace {

constexpr int64_t kTimeoutMs = 5;

class MissingSeparatorTest : public testing::Test {
 protected:
  void PutAscending(uint64_t from, uint64_t to) {
    for (uint64_t n = from; n < to; ++n) {
      const int64_t start_ns = cluster_.world().clock().NowNs();
      const absl::Status put =
          session_->Put(*tree_, KeyOf(n), KeyOf(n), {.timeout_ms = kTimeoutMs});
      ASSERT_TRUE(put.ok()) << put << " at " << n;
      // Nor does anybody wait for what somebody else did not get done.
      ASSERT_LE(cluster_.world().clock().NowNs() - start_ns, 3 * kTimeoutMs * kMillisecondNs);
    }
  }
  // By a client that knows nothing and by one that knows what it has seen.
  void ExpectAll(uint64_t count) {
    auto fresh = cluster_.NewClient();
    auto fresh_tree = *fresh->OpenTree("t");
    auto fresh_session = *fresh->NewSession();
    for (uint64_t n = 0; n < count; ++n) {
      const auto value = session_->Get(*tree_, KeyOf(n), {.timeout_ms = kTimeoutMs});
      ASSERT_TRUE(value.ok()) << value.status() << " at " << n;
      ASSERT_EQ(*value, KeyOf(n));
      ASSERT_TRUE(fresh_session->Get(*fresh_tree, KeyOf(n), {.timeout_ms = kTimeoutMs}).ok()) << n;
    }
    std::vector<KeyValue> rows;
    ASSERT_TRUE(fresh_session->Scan(*fresh_tree, "", SIZE_MAX, &rows).ok());
    EXPECT_EQ(rows.size(), count);
  }
  // Reads and writes of everybody bring the separators in, and then cost what they should.
  void ExpectRepaired(uint64_t count) {
    for (int round = 0; round < 3; ++round) {
      for (uint64_t n = 0; n < count; ++n) {
        ASSERT_TRUE(session_->Put(*tree_, KeyOf(n), KeyOf(n)).ok());
      }
    }
    auto fresh = cluster_.NewClient();
    auto fresh_tree = *fresh->OpenTree("t");
    auto fresh_session = *fresh->NewSession();
    OperationCost cost;
    for (uint64_t n = 0; n < count; ++n) {
      ASSERT_TRUE(fresh_session->Get(*fresh_tree, KeyOf(n), {.cost = &cost}).ok());
    }
    EXPECT_LE(cost.round_trips, count + 20);
    EXPECT_EQ(fresh->Stats().tree.moves_right, 0u);
  }

  static constexpr uint64_t kForeign = LockWord{777, 5}.Encode();
  SimCluster cluster_{{.sim = {.mode = sim::DeliveryMode::kWhole}}};
  std::unique_ptr<Client> client_ = cluster_.NewClient();
  std::unique_ptr<Tree> tree_ = *client_->CreateTree("t", {});
  std::unique_ptr<Session> session_ = *client_->NewSession();
};

TEST_F(MissingSeparatorTest, ManyLeavesThatTheirParentDoesNotKnow) {
  constexpr uint64_t kBefore = 200, kCount = 1'000;
  PutAscending(0, kBefore);
  Reference root;
  ASSERT_EQ(ImplOf(*tree_).context().root.Load(&root), 1);
  const LockTarget lock = *ImplOf(*tree_).context().NodeLock(root);
  cluster_.SetLockWord(lock, kForeign);
  ASSERT_NO_FATAL_FAILURE(PutAscending(kBefore, kCount));
  ASSERT_NO_FATAL_FAILURE(ExpectAll(kCount));
  cluster_.SetLockWord(lock, LockWord::kFree);
  ASSERT_NO_FATAL_FAILURE(ExpectAll(kCount));
  ExpectRepaired(kCount);
}

TEST_F(MissingSeparatorTest, ManyLeavesBesideARootThatCannotGrow) {
  constexpr uint64_t kCount = 1'000;
  const LockTarget lock = ImplOf(*tree_).context().RootLock();
  cluster_.SetLockWord(lock, kForeign);
  ASSERT_NO_FATAL_FAILURE(PutAscending(0, kCount));
  ASSERT_NO_FATAL_FAILURE(ExpectAll(kCount));
  cluster_.SetLockWord(lock, LockWord::kFree);
  ASSERT_NO_FATAL_FAILURE(ExpectAll(kCount));
  ExpectRepaired(kCount);
}

}  // namespace
}  // namespace pando
