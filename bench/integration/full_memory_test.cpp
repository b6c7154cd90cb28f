// Memory servers without free memory: what needs a node is refused, everything else goes on, and
// what is given back is used again.
#include <gtest/gtest.h>

#include <chrono>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"

namespace pando {
namespace {

std::string Key(uint64_t n) { return "k" + std::to_string(1'000'000 + n * 7919 % 1'000'003); }

class FullMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    client_ = cluster_.NewClient();
    auto tree = client_->CreateTree("t", {});
    ASSERT_OK(tree);
    tree_ = *std::move(tree);
    auto session = client_->NewSession();
    ASSERT_OK(session);
    session_ = *std::move(session);
  }

  // Inserts Key(0), Key(1), ... until one is refused; how many there are.
  uint64_t Fill(Session& session, const Tree& tree) {
    for (uint64_t n = 0; n < 1'000'000; ++n) {
      const absl::Status status = session.Insert(tree, Key(n), "full");
      if (status.ok()) continue;
      EXPECT_CODE(status, ResourceExhausted);
      return n;
    }
    ADD_FAILURE() << "the memory is never full";
    return 0;
  }
  // Leaves that were emptied are merged, and their memory rests for a second (rule R3).
  static absl::Status InsertWhenFree(Session& session, const Tree& tree, const std::string& key) {
    for (int tries = 0;; ++tries) {
      const absl::Status status = session.Insert(tree, key, "again");
      if (!absl::IsResourceExhausted(status) || tries == 3'000) return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  std::vector<KeyValue> Everything() {
    std::vector<KeyValue> rows;
    const absl::Status status = session_->Scan(*tree_, "", SIZE_MAX, &rows);
    EXPECT_TRUE(status.ok()) << status;
    return rows;
  }

  IntegrationCluster cluster_{
      {.memory_servers = 2, .main_bytes = 1 << 20, .lock_words = 1024, .chunk_bytes = 64 << 10}};
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_;
};

TEST_F(FullMemoryTest, ReadsUpdatesAndErasesGoOn) {
  const uint64_t count = Fill(*session_, *tree_);
  ASSERT_GT(count, 5'000u) << "most of 2 MiB was usable";
  EXPECT_CODE(session_->Get(*tree_, Key(count)), NotFound) << "the refused one had no effect";
  for (uint64_t n = 0; n < count; ++n) {
    const auto got = session_->Get(*tree_, Key(n));
    ASSERT_OK(got);
    ASSERT_EQ(*got, "full");
  }
  for (uint64_t n = 0; n < count; n += 3) ASSERT_OK(session_->Update(*tree_, Key(n), "new"));
  for (uint64_t n = 1; n < count; n += 3) ASSERT_OK(session_->Erase(*tree_, Key(n)));
  for (uint64_t n = 2; n < count; n += 3) ASSERT_OK(session_->Put(*tree_, Key(n), "put"));
  // An erased entry left its room, in its leaf or in one that was merged away.
  for (uint64_t n = 1; n < count; n += 6) ASSERT_OK(InsertWhenFree(*session_, *tree_, Key(n)));
  EXPECT_EQ(Everything().size(), count - (count + 1) / 3 + (count + 4) / 6);
  // So does one that another client inserts; and it is told of full memory as well.
  auto other = cluster_.NewClient();
  auto tree = other->OpenTree("t");
  auto session = other->NewSession();
  ASSERT_OK(tree);
  ASSERT_OK(session);
  for (uint64_t n = 4; n < count; n += 6) ASSERT_OK(InsertWhenFree(**session, **tree, Key(n)));
  uint64_t refused = 0;
  for (uint64_t n = 0; n < 200; ++n) {
    const absl::Status status = (*session)->Insert(**tree, Key(500'000 + n), "more");
    if (status.ok()) continue;
    ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
    ++refused;
  }
  EXPECT_GT(refused, 0u);
}

TEST_F(FullMemoryTest, ManySessionsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<std::set<std::string>> inserted(4);
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto session = client_->NewSession();
      ASSERT_OK(session);
      int refused = 0;
      for (uint64_t n = t; n < 100'000 && refused < 10; n += 4) {
        const absl::Status status = (*session)->Insert(*tree_, Key(n), "v");
        if (status.ok()) {
          inserted[t].insert(Key(n));
        } else {
          ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
          ++refused;
        }
      }
      EXPECT_EQ(refused, 10);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> all;
  for (const auto& keys : inserted) all.insert(keys.begin(), keys.end());
  const std::vector<KeyValue> rows = Everything();
  ASSERT_EQ(rows.size(), all.size());
  for (const KeyValue& row : rows) ASSERT_TRUE(all.contains(row.key));
}

TEST_F(FullMemoryTest, ABulkLoadThatDoesNotFitIsNotSeen) {
  uint64_t n = 0;
  EXPECT_CODE(session_->BulkLoad(*tree_,
                                 [&](KeyValue* entry) {
                                   *entry = {"k" + std::to_string(1'000'000 + n++), "v"};
                                   return true;
                                 }),
              ResourceExhausted);
  EXPECT_GT(n, 1'000u);
  EXPECT_TRUE(Everything().empty());
  ASSERT_OK(session_->Put(*tree_, "small", "fits"));
}

TEST_F(FullMemoryTest, ADroppedTreesMemoryIsUsedAgain) {
  const uint64_t first = Fill(*session_, *tree_);
  for (int round = 0; round < 2; ++round) {
    const std::string old_name = round == 0 ? "t" : "t" + std::to_string(round - 1);
    ASSERT_OK(client_->DropTree(old_name));
    tree_.reset();
    auto tree = cluster_.CreateTreeWhenFree(*client_, "t" + std::to_string(round));
    ASSERT_OK(tree);
    tree_ = *std::move(tree);
    // Freed memory rests for a second before it is handed out again; sanitizers on a busy machine
    // are slow.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    uint64_t count = 0;
    while (count < first * 9 / 10 && std::chrono::steady_clock::now() < until) {
      const absl::Status status = session_->Insert(*tree_, Key(count), "again");
      if (status.ok()) {
        ++count;
      } else {
        ASSERT_TRUE(absl::IsResourceExhausted(status)) << status;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    EXPECT_GE(count, first * 9 / 10) << "round " << round;
    EXPECT_EQ(Everything().size(), count) << "nothing of the old tree is there";
  }
}

}  // namespace
}  // namespace pando
