// Bulk load: what it promises, and that nothing is visible of one that was refused.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"

namespace pando {
namespace {

std::string PaddedKey(uint64_t n) {
  std::string text = std::to_string(n);
  return std::string(8 - text.size(), '0') + text;
}

class BulkLoadTest : public OneTreeTest {
 protected:
  absl::Status Load(const std::vector<KeyValue>& entries) {
    size_t next = 0;
    return session_->BulkLoad(*tree_, [&](KeyValue* entry) {
      if (next == entries.size()) return false;
      *entry = entries[next++];
      return true;
    });
  }
  std::vector<KeyValue> Everything() {
    std::vector<KeyValue> rows;
    const absl::Status status = session_->Scan(*tree_, "", SIZE_MAX, &rows);
    EXPECT_TRUE(status.ok()) << status;
    return rows;
  }
  static std::vector<KeyValue> Ascending(uint64_t count) {
    std::vector<KeyValue> entries;
    for (uint64_t n = 0; n < count; ++n) entries.push_back({PaddedKey(n), std::to_string(n)});
    return entries;
  }
};

TEST_F(BulkLoadTest, AllSizesAroundTheBorders) {
  for (const uint64_t count : {0, 1, 2, 32, 33, 34, 66, 67, 1'000, 2'000, 20'000}) {
    auto tree = client_->CreateTree("n" + std::to_string(count), {});
    ASSERT_OK(tree);
    tree_ = *std::move(tree);
    const std::vector<KeyValue> entries = Ascending(count);
    ASSERT_OK(Load(entries));
    ASSERT_EQ(Everything(), entries);
    ASSERT_OK(session_->Put(*tree_, "zzz", "later"));
    ASSERT_OK(session_->Put(*tree_, "!", "earlier"));
    ASSERT_EQ(Everything().size(), count + 2);
  }
}

TEST_F(BulkLoadTest, IntoATreeThatIsNotEmptyIsRefused) {
  ASSERT_OK(session_->Put(*tree_, "there", "before"));
  EXPECT_CODE(Load(Ascending(10)), FailedPrecondition);
  EXPECT_EQ(Everything(), (std::vector<KeyValue>{{"there", "before"}}));
  for (int i = 0; i < 500; ++i)
    ASSERT_OK(session_->Put(*tree_, PaddedKey(i * 3), "x"));  // several levels
  EXPECT_CODE(Load(Ascending(10)), FailedPrecondition);
  EXPECT_EQ(Everything().size(), 501u);
}

TEST_F(BulkLoadTest, ATreeThatWasEmptiedIsEmpty) {
  ASSERT_OK(session_->Put(*tree_, "there", "before"));
  ASSERT_OK(session_->Erase(*tree_, "there"));
  ASSERT_OK(Load(Ascending(1'000)));
  EXPECT_EQ(Everything().size(), 1'000u);
}

TEST_F(BulkLoadTest, UnsortedInputIsRefusedAndNothingIsSeenOfIt) {
  std::vector<KeyValue> entries = Ascending(2'000);
  entries.push_back({PaddedKey(7), "out of order"});
  EXPECT_CODE(Load(entries), InvalidArgument);
  EXPECT_TRUE(Everything().empty());
  EXPECT_CODE(Load({{"a", "1"}, {"a", "2"}}), InvalidArgument);
  EXPECT_TRUE(Everything().empty());
  // The tree is as good as new.
  ASSERT_OK(session_->Put(*tree_, "b", "1"));
  ASSERT_OK(session_->Erase(*tree_, "b"));
  ASSERT_OK(Load(Ascending(2'000)));
  EXPECT_EQ(Everything().size(), 2'000u);
}

TEST_F(BulkLoadTest, EntriesThatDoNotFitAreRefused) {
  EXPECT_CODE(Load({{"", "empty key"}}), InvalidArgument);
  EXPECT_CODE(Load({{"a", "1"}, {"nine byte", ""}}), InvalidArgument);
  EXPECT_CODE(Load({{"a", "nine byte"}}), InvalidArgument);
  EXPECT_TRUE(Everything().empty());
}

TEST_F(BulkLoadTest, OthersSeeTheLoadedTreeAtOnce) {
  auto other = cluster_.NewClient();
  auto other_tree = other->OpenTree("t");
  auto other_session = other->NewSession();
  ASSERT_OK(other_tree);
  ASSERT_OK(other_session);
  // Both know the old root.
  EXPECT_CODE((*other_session)->Get(**other_tree, PaddedKey(5)), NotFound);
  EXPECT_CODE(session_->Get(*tree_, PaddedKey(5)), NotFound);
  ASSERT_OK(Load(Ascending(5'000)));
  EXPECT_EQ((*other_session)->Get(**other_tree, PaddedKey(5)).value_or("none"), "5");
  ASSERT_OK((*other_session)->Update(**other_tree, PaddedKey(4'999), "new"));
  EXPECT_EQ(session_->Get(*tree_, PaddedKey(4'999)).value_or("none"), "new");
  EXPECT_CODE(Load(Ascending(1)), FailedPrecondition);
}

// A refusal would say that nothing was stored, and who has a handle reads what was.
TEST_F(BulkLoadTest, WhatIsStoredBeforeTheTreeIsDroppedIsNotCalledRefused) {
  auto other = cluster_.NewClient();
  uint64_t next = 0;
  const absl::Status loaded = session_->BulkLoad(*tree_, [&](KeyValue* entry) {
    *entry = {PaddedKey(next), "x"};
    if (next++ < 3) return true;
    std::thread([&] { EXPECT_OK(other->DropTree("t")); }).join();  // not in a session's task
    return false;
  });
  EXPECT_TRUE(IsOutcomeUnknown(loaded)) << loaded;
  EXPECT_EQ(Everything().size(), 3u);
}

// Of several loads at once one is the tree's contents, whole.
TEST_F(BulkLoadTest, LoadsRaceForTheEmptyTree) {
  std::vector<absl::Status> results(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < results.size(); ++i) {
    threads.emplace_back([&, i] {
      auto session = client_->NewSession();
      ASSERT_OK(session);
      uint64_t next = 0;
      results[i] = (*session)->BulkLoad(*tree_, [&](KeyValue* entry) {
        if (next == 3'000) return false;
        *entry = {PaddedKey(next++), std::to_string(i)};
        return true;
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> winners;
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].ok()) {
      winners.push_back(std::to_string(i));
    } else {
      EXPECT_CODE(results[i], FailedPrecondition);
    }
  }
  ASSERT_EQ(winners.size(), 1u);
  const std::vector<KeyValue> rows = Everything();
  ASSERT_EQ(rows.size(), 3'000u);
  for (const KeyValue& row : rows) ASSERT_EQ(row.value, winners[0]);
}

}  // namespace
}  // namespace pando
