// What cursors cost, counted in READs and round trips; and when their calls end.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/cost/loaded_tree.h"
#include "common/base/random.h"
#include "common/wire/slot.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/index/descend.h"

namespace pando {
namespace {

struct WalkCost {
  uint64_t keys = 0, reads = 0, round_trips = 0;
  uint64_t reads_a_fetch_max = 0;  // in one call, in one round trip
};

WalkCost Walk(LoadedTree& loaded, CursorOptions options) {
  WalkCost walk;
  const FabricStats before = loaded.client->Stats().fabric;
  OperationCost cost;
  options.operation.cost = &cost;
  const auto cursor = loaded.session->NewCursor(*loaded.tree, options);
  while (true) {
    const OperationCost called = cost;
    if (!cursor->Next()) break;
    ++walk.keys;
    if (cost.round_trips != called.round_trips + 1) continue;
    walk.reads_a_fetch_max = std::max<uint64_t>(walk.reads_a_fetch_max, cost.verbs - called.verbs);
  }
  EXPECT_TRUE(cursor->status().ok()) << cursor->status();
  const FabricStats after = loaded.client->Stats().fabric;
  walk.reads = after.reads - before.reads;
  walk.round_trips = cost.round_trips;
  return walk;
}

TEST(CursorCost, OneReadALeafAndAsManyInFlightAsAsked) {
  constexpr uint64_t kRecords = 1'000'000;
  LoadedTree loaded({}, {}, kRecords);
  const auto report = loaded.session->Check(*loaded.tree, {.quiet_tree = true});
  ASSERT_TRUE(report.ok()) << report.status();
  const uint64_t leaves = report->nodes_per_level[0];
  for (const bool reverse : {false, true}) {
    for (const int read_ahead : {1, 8, 32, 0}) {
      const WalkCost walk = Walk(loaded, {.reverse = reverse, .read_ahead = read_ahead});
      EXPECT_EQ(walk.keys, kRecords);
      const double reads_a_leaf = static_cast<double>(walk.reads) / static_cast<double>(leaves);
      const auto ahead = static_cast<uint64_t>(read_ahead == 0 ? 16 : read_ahead);
      printf("%s, read ahead %d: %.4f READs a leaf, %.3f round trips a leaf, %lu in flight\n",
             reverse ? "reverse" : "forward", read_ahead, reads_a_leaf,
             static_cast<double>(walk.round_trips) / static_cast<double>(leaves),
             walk.reads_a_fetch_max);
      EXPECT_LE(reads_a_leaf, reverse ? 1.2 : 1.05);
      EXPECT_EQ(walk.reads_a_fetch_max, ahead);
      EXPECT_LE(walk.round_trips, leaves / ahead + leaves / 50 + 20) << "fewer were in flight";
    }
  }
}

// With inserts at random places, and a client that has cached nothing.
TEST(CursorCost, ATreeThatHasGrown) {
  SimCluster cluster({});
  auto writer = cluster.NewClient();
  auto tree = *writer->CreateTree("t", {});
  auto session = *writer->NewSession();
  constexpr uint64_t kKeys = 60'000;
  std::vector<KeyValue> entries;
  for (uint64_t n = 0; n < kKeys; ++n) entries.push_back({KeyOf(n * 7919 % kKeys), "v"});
  for (const absl::Status& put : session->MultiPut(*tree, entries)) ASSERT_TRUE(put.ok()) << put;
  const auto report = session->Check(*tree, {.quiet_tree = true});
  ASSERT_TRUE(report.ok()) << report.status();
  const auto leaves = static_cast<double>(report->nodes_per_level[0]);
  for (const bool reverse : {false, true}) {
    auto client = cluster.NewClient();
    auto its_tree = *client->OpenTree("t");
    auto its_session = *client->NewSession();
    const auto cursor = its_session->NewCursor(*its_tree, {.reverse = reverse, .read_ahead = 16});
    uint64_t keys = 0;
    while (cursor->Next()) ++keys;
    EXPECT_EQ(keys, kKeys);
    const auto reads = static_cast<double>(client->Stats().fabric.reads);
    EXPECT_LE(reads / leaves, reverse ? 1.2 : 1.05);
  }
}

TEST(CursorCost, AShortRangeIsShort) {
  LoadedTree loaded({}, {}, 50'000);
  for (const bool reverse : {false, true}) {
    OperationCost cost;
    std::vector<KeyValue> rows;
    ASSERT_TRUE(loaded.session
                    ->Scan(*loaded.tree,
                           {.from = KeyOf(10'000),
                            .to = KeyOf(10'020),
                            .reverse = reverse,
                            .operation = {.cost = &cost}},
                           &rows)
                    .ok());
    EXPECT_EQ(rows.size(), 10u);
    EXPECT_EQ(cost.round_trips, 1u);
    EXPECT_LE(cost.verbs, 2u) << "leaves beyond the range were READ";
  }
}

// As many leaves as the rows lie in, by what leaves have been found to have: after a bulk load four
// fifths of their 42 slots, so that 100 rows lie in four, but for a tenth of them.
TEST(CursorCost, AScanReadsTheLeavesThatItsRowsLieIn) {
  constexpr uint64_t kRecords = 50'000, kScans = 500, kRows = 100;
  LoadedTree loaded({}, {}, kRecords);
  Random random(1);
  OperationCost cost;
  std::vector<KeyValue> rows;
  for (uint64_t i = 0; i < 20 + kScans; ++i) {
    if (i == 20) cost = {};
    const std::string from = KeyOf(2 * random.Uniform(kRecords - kRows));
    ASSERT_TRUE(loaded.session
                    ->Scan(*loaded.tree,
                           {.from = from, .limit = kRows, .operation = {.cost = &cost}}, &rows)
                    .ok());
    ASSERT_EQ(rows.size(), kRows);
  }
  printf("%.3f READs and %.3f round trips a scan\n", static_cast<double>(cost.verbs) / kScans,
         static_cast<double>(cost.round_trips) / kScans);
  EXPECT_LE(cost.verbs, kScans * 4.1);
  EXPECT_LE(cost.round_trips, kScans * 1.05);
}

// A leaf that stays torn: the call ends by its deadline, and goes on from there once it is mended.
TEST(CursorCost, CallsEndByTheirDeadlineAndGoOn) {
  constexpr uint64_t kRecords = 3'000;
  LoadedTree loaded({.sim = {.mode = sim::DeliveryMode::kWhole}}, {}, kRecords);
  TreeContext& tree = ImplOf(*loaded.tree).context();
  Reference leaf;  // in the middle
  loaded.session->Spawn([&] {
    OperationContext operation(&ImplOf(*loaded.session).context(),
                               OperationContext::Timeout{kSecondNs});
    const std::string key = KeyOf(kRecords);
    Descent descent(operation, tree, key, 0);
    EXPECT_TRUE(descent.Find().ok());
    leaf = descent.node();
  });
  loaded.session->Run();
  std::byte* const image = loaded.cluster.At(leaf.address);
  const std::vector<std::byte> whole(image, image + tree.layout.node_bytes());
  const auto start = [&](int slot) {
    return wire::SlotStart(image, wire::PlaceOf(tree.layout, static_cast<uint32_t>(slot)));
  };
  for (const bool reverse : {false, true}) {
    const int slot = wire::ScanSlots(image, tree.layout, KeyOf(kRecords)).slot;
    ASSERT_GE(slot, 0);
    std::memcpy(start(slot == 0 ? 1 : 0), start(slot), tree.layout.slot_bytes());
    const auto cursor = loaded.session->NewCursor(
        *loaded.tree, {.reverse = reverse, .read_ahead = 4, .operation = {.timeout_ms = 3}});
    std::vector<std::string> keys;
    while (cursor->Next()) keys.emplace_back(cursor->key());
    ASSERT_FALSE(keys.empty());
    for (int again = 0; again < 3; ++again) {
      const int64_t called_ns = loaded.cluster.world().clock().NowNs();
      EXPECT_FALSE(cursor->Next());
      EXPECT_TRUE(absl::IsDeadlineExceeded(cursor->status())) << cursor->status();
      EXPECT_FALSE(cursor->Valid());
      const int64_t took_ns = loaded.cluster.world().clock().NowNs() - called_ns;
      EXPECT_GE(took_ns, 3 * kMillisecondNs);
      EXPECT_LE(took_ns, 3 * kMillisecondNs + 20 * kMicrosecondNs) << "a READ at most";
    }
    // Back to where it was, and on again, over the leaf that is whole now.
    EXPECT_TRUE(cursor->Prev());
    EXPECT_EQ(cursor->key(), keys.back());
    std::memcpy(image, whole.data(), whole.size());
    while (cursor->Next()) keys.emplace_back(cursor->key());
    ASSERT_TRUE(cursor->status().ok()) << cursor->status();
    ASSERT_EQ(keys.size(), kRecords);
    for (uint64_t n = 0; n < kRecords; ++n) {
      ASSERT_EQ(keys[n], KeyOf(2 * (reverse ? kRecords - 1 - n : n)));
    }
  }
}

// Leaves that are only read ahead fail nothing: all that can be reached is shown first.
TEST(CursorCost, ADeadServerEndsTheWalkAtItsFirstLeaf) {
  size_t reached = 0;
  // Where a tree's first and last leaf lie is not this test's to say: one server after the other.
  for (const ServerId dead : {1, 2}) {
    LoadedTree loaded({}, {}, 200'000);
    loaded.cluster.world().KillServer(dead);
    for (const bool reverse : {false, true}) {
      std::vector<size_t> keys;
      for (const int read_ahead : {1, 16, 64}) {
        const auto cursor =
            loaded.session->NewCursor(*loaded.tree, {.reverse = reverse, .read_ahead = read_ahead});
        size_t seen = 0;
        while (cursor->Next()) ++seen;
        EXPECT_TRUE(absl::IsUnavailable(cursor->status())) << cursor->status();
        EXPECT_EQ(cursor->Prev(), seen > 0);
        keys.push_back(seen);
      }
      EXPECT_EQ(keys, std::vector<size_t>(3, keys[0])) << (reverse ? "reverse" : "forward");
      reached += keys[0];
    }
  }
  EXPECT_GT(reached, 0u) << "both ends lie on the dead server: nothing was tested";
}

TEST(CursorCost, WrongOptionsAreSaid) {
  LoadedTree loaded({}, {}, 10);
  for (const int read_ahead : {-1, CursorOptions::kReadAheadMax + 1}) {
    const auto cursor = loaded.session->NewCursor(*loaded.tree, {.read_ahead = read_ahead});
    EXPECT_TRUE(absl::IsInvalidArgument(cursor->status())) << cursor->status();
    EXPECT_FALSE(cursor->SeekToFirst() || cursor->Next() || cursor->Seek("a") || cursor->Prev());
    EXPECT_TRUE(absl::IsInvalidArgument(cursor->status())) << cursor->status();
  }
}

}  // namespace
}  // namespace pando
