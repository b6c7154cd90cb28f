// Which records go to their leaves first (rule B2): where most are, and what holds the log's base.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "bench/owned/owned_world.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/owner/member.h"
#include "compute/owner/owned_tree.h"

namespace pando {
namespace {

constexpr uint64_t kOrderKeys = 80'000;
// A tenth of a tree gets most puts; in other groups one in five hundred keys gets one.
constexpr uint64_t kBusyFrom = 10'000, kBusyTo = 12'000, kQuietEach = 500;
// What a dirty record of 8/8 takes, and how many there may be.
constexpr uint64_t kOrderDirtyBytes = 8 + 8 + 24, kOrderDirtyMax = 1'500;

class FlushOrder {
 public:
  explicit FlushOrder(uint64_t log_bytes,
                      size_t index_cache_bytes = ClientOptions().index_cache_bytes)
      : cluster_({.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole}}),
        owner_(&cluster_,
               {.index_cache_bytes = index_cache_bytes,
                .hot_bytes = 2 * kOrderDirtyMax * kOrderDirtyBytes,
                .log_bytes = log_bytes},
               {.mode = TreeOptions::Mode::kOwned}) {
    uint64_t next = 0;
    const absl::Status loaded = owner_.session().BulkLoad(owner_.tree(), [&](KeyValue* entry) {
      if (next == kOrderKeys) return false;
      *entry = {KeyOf(next++), "12345678"};
      return true;
    });
    EXPECT_TRUE(loaded.ok()) << loaded;
  }

  Session& session() { return owner_.session(); }
  const RedoLog& log() { return ImplOf(owner_.client()).member()->log(); }
  ClientStats Stats() { return owner_.client().Stats(); }
  void Put(uint64_t key) {
    ASSERT_TRUE(session().Put(owner_.tree(), KeyOf(key), "abcdefgh").ok()) << key;
  }
  // Its level-1 nodes become known.
  void ReadAll() {
    for (uint64_t key = 0; key < kOrderKeys; key += 10) {
      ASSERT_TRUE(session().Get(owner_.tree(), KeyOf(key)).ok());
    }
  }
  void PutQuiet() {
    for (uint64_t key = 0; key < kOrderKeys; key += kQuietEach) {
      if (!IsBusy(key)) Put(key);
    }
  }
  // Until so many messages more have come to their leaves.
  void PutBusy(uint64_t messages) {
    const uint64_t enough = Stats().owned.flushed + messages;
    for (uint64_t n = 0; Stats().owned.flushed < enough && n < 20 * messages; ++n) {
      Put(kBusyFrom + n * 7 % (kBusyTo - kBusyFrom));
    }
    EXPECT_GE(Stats().owned.flushed, enough);
  }
  uint64_t QuietDirty() {
    uint64_t dirty = 0;
    for (OwnRange* const range : ImplOf(owner_.tree()).routed().owned()->OwnRanges()) {
      const std::lock_guard lock(range->partition.mutex());
      dirty += range->partition.CountDirty("", KeyOf(kBusyFrom)) +
               range->partition.CountDirty(KeyOf(kBusyTo), "");
    }
    return dirty;
  }

 private:
  static bool IsBusy(uint64_t key) { return key >= kBusyFrom - 3'000 && key < kBusyTo + 3'000; }

  SimCluster cluster_;
  OwnerProcess owner_;
};

constexpr uint64_t kQuiet = (kOrderKeys - 6'000 - (kBusyTo - kBusyFrom)) / kQuietEach;

TEST(FlushOrderTest, WhereMostAreFirst) {
  FlushOrder order(/*log_bytes=*/8 << 20);
  order.ReadAll();
  order.PutQuiet();
  order.PutBusy(10'000);
  EXPECT_EQ(order.QuietDirty(), kQuiet);
}

// Few in a group wait, but not for ever: the log goes on.
TEST(FlushOrderTest, WhatHoldsTheLogBeforeThat) {
  FlushOrder order(/*log_bytes=*/1 << 20);
  order.ReadAll();
  order.PutQuiet();
  const uint64_t before = order.Stats().owned.log_bytes;
  while (order.QuietDirty() > 0 && order.Stats().owned.log_bytes - before < (8 << 20)) {
    order.PutBusy(100);
  }
  EXPECT_EQ(order.QuietDirty(), 0u);
  EXPECT_LE(order.Stats().owned.log_bytes - before, order.log().capacity_bytes());
}

// Chains a put to any key.
double ChainsOfUniformPuts(size_t index_cache_bytes) {
  constexpr int kPuts = 5'000;
  FlushOrder order(/*log_bytes=*/8 << 20, index_cache_bytes);
  order.ReadAll();
  Random random(1);
  for (int n = 0; n < kPuts; ++n) order.Put(random.Uniform(kOrderKeys));
  const uint64_t before = order.Stats().fabric.chains;
  for (int n = 0; n < kPuts; ++n) order.Put(random.Uniform(kOrderKeys));
  return static_cast<double>(order.Stats().fabric.chains - before) / kPuts;
}

// Few level-1 nodes have room in the cache: that costs little more.
TEST(FlushOrderTest, WhereLevelOneNodesAreNotKnown) {
  const double few = ChainsOfUniformPuts(4 << 10), all = ChainsOfUniformPuts(1 << 20);
  std::printf("%.3f chains a put, with all in the cache %.3f\n", few, all);
  EXPECT_LE(few, 1.15 * all);
}

}  // namespace
}  // namespace pando
