// A lock word that nobody alive holds: what needs it ends at its deadline, everything else goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "common/wire/lock_word.h"

namespace pando {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr int64_t kTimeoutMs = 200;
constexpr uint64_t kCount = 5'000;

class DeadlineTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    ClientOptions options = cluster_.ClientDefaults();
    if (!GetParam()) options.techniques = Techniques::FgPlus();
    client_ = cluster_.NewClient(options);
    auto tree = client_->CreateTree("t", {});
    ASSERT_OK(tree);
    tree_ = *std::move(tree);
    session_ = NewSession();
    for (uint64_t n = 0; n < kCount; ++n)
      ASSERT_OK(session_->Put(*tree_, NumberedKey(n), "before"));
  }
  std::unique_ptr<Session> NewSession() {
    auto session = client_->NewSession();
    EXPECT_TRUE(session.ok()) << session.status();
    return *std::move(session);
  }

  struct Word {
    int server = 0;
    uint32_t index = 0;
  };
  void Store(const Word& word, uint64_t value) {
    auto* const words = reinterpret_cast<uint64_t*>(cluster_.memory(word.server).locks.data());
    std::atomic_ref<uint64_t>(words[word.index]).store(value);
  }
  void StoreAll(uint64_t value) {
    for (int server = 1; server <= 2; ++server) {
      for (uint32_t i = kRootLockWords; i < cluster_.lock_words(); ++i) Store({server, i}, value);
    }
  }
  // The word that guards a key's leaf: what a failed update says it waited for.
  Word WordOf(const std::string& key) {
    StoreAll(kForeign);
    const absl::Status status = session_->Update(*tree_, key, "no", {.timeout_ms = 20});
    StoreAll(LockWord::kFree);
    EXPECT_CODE(status, DeadlineExceeded);
    const std::string message(status.message());
    Word word;
    unsigned owner = 0;
    const size_t at = message.find("lock word");
    EXPECT_NE(at, std::string::npos) << message;
    EXPECT_EQ(std::sscanf(message.c_str() + std::min(at, message.size()),
                          "lock word %u of server %d held by compute server %u", &word.index,
                          &word.server, &owner),
              3)
        << message;
    EXPECT_EQ(owner, 777u);
    return word;
  }

  static constexpr uint64_t kForeign = LockWord{777, 5}.Encode();
  IntegrationCluster cluster_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Tree> tree_;
  std::unique_ptr<Session> session_;
};

TEST_P(DeadlineTest, OnlyWritesOfThatLeafWaitAndEndAtTheirDeadline) {
  const std::string key = NumberedKey(2'500);
  const Word word = WordOf(key);
  Store(word, kForeign);
  const auto start = SteadyClock::now();
  EXPECT_CODE(session_->Update(*tree_, key, "x", {.timeout_ms = kTimeoutMs}), DeadlineExceeded);
  const auto waited = SteadyClock::now() - start;
  EXPECT_GE(waited, std::chrono::milliseconds(kTimeoutMs));
  EXPECT_LT(waited, std::chrono::milliseconds(kTimeoutMs) + std::chrono::seconds(3));
  for (const absl::Status& status :
       {session_->Put(*tree_, key, "x", {.timeout_ms = 20}),
        session_->Erase(*tree_, key, {.timeout_ms = 20}),
        session_->Insert(*tree_, key + "a", "x", {.timeout_ms = 20})}) {
    EXPECT_CODE(status, DeadlineExceeded);
  }
  // Reads take no lock.
  EXPECT_EQ(session_->Get(*tree_, key).value_or("lost"), "before");
  std::vector<KeyValue> rows;
  ASSERT_OK(session_->Scan(*tree_, "", SIZE_MAX, &rows));
  EXPECT_EQ(rows.size(), kCount);
  // Nor do other leaves, but for the few that share the word.
  int others = 0, late = 0;
  for (uint64_t n = 0; n < kCount; n += 97) {
    const absl::Status status = session_->Update(*tree_, NumberedKey(n), "after",
                                                 {.timeout_ms = n == 2'500 ? 20 : kTimeoutMs});
    ++(status.ok() ? others : late);
    if (!status.ok()) {
      EXPECT_CODE(status, DeadlineExceeded);
    }
  }
  EXPECT_GT(others, 45);
  EXPECT_LE(late, 5);
  Store(word, LockWord::kFree);
  ASSERT_OK(session_->Update(*tree_, key, "free"));
  EXPECT_EQ(session_->Get(*tree_, key).value_or("lost"), "free");
}

TEST_P(DeadlineTest, EveryoneInTheQueueHasADeadlineOfItsOwn) {
  const std::string key = NumberedKey(1'234);
  const Word word = WordOf(key);
  Store(word, kForeign);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const std::unique_ptr<Session> session = NewSession();
      for (int c = 0; c < 3; ++c) {
        session->Spawn([&, t, c] {
          const int64_t timeout_ms = 50 + 60 * t + 20 * c;
          const auto start = SteadyClock::now();
          EXPECT_CODE(session->Put(*tree_, key, "x", {.timeout_ms = timeout_ms}), DeadlineExceeded);
          EXPECT_GE(SteadyClock::now() - start, std::chrono::milliseconds(timeout_ms));
        });
      }
      session->Run();
    });
  }
  for (std::thread& thread : threads) thread.join();
  Store(word, LockWord::kFree);
  EXPECT_EQ(session_->Get(*tree_, key).value_or("lost"), "before");
  ASSERT_OK(session_->Put(*tree_, key, "free"));
}

TEST_P(DeadlineTest, ATaskThatWaitsHoldsUpNoOther) {
  const std::string key = NumberedKey(42);
  const Word word = WordOf(key);
  Store(word, kForeign);
  int finished = 0;
  session_->Spawn([&] {
    EXPECT_CODE(session_->Put(*tree_, key, "x", {.timeout_ms = kTimeoutMs}), DeadlineExceeded);
    EXPECT_EQ(finished, 20);
  });
  for (int t = 0; t < 20; ++t) {
    session_->Spawn([&] {
      for (uint64_t n = 0; n < 20; ++n) ASSERT_OK(session_->Get(*tree_, NumberedKey(n * 200)));
      ++finished;
    });
  }
  session_->Run();
  EXPECT_EQ(finished, 20);
  Store(word, LockWord::kFree);
}

TEST_P(DeadlineTest, AWordThatIsFreedInTimeIsTaken) {
  const std::string key = NumberedKey(3'000);
  const Word word = WordOf(key);
  Store(word, kForeign);
  std::thread release([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    Store(word, LockWord::kFree);
  });
  EXPECT_TRUE(session_->Update(*tree_, key, "in time", {.timeout_ms = 60'000}).ok());
  release.join();
  EXPECT_EQ(session_->Get(*tree_, key).value_or("lost"), "in time");
}

INSTANTIATE_TEST_SUITE_P(Techniques, DeadlineTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "Everything" : "FgPlus";
                         });

}  // namespace
}  // namespace pando
