// Memory servers without free memory: what needs a node is refused, everything else goes on, and
// what is given back is used again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "pando/check.h"

namespace pando {
namespace {

std::string ScatteredKey(uint64_t n) {
  return "k" + std::to_string(1'000'000 + n * 7919 % 1'000'003);
}

const size_t kRounds = IntegrationCluster::is_slow() ? 2 : 10;
const uint64_t kMainBytes = IntegrationCluster::is_slow() ? 512 << 10 : 1 << 20;

class FullMemoryTest : public OneTreeTest {
 protected:
  FullMemoryTest()
      : OneTreeTest({.memory_servers = 2,
                     .main_bytes = kMainBytes,
                     .lock_words = 1024,
                     .chunk_bytes = 64 << 10}) {}

  // Inserts ScatteredKey(0), ScatteredKey(1), ... until one is refused; how many there are.
  uint64_t Fill(Session& session, const Tree& tree) {
    for (uint64_t n = 0; n < 1'000'000; ++n) {
      const absl::Status status = session.Insert(tree, ScatteredKey(n), "full");
      if (status.ok()) continue;
      EXPECT_CODE(status, ResourceExhausted);
      return n;
    }
    ADD_FAILURE() << "the memory is never full";
    return 0;
  }
  std::vector<KeyValue> Everything() {
    std::vector<KeyValue> rows;
    const absl::Status status = session_->Scan(*tree_, "", SIZE_MAX, &rows);
    EXPECT_TRUE(status.ok()) << status;
    return rows;
  }
};

TEST_F(FullMemoryTest, ReadsUpdatesAndErasesGoOn) {
  if (!IntegrationCluster::kWithOneSession) GTEST_SKIP() << "one session";
  const uint64_t count = Fill(*session_, *tree_);
  ASSERT_GT(count, kMainBytes / 200) << "most of it was usable";
  EXPECT_CODE(session_->Get(*tree_, ScatteredKey(count)), NotFound)
      << "the refused one had no effect";
  for (uint64_t n = 0; n < count; ++n) {
    const auto got = session_->Get(*tree_, ScatteredKey(n));
    ASSERT_OK(got);
    ASSERT_EQ(*got, "full");
  }
  for (uint64_t n = 0; n < count; n += 3)
    ASSERT_OK(session_->Update(*tree_, ScatteredKey(n), "new"));
  for (uint64_t n = 1; n < count; n += 3) ASSERT_OK(session_->Erase(*tree_, ScatteredKey(n)));
  for (uint64_t n = 2; n < count; n += 3) ASSERT_OK(session_->Put(*tree_, ScatteredKey(n), "put"));
  // An erased entry left its room, in its leaf or in one that was merged away.
  for (uint64_t n = 1; n < count; n += 6)
    ASSERT_OK(session_->Insert(*tree_, ScatteredKey(n), "again"));
  EXPECT_EQ(Everything().size(), count - (count + 1) / 3 + (count + 4) / 6);
  // So does one that another client inserts; and it is told of full memory as well.
  auto other = cluster_.NewClient();
  auto tree = other->OpenTree("t");
  auto session = other->NewSession();
  ASSERT_OK(tree);
  ASSERT_OK(session);
  for (uint64_t n = 4; n < count; n += 6)
    ASSERT_OK((*session)->Insert(**tree, ScatteredKey(n), "again"));
  absl::Status status;
  for (uint64_t n = 0; n < 10'000 && status.ok(); ++n) {
    status = (*session)->Insert(**tree, ScatteredKey(500'000 + n), "more");
  }
  EXPECT_CODE(status, ResourceExhausted);
}

TEST_F(FullMemoryTest, ManySessionsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<std::set<std::string>> inserted(4);
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto session = client_->NewSession();
      ASSERT_OK(session);
      int refused = 0;
      // Enough for each of them to fill the memory alone: the others may begin late.
      for (uint64_t n = t; n < 1'000'000 && refused < 10; n += 4) {
        const absl::Status status = (*session)->Insert(*tree_, ScatteredKey(n), "v");
        if (status.ok()) {
          inserted[t].insert(ScatteredKey(n));
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
  if (!IntegrationCluster::kWithOneSession) GTEST_SKIP() << "one session";
  const uint64_t first = Fill(*session_, *tree_);
  for (int round = 0; round < 2; ++round) {
    const std::string old_name = round == 0 ? "t" : "t" + std::to_string(round - 1);
    ASSERT_OK(client_->DropTree(old_name));
    tree_.reset();
    auto tree = cluster_.CreateTreeWhenFree(*client_, "t" + std::to_string(round));
    ASSERT_OK(tree);
    tree_ = *std::move(tree);
    const uint64_t count = Fill(*session_, *tree_);
    EXPECT_GE(count, first * 9 / 10) << "round " << round;
    EXPECT_EQ(Everything().size(), count) << "nothing of the old tree is there";
  }
}

// Rounds of filling the memory and erasing everything, by several compute servers with several
// sessions each.
class CapacityTest : public testing::TestWithParam<int> {
 protected:
  struct Part {
    std::unique_ptr<Client> client;
    std::unique_ptr<Tree> tree;
    std::unique_ptr<Session> session;
  };

  Part NewPart() {
    Part part{.client = cluster_.NewClient(), .tree = nullptr, .session = nullptr};
    auto tree = parts_.empty() ? part.client->CreateTree("t", {}) : part.client->OpenTree("t");
    EXPECT_TRUE(tree.ok()) << tree.status();
    part.tree = *std::move(tree);
    auto session = part.client->NewSession();
    EXPECT_TRUE(session.ok()) << session.status();
    part.session = *std::move(session);
    return part;
  }
  void AddParts(int count) {
    for (int i = 0; i < count; ++i) parts_.push_back(NewPart());
  }
  void InParallel(const std::function<void(Part&, uint64_t)>& work) {
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < parts_.size(); ++t) {
      threads.emplace_back([&, t] { work(parts_[t], t); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // Each inserts its share of ScatteredKey(0), ScatteredKey(1), ... until it is refused; `ends`:
  // where.
  uint64_t Fill(std::vector<uint64_t>* ends) {
    ends->assign(parts_.size(), 0);
    std::atomic<uint64_t> inserted{0};
    InParallel([&](Part& part, uint64_t t) {
      for (uint64_t n = t;; n += parts_.size()) {
        const absl::Status status = part.session->Insert(*part.tree, ScatteredKey(n), "full");
        (*ends)[t] = n;
        if (!status.ok()) {
          EXPECT_CODE(status, ResourceExhausted);
          return;
        }
        ++inserted;
      }
    });
    return inserted;
  }
  void UseWhileFull(const std::vector<uint64_t>& ends) {
    InParallel([&](Part& part, uint64_t t) {
      for (uint64_t n = t; n < ends[t]; n += 7 * parts_.size()) {
        const auto value = part.session->Get(*part.tree, ScatteredKey(n));
        ASSERT_OK(value);
        ASSERT_EQ(*value, "full");
        ASSERT_OK(part.session->Update(*part.tree, ScatteredKey(n), "new"));
      }
    });
  }
  void EraseAll(const std::vector<uint64_t>& ends) {
    InParallel([&](Part& part, uint64_t t) {
      for (uint64_t n = t; n < ends[t]; n += parts_.size()) {
        ASSERT_OK(part.session->Erase(*part.tree, ScatteredKey(n)));
      }
      part.session->Run();  // what is still to be merged
    });
    std::vector<KeyValue> rows;
    ASSERT_OK(parts_[0].session->Scan(*parts_[0].tree, "", SIZE_MAX, &rows));
    EXPECT_TRUE(rows.empty());
  }
  CheckReport CheckTree() {
    auto report = parts_[0].session->Check(*parts_[0].tree, {.quiet_tree = true});
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_THAT(report->problems, testing::IsEmpty());
    return *std::move(report);
  }
  struct Round {
    uint64_t records = 0;
    CheckReport full, emptied;
  };
  std::vector<Round> Rounds() {
    std::vector<Round> rounds;
    std::vector<uint64_t> ends;
    while (rounds.size() < kRounds && !HasFailure()) {
      Round& round = rounds.emplace_back();
      round.records = Fill(&ends);
      round.full = CheckTree();
      UseWhileFull(ends);
      EraseAll(ends);
      round.emptied = CheckTree();
    }
    return rounds;
  }

  IntegrationCluster cluster_{{.memory_servers = GetParam(),
                               .main_bytes = kMainBytes,
                               .lock_words = 1024,
                               .chunk_bytes = 64 << 10}};
  std::vector<Part> parts_;
};
INSTANTIATE_TEST_SUITE_P(MemoryServers, CapacityTest, testing::Values(1, 2),
                         testing::PrintToStringParamName());

TEST_P(CapacityTest, IsTheSameInEveryRound) {
  if (!IntegrationCluster::kWithOneSession) GTEST_SKIP() << "one session";
  AddParts(1);
  const std::vector<Round> rounds = Rounds();
  EXPECT_GT(rounds[0].records, kMainBytes / 64 * static_cast<uint64_t>(GetParam()));
  for (const Round& round : rounds) {
    EXPECT_EQ(round.records, rounds[0].records);
    EXPECT_EQ(round.full.nodes.reachable, rounds[0].full.nodes.reachable);
    EXPECT_EQ(round.full.nodes.free, 0u);
    EXPECT_EQ(round.emptied.nodes.reachable, 1u) << "it begins as a fresh tree does";
  }
}

class SharedCapacityTest : public CapacityTest {};
INSTANTIATE_TEST_SUITE_P(MemoryServers, SharedCapacityTest, testing::Values(2),
                         testing::PrintToStringParamName());

// The nodes are as many in every round. How many records they hold is another thing each time: it
// depends on the order of the inserts which leaves have just been split when the last node goes,
// and who is refused first. Leaves are between half full and full, so this is a bound for the
// leaves' fill, not for the capacity.
TEST_P(SharedCapacityTest, IsTheSameForSeveralClients) {
  AddParts(4);
  const std::vector<Round> rounds = Rounds();
  const auto first = static_cast<double>(rounds[0].records);
  for (const Round& round : rounds) {
    EXPECT_NEAR(static_cast<double>(round.records), first, 0.25 * first);
    const NodeAccounting &full = round.full.nodes, &begin = rounds[0].full.nodes;
    EXPECT_EQ(full.reachable + full.held, begin.reachable + begin.held);
    EXPECT_LE(full.held, parts_.size());
    EXPECT_EQ(full.free, 0u);
  }
}

}  // namespace
}  // namespace pando
