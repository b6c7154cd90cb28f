// Ranges of owned trees that are erased: what the owner does itself, and what is said of a piece
// that ends on the way.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "bench/owned/owned_world.h"
#include "common/base/status.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/index/key_range.h"

namespace pando {
namespace {

constexpr TreeOptions kOwned = {.mode = TreeOptions::Mode::kOwned};

void Load(OwnerProcess* owner, uint64_t keys) {
  uint64_t n = 0;
  const absl::Status loaded = owner->session().BulkLoad(owner->tree(), [&](KeyValue* entry) {
    if (n == keys) return false;
    *entry = {KeyOf(n++), "loaded"};
    return true;
  });
  ASSERT_TRUE(loaded.ok()) << loaded;
}

std::vector<KeyValue> AllOf(OwnerProcess* owner) {
  std::vector<KeyValue> rows;
  const absl::Status read = owner->session().Scan(owner->tree(), CursorOptions(), &rows);
  EXPECT_TRUE(read.ok()) << read;
  return rows;
}

// Rule P4: another member asks for leaves at a time, and reads nothing itself; the owner READs each
// leaf, not each key.
TEST(OwnedEraseTest, AnotherMembersKeysCostAReadALeaf) {
  constexpr uint64_t kKeys = 40'000;
  SimCluster cluster({.sim = {.seed = 1}});
  OwnerProcess owner(&cluster, {.hot_bytes = 8 << 20, .log_bytes = 8 << 20}, kOwned);
  Load(&owner, kKeys);
  const auto report = owner.session().Check(owner.tree());
  ASSERT_TRUE(report.ok());
  const double leaves = static_cast<double>(report->nodes_per_level[0]);
  OwnerProcess other(&cluster, {}, kOwned);
  ASSERT_EQ(*other.session().Get(other.tree(), KeyOf(7)), "loaded");
  const uint64_t before = owner.client().Stats().fabric.reads;
  const uint64_t others_before = other.client().Stats().fabric.reads;
  RangeErased erased;
  ASSERT_TRUE(other.session().EraseRange(other.tree(), KeyOf(0), KeyOf(kKeys / 2), &erased).ok());
  EXPECT_TRUE(erased.done);
  EXPECT_EQ(erased.erased, kKeys / 2);
  EXPECT_EQ(owner.client().Stats().owned.flushed, 0u) << "that READs leaves, too";
  const double reads = static_cast<double>(owner.client().Stats().fabric.reads - before);
  std::printf("%.0f READs of the owner for %.0f leaves\n", reads, leaves / 2);
  EXPECT_LE(reads, 1.1 * leaves / 2 + 20);
  EXPECT_LE(other.client().Stats().fabric.reads - others_before, 20u);
  const std::vector<KeyValue> rows = AllOf(&other);
  ASSERT_EQ(rows.size(), kKeys / 2);
  EXPECT_EQ(rows.front().key, KeyOf(kKeys / 2));
}

// A call that ends by its deadline has erased all up to where it says, and nothing behind that.
class InPieces {
 public:
  InPieces(uint64_t seed, bool elsewhere)
      : cluster_({.sim = {.seed = seed}}),
        owner_(&cluster_, {.hot_bytes = 64 << 10, .log_bytes = 64 << 10}, kOwned) {
    Load(&owner_, kKeys);
    if (!elsewhere) return;
    other_.emplace(&cluster_, ClientOptions(), kOwned);
    EXPECT_TRUE(other_->session().Get(other_->tree(), KeyOf(7)).ok());
  }

  // Calls of so long each; how many had come some way when their time was over, and said so.
  int Erase(int64_t for_ns) {
    OwnerProcess& eraser = other_.has_value() ? *other_ : owner_;
    KeyRange range = RangeOf({.from = KeyOf(0), .to = KeyOf(kEnd)},
                             ImplOf(eraser.tree()).context().layout.key_bytes_max());
    int on_the_way = 0;
    std::vector<KeyValue> rows = AllOf(&owner_);
    for (int calls = 0; range.low < range.high && calls < 10'000; ++calls) {
      const std::vector<KeyValue> before = std::move(rows);
      KeyCut at = range.low;
      const auto note = [&](uint64_t, const KeyCut& reached) {
        EXPECT_GE(reached, at);
        at = reached;
        return absl::OkStatus();
      };
      const absl::Status status =
          ImplOf(eraser.session()).Perform(eraser.tree(), {}, [&](OperationContext& context) {
            OperationContext part(context, context.session.NowNs() + for_ns);
            return ImplOf(eraser.tree()).routed().EraseRange(part, range, note);
          });
      const bool is_late = absl::IsDeadlineExceeded(status);
      EXPECT_TRUE(status.ok() || is_late || IsOutcomeUnknown(status)) << status;
      // What the owner may be at still is over then.
      if (IsOutcomeUnknown(status)) eraser.session().SleepUntil(NowNs() + 10 * kMillisecondNs);
      rows = AllOf(&owner_);
      const std::string next = at.FirstAbove();
      EXPECT_TRUE(!rows.empty() && rows.front().key >= next) << "not all is gone below the place";
      if (is_late) {
        const auto left = [&](const std::vector<KeyValue>& all) {
          return std::count_if(all.begin(), all.end(),
                               [&](const KeyValue& row) { return row.key >= next; });
        };
        EXPECT_EQ(left(rows), left(before)) << "erased behind the place that is said: " << status;
        if (at > range.low) ++on_the_way;
      }
      range.low = at;
      for_ns += for_ns / 20;
    }
    EXPECT_EQ(AllOf(&owner_).size(), kKeys - kEnd);
    return on_the_way;
  }

 private:
  static constexpr uint64_t kKeys = 6'000, kEnd = 5'500;

  int64_t NowNs() { return cluster_.world().clock().NowNs(); }

  SimCluster cluster_;
  OwnerProcess owner_;
  std::optional<OwnerProcess> other_;
};

TEST(OwnedEraseTest, EndsInTimeWhereItSays) {
  for (const bool elsewhere : {false, true}) {
    int on_the_way = 0;
    for (int64_t seed = 1; seed <= 4; ++seed) {
      InPieces pieces(static_cast<uint64_t>(seed), elsewhere);
      on_the_way += pieces.Erase((elsewhere ? 30 : 10) * (1 + seed) * kMicrosecondNs);
      EXPECT_FALSE(testing::Test::HasFailure()) << "seed " << seed << ", elsewhere " << elsewhere;
    }
    std::printf("%d calls ended on the way, in time%s\n", on_the_way,
                elsewhere ? ", elsewhere" : "");
    EXPECT_GT(on_the_way, 10);
  }
}

// The owner dies at any moment of it: all below the place is gone for every successor.
TEST(OwnedEraseTest, WhatIsSaidToBeErasedIsGoneAfterTheOwnersDeath) {
  constexpr uint64_t kKeys = 6'000;
  int in_the_middle = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimCluster cluster({.sim = {.seed = seed}});
    OwnerProcess owner(&cluster, {.hot_bytes = 64 << 10, .log_bytes = 64 << 10}, kOwned);
    Load(&owner, kKeys);
    OwnerProcess other(&cluster, {}, kOwned);
    ASSERT_TRUE(other.session().Get(other.tree(), KeyOf(7)).ok());
    owner.KillAt(cluster.world().clock().NowNs() +
                 static_cast<int64_t>(seed) * 60 * kMicrosecondNs);
    RangeErased erased;
    absl::Status status = other.session().EraseRange(other.tree(), "", std::nullopt, &erased);
    in_the_middle += owner.killed() && !erased.done && erased.erased > 0 ? 1 : 0;
    const std::string place = erased.next;
    if (!owner.killed()) cluster.world().RunUntil(cluster.world().clock().NowNs() + kSecondNs);
    owner.Close();
    std::vector<KeyValue> rows = AllOf(&other);
    if (erased.done) {
      EXPECT_TRUE(rows.empty());
    } else if (!rows.empty()) {
      EXPECT_TRUE(IsOutcomeUnknown(status)) << status;
      EXPECT_GE(rows.front().key, place);
    }
    status = other.session().EraseRange(other.tree(), place, std::nullopt, &erased);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(AllOf(&other).empty());
  }
  std::printf("%d ended in the middle\n", in_the_middle);
  EXPECT_GT(in_the_middle, 5);
}

}  // namespace
}  // namespace pando
