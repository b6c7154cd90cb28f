// Nodes that come back are used again, through a whole client: their lives and versions ascend, and
// nothing of what was there before is found (rules F2, F3, R3).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "bench/cost/sim_cluster.h"

namespace pando {
namespace {

class NodeReuseTest : public testing::Test {
 protected:
  void Rest() { cluster_.world().RunUntil(cluster_.world().clock().NowNs() + 2 * kSecondNs); }
  uint64_t Counter(const std::string& name) { return cluster_.Counter(name); }
  // Loads [0, count), and then `last`, if given; how many were taken before it ended.
  uint64_t Load(uint64_t count, absl::StatusCode expected, const std::string& last = "") {
    uint64_t taken = 0;
    const absl::Status status = session_->BulkLoad(*tree_, [&](KeyValue* entry) {
      if (taken == count + (last.empty() ? 0 : 1)) return false;
      *entry = {taken == count ? last : KeyOf(taken), "loaded"};
      ++taken;
      return true;
    });
    EXPECT_EQ(status.code(), expected) << status;
    return taken;
  }

  SimCluster cluster_{
      {.memory_servers = 2, .main_bytes = 1 << 20, .lock_words = 1024, .chunk_bytes = 64 << 10}};
  std::unique_ptr<Client> client_ = cluster_.NewClient();
  std::unique_ptr<Tree> tree_ = *client_->CreateTree("t", {});
  std::unique_ptr<Session> session_ = *client_->NewSession();
};

TEST_F(NodeReuseTest, SplitsUseWhatABulkLoadGaveBack) {
  for (int i = 0; i < 2; ++i) {
    (void)Load(15'000, absl::StatusCode::kInvalidArgument, /*last=*/KeyOf(0));
  }
  EXPECT_GT(Counter("nodes_freed"), 500u);
  Rest();
  for (uint64_t n = 0; n < 20'000; ++n) {
    const absl::Status put = session_->Put(*tree_, KeyOf(n * 7919 % 20'000), KeyOf(n));
    ASSERT_TRUE(put.ok()) << put << " at " << n;
  }
  EXPECT_GT(Counter("nodes_granted_again") + Counter("chunks_again"), 2u);
  auto other = cluster_.NewClient();
  auto tree = *other->OpenTree("t");
  auto session = *other->NewSession();
  for (uint64_t n = 0; n < 20'000; ++n) {
    const auto value = session->Get(*tree, KeyOf(n * 7919 % 20'000));
    ASSERT_TRUE(value.ok()) << value.status() << " at " << n;
    ASSERT_EQ(*value, KeyOf(n));
  }
  std::vector<KeyValue> rows;
  ASSERT_TRUE(session->Scan(*tree, "", SIZE_MAX, &rows).ok());
  EXPECT_EQ(rows.size(), 20'000u);
}

TEST_F(NodeReuseTest, ABulkLoadThatDoesNotFitLosesNothing) {
  std::vector<uint64_t> taken;
  for (int i = 0; i < 4; ++i) {
    taken.push_back(Load(1'000'000, absl::StatusCode::kResourceExhausted));
    Rest();
  }
  EXPECT_GT(taken[0], 20'000u);
  for (size_t i = 1; i < taken.size(); ++i) EXPECT_EQ(taken[i], taken[0]) << i;
  // What fits is loaded, and the old root is free.
  const uint64_t freed = Counter("nodes_freed");
  EXPECT_EQ(Load(20'000, absl::StatusCode::kOk), 20'000u);
  for (uint64_t n = 0; n < 20'000; n += 7) {
    const auto value = session_->Get(*tree_, KeyOf(n));
    ASSERT_TRUE(value.ok()) << value.status() << " at " << n;
    ASSERT_EQ(*value, "loaded");
  }
  session_.reset();
  tree_.reset();
  EXPECT_EQ(Counter("nodes_freed"), freed + 1);
  EXPECT_EQ(Counter("nodes_out"), 0u) << "closed in order: all of them are the tree's";
  EXPECT_EQ(Counter("nodes_orphan"), 0u);
}

// Whoever empties a tree may not come by again for long.
TEST_F(NodeReuseTest, WhatALastEraseLeavesIsGivenBackAtOnce) {
  constexpr uint64_t kKeys = 20'000;
  for (uint64_t n = 0; n < kKeys; ++n) ASSERT_TRUE(session_->Put(*tree_, KeyOf(n), "v").ok());
  for (uint64_t n = 0; n < kKeys; ++n) ASSERT_TRUE(session_->Erase(*tree_, KeyOf(n)).ok());
  session_->Run();
  const TreeStats stats = client_->Stats().tree;
  EXPECT_GT(stats.root_shrinks, 1u);
  EXPECT_EQ(Counter("nodes_freed"), stats.merges + stats.root_shrinks);
}

}  // namespace
}  // namespace pando
