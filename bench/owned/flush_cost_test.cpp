// What a put of an owned tree costs, its log and its way to the leaf included, against where the
// keys lie: chains, bytes read and written, and messages that a leaf gets at a time.
//
// PANDO_FLUSH_RECORDS: other sizes of the tree than that of the fixed runs.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "bench/owned/owned_world.h"
#include "bench/workload/distribution.h"

namespace pando {
namespace {

constexpr int kCoroutines = 32;
// What a dirty record of 8/8 takes of what may be dirty, by default half of the memory.
constexpr uint64_t kDirtyBytes = 8 + 8 + 24;

uint64_t Records() {
  const char* const records = std::getenv("PANDO_FLUSH_RECORDS");
  return records == nullptr ? 100'000 : std::strtoull(records, nullptr, 10);
}

struct Cost {
  double chains = 0, bytes = 0;  // a put
  double messages = 0;           // a leaf written, as locks were taken for it
  double leaves = 0;             // written a put
};

// A tree with keys 0, 1000, 2000, ..., of which 11 % may be dirty, and puts of `next` to it: after
// as many as may be dirty, the cost of twice as many again.
class PutCost {
 public:
  explicit PutCost(uint64_t seed, bool inserts = false, int flush_threads = 1,
                   int dirty_percent = 50)
      : inserts_(inserts),
        records_(Records()),
        dirty_(records_ * 11 / 100),
        cluster_({.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole},
                  .main_bytes = (uint64_t{64} << 20) + records_ * 128}),
        owner_(&cluster_,
               {.hot_bytes = dirty_ * kDirtyBytes * 100 / static_cast<uint64_t>(dirty_percent),
                .dirty_percent = dirty_percent,
                .log_bytes = 32 << 20,
                .flush_threads = flush_threads},
               {.mode = TreeOptions::Mode::kOwned}),
        random_(seed) {
    uint64_t n = 0;
    const absl::Status loaded = owner_.session().BulkLoad(owner_.tree(), [&](KeyValue* entry) {
      if (n == records_) return false;
      *entry = {KeyOf(1000 * n++), "12345678"};
      return true;
    });
    EXPECT_TRUE(loaded.ok()) << loaded;
  }

  Cost Measure(const char* name, const std::function<uint64_t(Random*)>& next) {
    Put(2 * dirty_, next);
    dirty_sum_ = looks_ = 0;
    const ClientStats before = owner_.client().Stats();
    const uint64_t puts = 2 * dirty_;
    Put(puts, next);
    const ClientStats after = owner_.client().Stats();
    const auto a_put = [&](uint64_t now, uint64_t then) {
      return static_cast<double>(now - then) / static_cast<double>(puts);
    };
    const Cost cost = {
        .chains = a_put(after.fabric.chains, before.fabric.chains),
        .bytes = a_put(after.fabric.bytes_read + after.fabric.bytes_written,
                       before.fabric.bytes_read + before.fabric.bytes_written),
        .messages = static_cast<double>(after.owned.flushed - before.owned.flushed) /
                    static_cast<double>(after.tree.lock_attempts - before.tree.lock_attempts),
        .leaves = a_put(after.tree.lock_attempts, before.tree.lock_attempts)};
    std::printf(
        "%s: %.3f chains, %.0f bytes and %.4f leaves written a put, %.1f messages a leaf; %lu "
        "dirty bytes, on average %.2f of what may be\n",
        name, cost.chains, cost.bytes, cost.leaves, cost.messages, after.owned.dirty_bytes,
        dirty_sum_ / looks_ / static_cast<double>(dirty_ * kDirtyBytes));
    EXPECT_LE(after.owned.dirty_bytes, dirty_ * kDirtyBytes + 10'000);
    EXPECT_GT(after.owned.flushed, before.owned.flushed);
    // A leaf that is split takes locks of its new neighbours and its parent, too.
    const double counted = a_put(after.owned.flushed_leaves, before.owned.flushed_leaves);
    EXPECT_LE(counted, 1.05 * cost.leaves);
    EXPECT_GE(counted, 0.3 * cost.leaves);
    return cost;
  }
  uint64_t records() const { return records_; }

 private:
  void Put(uint64_t puts, const std::function<uint64_t(Random*)>& next) {
    for (int c = 0; c < kCoroutines; ++c) {
      owner_.session().Spawn([this, &next, &puts] {
        while (puts > 0) {
          --puts;
          if (puts % 64 == 0) {
            dirty_sum_ += static_cast<double>(owner_.client().Stats().owned.dirty_bytes);
            ++looks_;
          }
          const std::string key = KeyOf(next(&random_));
          const absl::Status written = inserts_
                                           ? owner_.session().Insert(owner_.tree(), key, "abcdefgh")
                                           : owner_.session().Put(owner_.tree(), key, "abcdefgh");
          // A key may be drawn twice.
          ASSERT_TRUE(written.ok() || (inserts_ && absl::IsAlreadyExists(written))) << written;
        }
      });
    }
    owner_.session().Run();
  }

  const bool inserts_;
  const uint64_t records_, dirty_;
  SimCluster cluster_;
  OwnerProcess owner_;
  Random random_;
  double dirty_sum_ = 0, looks_ = 0;
};

TEST(FlushCost, UniformPuts) {
  PutCost puts(1);
  const Cost cost = puts.Measure(
      "uniform", [&](Random* random) { return 1000 * random->Uniform(puts.records()); });
  EXPECT_GE(cost.messages, 5);
  EXPECT_LE(cost.chains, 0.6);
  EXPECT_LE(cost.bytes, 300);
}

// As much dirty of five ninths of the memory: a leaf gets as many messages.
TEST(FlushCost, UniformPutsWhereMoreMayBeDirty) {
  PutCost puts(1, /*inserts=*/false, /*flush_threads=*/1, /*dirty_percent=*/90);
  const Cost cost = puts.Measure(
      "uniform, 90 %", [&](Random* random) { return 1000 * random->Uniform(puts.records()); });
  EXPECT_GE(cost.messages, 5);
  EXPECT_LE(cost.chains, 0.6);
  EXPECT_LE(cost.bytes, 300);
}

// Side by side they bring as many to a leaf, and write none of them twice.
TEST(FlushCost, UniformPutsThatThreeSessionsFlush) {
  PutCost puts(1, /*inserts=*/false, /*flush_threads=*/3);
  const Cost cost = puts.Measure("uniform, flushed by three", [&](Random* random) {
    return 1000 * random->Uniform(puts.records());
  });
  EXPECT_GE(cost.messages, 5);
  EXPECT_LE(cost.chains, 0.6);
  EXPECT_LE(cost.bytes, 300);
}

// New keys, wherever: each is looked for in its leaf first, and few go to a leaf at a time.
TEST(FlushCost, UniformInserts) {
  PutCost inserts(5, /*inserts=*/true);
  const Cost cost = inserts.Measure("uniform inserts", [&](Random* random) {
    return 1000 * random->Uniform(inserts.records()) + 1 + random->Uniform(999);
  });
  EXPECT_LE(cost.chains, 1.7);
}

TEST(FlushCost, ZipfianPuts) {
  PutCost puts(2);
  const bench::ZipfianRank rank(puts.records(), 0.99);
  const bench::Scramble place(puts.records());
  const Cost cost =
      puts.Measure("zipfian", [&](Random* random) { return 1000 * place(rank.Next(random)); });
  EXPECT_LE(cost.chains, 0.215);  // in the order of keys 0.23
}

TEST(FlushCost, AscendingKeys) {
  PutCost puts(3);
  uint64_t n = 1000 * puts.records();
  const Cost cost = puts.Measure("ascending", [&](Random*) { return n++; });
  EXPECT_GE(cost.messages, 30);
  EXPECT_LE(cost.chains, 0.2);
}

// New keys, a hundred in a row.
TEST(FlushCost, ClusteredKeys) {
  PutCost puts(4);
  uint64_t place = 0, run = 0;
  const Cost cost = puts.Measure("clustered", [&](Random* random) {
    if (run++ % 100 == 0) place = 1000 * random->Uniform(puts.records()) + 1;
    return place++;
  });
  // In the order of keys 33 and 0.13.
  EXPECT_GE(cost.messages, 42);
  EXPECT_LE(cost.chains, 0.1);
}

}  // namespace
}  // namespace pando
