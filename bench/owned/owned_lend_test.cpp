// Reads of others' keys from leaves on loan (rule O15): what they cost, what a write waits for, and
// when a range is lent.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "bench/owned/owned_stage.h"
#include "common/base/clock.h"

namespace pando {
namespace {

using history::OperationKind;

constexpr uint64_t kKeys = 200;
constexpr int kReads = 40;

class OwnedLendTest : public testing::Test {
 protected:
  void Start(int64_t lend_after_ms) {
    stage_.emplace(OwnedStageOptions{});
    ClientOptions client = OwnedStage::SmallOwner();
    client.owner = true;
    client.spread_ranges = false;
    client.hot_bytes = 1 << 20;
    client.lend_after_ms = lend_after_ms;
    owner_ = stage_->Join(client, 2);
    reader_ = stage_->Join(client, 2);
    ASSERT_TRUE(stage_->Open(owner_, 0));
    ASSERT_TRUE(stage_->Open(reader_, 0));
    for (uint64_t k = 1; k <= kKeys; ++k) Put(owner_, k);
  }
  void Put(OwnedActor* actor, uint64_t key) {
    stage_->Do(actor, 0, 0, OwnedStage::Make(OperationKind::kPut, KeyOf(key), stage_->NewValue()));
  }
  void Get(OwnedActor* actor, uint64_t key) {
    stage_->Do(actor, 0, 0, OwnedStage::Make(OperationKind::kGet, KeyOf(key)));
  }
  void Read(int times = kReads) {
    for (int i = 0; i < times; ++i) Get(reader_, 1 + stage_->random().Uniform(kKeys));
  }
  OwnedStats Of(const OwnedActor* actor) const { return actor->client->Stats().owned; }
  void End() {
    stage_->LookAtTheEnd();
    EXPECT_EQ(stage_->what(), "");
  }

  std::optional<OwnedStage> stage_;
  OwnedActor* owner_ = nullptr;
  OwnedActor* reader_ = nullptr;
};

TEST_F(OwnedLendTest, AReadCostsAChainAndNoMessage) {
  Start(/*lend_after_ms=*/0);
  ASSERT_TRUE(stage_->Flush(owner_, 0));
  for (uint64_t k = 1; k <= kKeys; ++k) Get(reader_, k);  // its index cache is warm
  stage_->Quiet(10 * kMillisecondNs);
  Read(8);  // one asks anew
  const OwnedStats before = Of(reader_);
  const uint64_t chains = reader_->client->Stats().fabric.chains;
  Read();
  EXPECT_EQ(Of(reader_).lent, before.lent + kReads);
  EXPECT_EQ(Of(reader_).messages, before.messages);
  EXPECT_EQ(reader_->client->Stats().fabric.chains, chains + kReads);
  // The owner need not be there.
  stage_->Pause(owner_, stage_->NowNs(), kMillisecondNs);
  Read();
  EXPECT_EQ(Of(reader_).lent, before.lent + 2 * kReads);
  Get(reader_, kKeys + 1);  // nor is what it does not have
  End();
}

TEST_F(OwnedLendTest, ScansBothWays) {
  Start(/*lend_after_ms=*/0);
  ASSERT_TRUE(stage_->Flush(owner_, 0));
  ASSERT_TRUE(stage_->Split(owner_, 0, 0, KeyOf(kKeys / 2)).ok());
  ASSERT_TRUE(stage_->Flush(owner_, 0));
  Read();
  const uint64_t lent = Of(reader_).lent;
  for (const bool reverse : {false, true}) {
    CursorOptions options;
    options.reverse = reverse;
    std::vector<KeyValue> rows;
    const absl::Status scanned = reader_->sessions[0]->Scan(*reader_->trees[0], options, &rows);
    ASSERT_TRUE(scanned.ok()) << scanned;
    ASSERT_EQ(rows.size(), kKeys);
    for (uint64_t n = 0; n < kKeys; ++n) {
      EXPECT_EQ(rows[n].key, KeyOf(reverse ? kKeys - n : n + 1));
    }
  }
  EXPECT_GE(Of(reader_).lent, lent + 4);
  End();
}

TEST_F(OwnedLendTest, AWriteWaitsOnce) {
  Start(/*lend_after_ms=*/0);
  ASSERT_TRUE(stage_->Flush(owner_, 0));
  Read();
  ASSERT_GT(Of(reader_).lent, 0u);
  int64_t begin_ns = stage_->NowNs();
  Put(owner_, 1);
  const int64_t waited_ns = stage_->NowNs() - begin_ns;
  EXPECT_GT(waited_ns, 3 * kMillisecondNs);
  EXPECT_LT(waited_ns, 6 * kMillisecondNs);
  Get(reader_, 1);
  begin_ns = stage_->NowNs();
  for (uint64_t k = 1; k <= 5; ++k) Put(owner_, k);
  EXPECT_LT(stage_->NowNs() - begin_ns, kMillisecondNs) << "nothing is lent any more";
  // One without the time for that has no effect.
  ASSERT_TRUE(stage_->Flush(owner_, 0));
  stage_->Quiet(kSecondNs);
  const uint64_t lent = Of(reader_).lent;
  Read();
  ASSERT_GT(Of(reader_).lent, lent);
  OperationOptions hurried;
  hurried.timeout_ms = 1;
  const absl::Status late = owner_->sessions[0]->Put(*owner_->trees[0], KeyOf(2), "never", hurried);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  stage_->Quiet(10 * kMillisecondNs);
  Get(owner_, 2);
  End();
}

// Who asks the owner for it hears so in time, and its link is as good as before.
TEST_F(OwnedLendTest, AForwardedWriteWithoutTheTime) {
  Start(/*lend_after_ms=*/0);
  ASSERT_TRUE(stage_->Flush(owner_, 0));
  Read();
  OperationOptions hurried;
  hurried.timeout_ms = 1;
  for (uint64_t k = 1; k <= 10; ++k) {
    stage_->Spawn(reader_, 0, [&, k] {
      const absl::Status late =
          reader_->sessions[0]->Put(*reader_->trees[0], KeyOf(k), "never", hurried);
      EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
    });
  }
  reader_->sessions[0]->Run();
  stage_->Quiet(10 * kMillisecondNs);
  for (uint64_t k = 1; k <= 10; ++k) Put(reader_, k);
  for (uint64_t k = 1; k <= 10; ++k) Get(owner_, k);
  End();
}

// A reader that cannot reach the leaves asks the owner, and does not try again with each read.
TEST_F(OwnedLendTest, LeavesOutOfReach) {
  Start(/*lend_after_ms=*/0);
  ASSERT_TRUE(stage_->Flush(owner_, 0));
  for (uint64_t k = 1; k <= 20; ++k) Get(owner_, k);
  Read();
  ASSERT_GT(Of(reader_).lent, 0u);
  for (const ServerId server : {1, 2}) stage_->world().CutLink(*reader_->fabric, server, true);
  const uint64_t lent = Of(reader_).lent;
  const auto read = [&] {
    OperationCost cost;
    const auto got = reader_->sessions[0]->Get(*reader_->trees[0], KeyOf(1), {.cost = &cost});
    EXPECT_TRUE(got.ok()) << got.status();
    return cost.verbs;
  };
  EXPECT_GT(read(), 0u);
  // Nor are they asked for again.
  const int64_t begin_ns = stage_->NowNs();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(read(), 0u);
  EXPECT_LT(stage_->NowNs() - begin_ns, 3 * kMillisecondNs);
  EXPECT_EQ(Of(reader_).lent, lent);
  for (const ServerId server : {1, 2}) stage_->world().CutLink(*reader_->fabric, server, false);
  stage_->Quiet(10 * kSecondNs);
  Read();
  EXPECT_GT(Of(reader_).lent, lent);
  End();
}

// A READ that had no time says nothing about its leaf: others go on.
TEST_F(OwnedLendTest, WhoHasNoTimeEndsNoLease) {
  Start(/*lend_after_ms=*/0);
  ASSERT_TRUE(stage_->Flush(owner_, 0));
  for (uint64_t k = 1; k <= kKeys; ++k) Get(reader_, k);
  Read(8);
  const uint64_t lent = Of(reader_).lent;
  ASSERT_GT(lent, 0u);
  stage_->world().StallReads(*reader_->fabric, 3 * kMillisecondNs);
  const auto late = reader_->sessions[1]->Get(*reader_->trees[0], KeyOf(1), {.timeout_ms = 1});
  EXPECT_TRUE(absl::IsDeadlineExceeded(late.status())) << late.status();
  stage_->world().StallReads(*reader_->fabric, 0);
  Read();
  EXPECT_GT(Of(reader_).lent, lent + kReads / 2);
  End();
}

// The least key above one of the greatest length is longer than any key, and than what a message
// takes.
TEST_F(OwnedLendTest, ScansOfTheLongestKeys) {
  for (const int64_t lend_after_ms : {-1, 0}) {
    OwnedStageOptions options;
    options.tree.key_bytes_max = 240;
    options.tree.node_bytes = 0;
    stage_.emplace(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.owner = true;
    client.lend_after_ms = lend_after_ms;
    owner_ = stage_->Join(client);
    reader_ = stage_->Join(client);
    ASSERT_TRUE(stage_->Open(owner_, 0));
    ASSERT_TRUE(stage_->Open(reader_, 0));
    std::vector<std::string> keys;
    for (uint64_t k = 1; k <= kKeys; ++k) {
      keys.push_back(KeyOf(k));
      keys.back().resize(240, '\xff');
      stage_->Do(owner_, 0, 0,
                 OwnedStage::Make(OperationKind::kPut, keys.back(), stage_->NewValue()));
    }
    ASSERT_TRUE(stage_->Flush(owner_, 0));
    for (const bool reverse : {false, true}) {
      for (int i = 0; i < 4; ++i) {
        CursorOptions scan;
        scan.reverse = reverse;
        scan.read_ahead = 1;
        std::vector<KeyValue> rows;
        const absl::Status scanned = reader_->sessions[0]->Scan(*reader_->trees[0], scan, &rows);
        ASSERT_TRUE(scanned.ok()) << scanned;
        ASSERT_EQ(rows.size(), kKeys);
        for (uint64_t n = 0; n < kKeys; ++n) {
          EXPECT_EQ(rows[n].key, keys[reverse ? kKeys - 1 - n : n]);
        }
      }
    }
    EXPECT_EQ(Of(reader_).lent > 0, lend_after_ms == 0);
    End();
  }
}

// What was lent of the whole is waited for in its parts.
TEST_F(OwnedLendTest, ADividedRange) {
  Start(/*lend_after_ms=*/0);
  for (const uint64_t written : {uint64_t{1}, kKeys}) {
    ASSERT_TRUE(stage_->Flush(owner_, 0));
    stage_->Quiet(kSecondNs);
    const uint64_t lent = Of(reader_).lent;
    Read();
    ASSERT_GT(Of(reader_).lent, lent);
    ASSERT_TRUE(stage_->Split(owner_, 0, 0, KeyOf(kKeys / 3 + written / 3)).ok());
    Put(owner_, written);
    for (int i = 0; i < 9; ++i) Get(reader_, written);
  }
  End();
}

// A key that is decided by its leaf, and the range is lent while that is READ.
TEST_F(OwnedLendTest, AWriteThatReadsItsLeaf) {
  Start(/*lend_after_ms=*/0);
  ASSERT_TRUE(stage_->Flush(owner_, 0));
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(stage_->Flush(owner_, 0));
    stage_->Quiet(kSecondNs);
    stage_->Spawn(reader_, 0, [&] { Read(30); });
    stage_->Quiet(static_cast<int64_t>(stage_->random().Uniform(100'000)));
    stage_->Do(owner_, 0, 0,
               OwnedStage::Make(OperationKind::kInsert, KeyOf(kKeys + 1 + static_cast<uint64_t>(i)),
                                stage_->NewValue()));
    reader_->sessions[0]->Run();
    for (int n = 0; n < 9; ++n) Get(reader_, kKeys + 1 + static_cast<uint64_t>(i));
  }
  EXPECT_GT(Of(reader_).lent, 0u);
  End();
}

TEST_F(OwnedLendTest, ALoad) {
  stage_.emplace(OwnedStageOptions{});
  ClientOptions client = OwnedStage::SmallOwner();
  client.owner = true;
  client.lend_after_ms = 0;
  owner_ = stage_->Join(client);
  reader_ = stage_->Join(client);
  ASSERT_TRUE(stage_->Open(owner_, 0));
  Get(owner_, 1);
  ASSERT_TRUE(stage_->Open(reader_, 0));
  for (int i = 0; i < 20; ++i) Get(reader_, 1);
  ASSERT_GT(Of(reader_).lent, 0u);
  const int64_t begin_ns = stage_->NowNs();
  ASSERT_TRUE(stage_->BulkLoad(owner_, 0, {{KeyOf(1), "one"}, {KeyOf(2), "two"}}));
  EXPECT_GT(stage_->NowNs() - begin_ns, 3 * kMillisecondNs) << "readers may be in the old leaf";
  for (int i = 0; i < 20; ++i) Get(reader_, 1);
  End();
}

TEST_F(OwnedLendTest, WhatNobodyWritesIsFlushedAndLent) {
  Start(/*lend_after_ms=*/250);
  Read();
  EXPECT_EQ(Of(reader_).lent, 0u);
  EXPECT_GT(Of(owner_).dirty_bytes, 0u);
  for (int i = 0; i < 10; ++i) {
    stage_->Quiet(250 * kMillisecondNs);
    Read();
  }
  EXPECT_EQ(Of(owner_).dirty_bytes, 0u);
  EXPECT_GT(Of(reader_).lent, 0u);
  End();
}

// Nothing is flushed for its sake, nor lent.
TEST_F(OwnedLendTest, Never) {
  Start(/*lend_after_ms=*/-1);
  for (int i = 0; i < 10; ++i) {
    Read();
    stage_->Quiet(250 * kMillisecondNs);
  }
  EXPECT_GT(Of(owner_).dirty_bytes, 0u);
  ASSERT_TRUE(stage_->Flush(owner_, 0));
  for (int i = 0; i < 10; ++i) {
    Read();
    stage_->Quiet(250 * kMillisecondNs);
  }
  EXPECT_EQ(Of(reader_).lent, 0u);
  End();
}

}  // namespace
}  // namespace pando
