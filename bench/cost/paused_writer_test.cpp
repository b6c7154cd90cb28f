// A writer that lives but has been stopped in the middle of a line keeps its lock. Operations that
// need the line wait, at most to their deadline; none takes it for damage (rules C1, C4, L3).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "bench/cost/sim_cluster.h"
#include "common/wire/internal_node.h"
#include "common/wire/line.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_repair.h"
#include "common/wire/root_record.h"
#include "compute/client/access.h"
#include "compute/client/tree_impl.h"

namespace pando {
namespace {

// Fences that continue behind line 0 (rule F4).
std::string LongKey(int n) { return std::string(40, 'k') + std::to_string(10'000 + n); }

class PausedWriterTest : public testing::Test {
 protected:
  // Three levels at least; P is the leftmost node of level 1, L its leftmost child, R beside L.
  void SetUp() override {
    for (int n = 0; n < kKeys; ++n) {
      ASSERT_TRUE(session_->Put(*tree_, LongKey(n), "v").ok());
    }
    const TreeContext& context = ImplOf(*tree_).context();
    RootRecord record;
    ASSERT_EQ(
        DecodeRootRecord(cluster_.At(context.entry.root_record), context.id(), false, &record),
        RootVerdict::kAccepted);
    ASSERT_GE(record.level, 2);
    parent_ = record.root;
    for (int level = record.level; level > 1; --level) parent_ = Decoded(parent_).header.leftmost;
    left_ = Decoded(parent_).header.leftmost;
    right_ = Decoded(parent_).entries[0].child;
    ASSERT_FALSE(HighIsInLine0(cluster_.At(left_.address)));
    // Nobody has cached anything of it.
    other_ = cluster_.NewClient();
    others_tree_ = *other_->OpenTree("t");
    others_session_ = *other_->NewSession();
  }
  InternalNode Decoded(const Reference& node) {
    InternalNode decoded;
    EXPECT_TRUE(DecodeInternal(cluster_.At(node.address), layout(), &decoded).ok());
    return decoded;
  }
  const NodeLayout& layout() { return ImplOf(*tree_).context().layout; }
  LockTarget LockOf(const Reference& node) { return *ImplOf(*tree_).context().NodeLock(node); }

  // What a client that died between two packets leaves: the last line is of the write before.
  void LeaveTorn(const Reference& node) {
    std::byte* const line = cluster_.At(node.address) + (layout().lines() - 1) * kLineBytes;
    wire::SealLine(line, wire::FrontEv(line), static_cast<uint16_t>(wire::Nv(line) - 1), false);
  }
  // A writer that is in the middle of line 0, and has the lock; taken back by its end.
  class StoppedWriter {
   public:
    StoppedWriter(PausedWriterTest* test, const Reference& node)
        : cluster_(test->cluster_), lock_(test->LockOf(node)), line_(cluster_.At(node.address)) {
      cluster_.SetLockWord(lock_, LockWord{9, 9, LockWord::kExclusive}.Encode());
      Flip();
    }
    ~StoppedWriter() {
      Flip();
      cluster_.SetLockWord(lock_, LockWord::kFree);
    }
    void LoseLock() { cluster_.SetLockWord(lock_, LockWord::kFree); }

   private:
    void Flip() { *line_ ^= std::byte{0x80}; }  // the front version
    SimCluster& cluster_;
    const LockTarget lock_;
    std::byte* const line_;
  };

  absl::Status Get(int64_t timeout_ms) {
    const int64_t start_ns = cluster_.world().clock().NowNs();
    const absl::Status got =
        others_session_->Get(*others_tree_, LongKey(0), {.timeout_ms = timeout_ms}).status();
    took_ns_ = cluster_.world().clock().NowNs() - start_ns;
    return got;
  }
  absl::Status Put(int64_t timeout_ms) {
    return others_session_->Put(*others_tree_, LongKey(0), "w", {.timeout_ms = timeout_ms});
  }
  void ExpectWaitsToItsDeadline() {
    constexpr int64_t kTimeoutMs = 50;
    EXPECT_EQ(Get(kTimeoutMs).code(), absl::StatusCode::kDeadlineExceeded) << Get(kTimeoutMs);
    EXPECT_GE(took_ns_, kTimeoutMs * kMillisecondNs);
    EXPECT_LE(took_ns_, (kTimeoutMs + 1) * kMillisecondNs);
    EXPECT_EQ(Put(kTimeoutMs).code(), absl::StatusCode::kDeadlineExceeded) << Put(kTimeoutMs);
  }

  static constexpr int kKeys = 3'000;
  SimCluster cluster_{{.sim = {.mode = sim::DeliveryMode::kWhole}}};
  std::unique_ptr<Client> client_ = cluster_.NewClient(), other_;
  std::unique_ptr<Tree> tree_ =
      *client_->CreateTree("t", {.key_bytes_max = 48, .value_bytes_max = 8});
  std::unique_ptr<Tree> others_tree_;
  std::unique_ptr<Session> session_ = *client_->NewSession(), others_session_;
  Reference parent_, left_, right_;
  int64_t took_ns_ = 0;
};

TEST_F(PausedWriterTest, TheRepairOfALeafWaitsForTheSiblingsWriter) {
  LeaveTorn(left_);
  {
    const StoppedWriter writer(this, right_);
    ExpectWaitsToItsDeadline();
    EXPECT_EQ(cluster_.LockWordAt(LockOf(left_)), LockWord::kFree);
  }
  EXPECT_TRUE(Get(50).ok());
  EXPECT_EQ(other_->Stats().tree.repairs, 1u);
}

TEST_F(PausedWriterTest, TheRepairOfAnInternalNodeWaitsForTheChildsWriter) {
  LeaveTorn(parent_);
  {
    const StoppedWriter writer(this, left_);
    ExpectWaitsToItsDeadline();
    EXPECT_EQ(cluster_.LockWordAt(LockOf(parent_)), LockWord::kFree);
  }
  EXPECT_TRUE(Get(50).ok());
  EXPECT_EQ(other_->Stats().tree.repairs, 1u);
}

TEST_F(PausedWriterTest, ItsOwnNodeIsWaitedFor) {
  {
    const StoppedWriter writer(this, left_);
    ExpectWaitsToItsDeadline();
  }
  EXPECT_TRUE(Get(50).ok());
}

// It is a CAS a round trip for every compute server that waits, as long as the stop lasts.
TEST_F(PausedWriterTest, WhoWaitsForItsLockAsksSeldom) {
  const StoppedWriter writer(this, left_);
  EXPECT_EQ(Put(100).code(), absl::StatusCode::kDeadlineExceeded);
  const uint64_t attempts = other_->Stats().tree.lock_attempts;
  EXPECT_GT(attempts, 100u);
  EXPECT_LT(attempts, 1'500u);
}

// An operation that is called from outside returns when its session's repairs have ended, too.
TEST_F(PausedWriterTest, ARepairEndsWithTheOperationThatWaitsForIt) {
  constexpr int64_t kTimeoutMs = 1;
  EXPECT_TRUE(Put(50).ok());  // the way is cached
  const StoppedWriter writer(this, parent_);
  int64_t longest_ns = 0;
  for (int n = 0; LongKey(n) < Decoded(parent_).entries[0].key; ++n) {
    const int64_t start_ns = cluster_.world().clock().NowNs();
    EXPECT_TRUE(others_session_->Erase(*others_tree_, LongKey(n), {.timeout_ms = kTimeoutMs}).ok());
    longest_ns = std::max(longest_ns, cluster_.world().clock().NowNs() - start_ns);
  }
  EXPECT_GE(longest_ns, kTimeoutMs * kMillisecondNs) << "no merge was due";
  EXPECT_LE(longest_ns, (kTimeoutMs + 1) * kMillisecondNs);
}

TEST_F(PausedWriterTest, WhatNobodyWritesIsDamaged) {
  LeaveTorn(left_);
  StoppedWriter writer(this, right_);
  writer.LoseLock();
  EXPECT_EQ(Get(50).code(), absl::StatusCode::kDataLoss) << Get(50);
  EXPECT_EQ(cluster_.LockWordAt(LockOf(left_)), LockWord::kFree);
  EXPECT_EQ(cluster_.LockWordAt(LockOf(right_)), LockWord::kFree);
}

}  // namespace
}  // namespace pando
