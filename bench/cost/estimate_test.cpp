// Estimates of a tree's size, beside what a check counts.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "bench/cost/loaded_tree.h"

namespace pando {
namespace {

void ExpectAbout(uint64_t estimated, uint64_t actual, double share) {
  EXPECT_NEAR(static_cast<double>(estimated), static_cast<double>(actual),
              share * static_cast<double>(actual));
}

TEST(EstimateSize, SmallTreesExactly) {
  for (const uint64_t records : {0, 1, 30, 900}) {
    LoadedTree loaded({}, {}, records);
    const auto size = loaded.session->EstimateSize(*loaded.tree);
    const auto report = loaded.session->Check(*loaded.tree, {.quiet_tree = true});
    ASSERT_TRUE(size.ok()) << size.status();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(size->keys, records);
    EXPECT_EQ(size->key_bytes, report->key_bytes);
    EXPECT_EQ(size->value_bytes, report->value_bytes);
    EXPECT_EQ(size->leaves, report->nodes_per_level[0]);
    EXPECT_EQ(size->nodes_bytes, report->nodes_bytes);
    EXPECT_EQ(size->relative_error, 0);
  }
}

// A tree of uneven nodes: half of it was loaded in bulk, then a tenth of the keys became dense.
TEST(EstimateSize, LargeTreesAboutAndWithoutBias) {
  LoadedTree loaded({}, {}, 100'000);
  for (uint64_t n = 1; n < 20'000; n += 2) {
    ASSERT_TRUE(loaded.session->Put(*loaded.tree, KeyOf(n), "odd").ok());
  }
  const auto report = loaded.session->Check(*loaded.tree, {.quiet_tree = true});
  ASSERT_TRUE(report.ok()) << report.status();
  constexpr int kEstimates = 60;
  double sum = 0;
  int within = 0;
  for (int i = 0; i < kEstimates; ++i) {
    OperationCost cost;
    const auto size = loaded.session->EstimateSize(
        *loaded.tree, {.reads_max = 300, .operation = {.cost = &cost}});
    ASSERT_TRUE(size.ok()) << size.status();
    EXPECT_LE(cost.verbs, 300u);
    const double off =
        std::abs(static_cast<double>(size->keys) / static_cast<double>(report->keys) - 1);
    within += off <= size->relative_error ? 1 : 0;
    sum += static_cast<double>(size->keys);
    EXPECT_LE(size->relative_error, 0.2);
    ExpectAbout(size->leaves, report->nodes_per_level[0], 0.2);
    ExpectAbout(size->nodes_bytes, report->nodes_bytes, 0.2);
    ExpectAbout(size->key_bytes, report->key_bytes, 0.2);
    ExpectAbout(size->value_bytes, report->value_bytes, 0.2);
  }
  printf("mean of %d estimates: %.4f of the %lu keys; %d as near as they say\n", kEstimates,
         sum / kEstimates / static_cast<double>(report->keys), report->keys, within);
  ExpectAbout(static_cast<uint64_t>(sum / kEstimates), report->keys, 0.02);
  EXPECT_GE(within, kEstimates * 9 / 10);
}

// Values that lie outside the leaves, in trees of which all leaves, and some, are read.
TEST(EstimateSize, CountsValuesBesideLeaves) {
  SimCluster cluster({});
  const auto client = cluster.NewClient({});
  const auto session = *client->NewSession();
  for (const uint64_t records : {100, 20'000}) {
    const auto tree = *client->CreateTree(std::to_string(records), {.value_bytes_max = 1'000});
    uint64_t next = 0;
    const absl::Status loaded = session->BulkLoad(*tree, [&](KeyValue* entry) {
      if (next == records) return false;
      entry->key = KeyOf(next);
      entry->value = std::string(next++ % 5 == 0 ? 10 : 300, 'v');
      return true;
    });
    ASSERT_TRUE(loaded.ok()) << loaded;
    const auto size = session->EstimateSize(*tree);
    const auto report = session->Check(*tree, {.quiet_tree = true});
    ASSERT_TRUE(size.ok()) << size.status();
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(report->value_bytes, records * (10 + 4 * 300) / 5);
    EXPECT_EQ(report->cells, records / 5 * 4);
    const double share = size->relative_error == 0 ? 0 : 0.2;
    ExpectAbout(size->keys, records, share);
    ExpectAbout(size->value_bytes, report->value_bytes, share);
    ExpectAbout(size->cells_bytes, report->cells_bytes, share);
  }
}

TEST(EstimateSize, TooFewReads) {
  LoadedTree loaded({}, {}, 10);
  const auto size = loaded.session->EstimateSize(*loaded.tree, {.reads_max = 3});
  EXPECT_TRUE(absl::IsInvalidArgument(size.status())) << size.status();
}

}  // namespace
}  // namespace pando
