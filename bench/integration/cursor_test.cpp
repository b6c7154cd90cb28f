// Cursors through the public API on real threads: what stays is seen once, in order, both ways,
// whatever others do meanwhile.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/base/random.h"
#include "pando/executor.h"

namespace pando {
namespace {

constexpr uint64_t kStable = 300, kEvery = 100;

class CursorIntegrationTest : public testing::Test {
 protected:
  void SetUp() override {
    client_ = cluster_.NewClient();
    auto tree = client_->CreateTree("t", {.key_bytes_max = 16, .value_bytes_max = 16});
    ASSERT_OK(tree);
    tree_ = *std::move(tree);
    session_ = NewSession();
    for (uint64_t n = 0; n < kStable; ++n) {
      ASSERT_OK(session_->Put(*tree_, Key(n * kEvery), "stable"));
    }
  }
  std::unique_ptr<Session> NewSession() {
    auto session = client_->NewSession();
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }
  static std::string Key(uint64_t n) { return "key" + std::to_string(1'000'000 + n); }

  // Fills the gaps between the stable keys and empties them again, until told to stop: leaves are
  // split and merged all the time.
  void Churn(uint64_t seed, const std::atomic<bool>& stop) {
    const std::unique_ptr<Session> session = NewSession();
    Random random(seed);
    while (!stop) {
      const uint64_t first = random.Uniform(kStable - 3) * kEvery;
      for (uint64_t n = first; n < first + 3 * kEvery && !stop; ++n) {
        if (n % kEvery == 0) continue;
        ASSERT_OK(session->Put(*tree_, Key(n), "moving"));
      }
      for (uint64_t n = first; n < first + 3 * kEvery && !stop; ++n) {
        if (n % kEvery != 0) (void)session->Erase(*tree_, Key(n));
      }
    }
  }

  // All stable keys from the walk's own beginning on, each once, and everything in order.
  static void Walk(Session& session, const Tree& tree, const CursorOptions& options) {
    const auto cursor = session.NewCursor(tree, options);
    std::string last;
    uint64_t stable = 0;
    while (cursor->Next()) {
      if (!last.empty()) {
        ASSERT_TRUE(options.reverse ? cursor->key() < last : cursor->key() > last);
      }
      last = cursor->key();
      if (cursor->value() != "stable") continue;
      ASSERT_EQ(last, Key((options.reverse ? kStable - 1 - stable : stable) * kEvery));
      ++stable;
    }
    ASSERT_OK(cursor->status());
    ASSERT_EQ(stable, kStable);
  }

  IntegrationCluster cluster_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_;
};

TEST_F(CursorIntegrationTest, WalksWhileOthersWrite) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    writers.emplace_back([this, seed, &stop] { Churn(seed, stop); });
  }
  std::vector<std::thread> readers;
  for (const bool reverse : {false, true}) {
    readers.emplace_back([this, reverse] {
      const std::unique_ptr<Session> session = NewSession();
      for (int i = 0; i < (IntegrationCluster::is_slow() ? 4 : 300); ++i) {
        Walk(*session, *tree_, {.reverse = reverse, .read_ahead = i % 10});
      }
      // Several at once, in tasks.
      for (int t = 0; t < 4; ++t) {
        session->Spawn([this, &session, reverse, t] {
          Walk(*session, *tree_, {.reverse = reverse != (t % 2 == 0), .read_ahead = t});
        });
      }
      session->Run();
    });
  }
  for (std::thread& reader : readers) reader.join();
  stop = true;
  for (std::thread& writer : writers) writer.join();
  EXPECT_GT(client_->Stats().tree.splits, 0u);
}

TEST_F(CursorIntegrationTest, TurnsWhileOthersWrite) {
  std::atomic<bool> stop{false};
  std::thread writer([this, &stop] { Churn(3, stop); });
  Random random(4);
  const auto cursor = session_->NewCursor(*tree_, {.read_ahead = 2});
  // Of the stable keys the next one, or the one before, is always seen next.
  for (int i = 0; i < (IntegrationCluster::is_slow() ? 100 : 1'000); ++i) {
    auto at = static_cast<int64_t>(random.Uniform(kStable));
    ASSERT_TRUE(cursor->Seek(Key(static_cast<uint64_t>(at) * kEvery)));
    ASSERT_EQ(cursor->key(), Key(static_cast<uint64_t>(at) * kEvery));
    for (int step = 0; step < 5; ++step) {
      const bool up = random.Chance(0.5);
      at += up ? 1 : -1;
      do {
        up ? cursor->Next() : cursor->Prev();
        ASSERT_OK(cursor->status());
      } while (cursor->Valid() && cursor->value() != "stable");
      const bool is_there = at >= 0 && at < static_cast<int64_t>(kStable);
      ASSERT_EQ(cursor->Valid(), is_there);
      if (!is_there) break;
      ASSERT_EQ(cursor->key(), Key(static_cast<uint64_t>(at) * kEvery));
    }
  }
  stop = true;
  writer.join();
}

TEST_F(CursorIntegrationTest, TheExecutorScansRanges) {
  auto executor = Executor::Create(client_.get(), {});
  ASSERT_OK(executor);
  Operation scan{.kind = Operation::Kind::kScan, .key = Key(0), .limit = SIZE_MAX};
  scan.to = Key(3 * kEvery);
  OperationResult result = (*executor)->Execute(*tree_, scan);
  ASSERT_OK(result.status);
  EXPECT_EQ(result.rows.size(), 3u);
  scan.reverse = true;
  scan.limit = 2;
  result = (*executor)->Execute(*tree_, scan);
  ASSERT_OK(result.status);
  EXPECT_EQ(result.rows,
            (std::vector<KeyValue>{{Key(2 * kEvery), "stable"}, {Key(kEvery), "stable"}}));
}

TEST_F(CursorIntegrationTest, AnotherClientsTreeIsRefused) {
  const std::unique_ptr<Client> other = cluster_.NewClient();
  const auto tree = other->OpenTree("t");
  ASSERT_OK(tree);
  const auto cursor = session_->NewCursor(**tree);
  EXPECT_FALSE(cursor->SeekToFirst());
  EXPECT_CODE(cursor->status(), InvalidArgument);
}

TEST_F(CursorIntegrationTest, EstimatesWhileOthersWrite) {
  std::atomic<bool> stop{false};
  std::thread writer([this, &stop] { Churn(5, stop); });
  for (int i = 0; i < 50; ++i) {
    const auto size = session_->EstimateSize(*tree_);
    ASSERT_OK(size);
    EXPECT_GE(size->keys, kStable / 2);
    EXPECT_LE(size->keys, kStable * kEvery);
    EXPECT_GT(size->nodes_bytes, 0u);
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace pando
