// What callbacks of the program throw ends at the library's border, and is said there.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bench/integration/integration_cluster.h"
#include "pando/executor.h"
#include "pando/log.h"

namespace pando {
namespace {

using Kind = Operation::Kind;

// Lines in the log that contain a word, while this lives.
class LinesWith {
 public:
  explicit LinesWith(std::string word) : word_(std::move(word)) {
    SetLogSink([this](const LogRecord& record) {
      if (record.message.find(word_) != std::string_view::npos) ++lines_;
    });
  }
  ~LinesWith() { SetLogSink(nullptr); }
  int count() const { return lines_; }

 private:
  const std::string word_;
  std::atomic<int> lines_ = 0;
};

class ThrownTest : public OneTreeTest {
 protected:
  // So many that nodes are written before the last of them.
  static constexpr int kKeys = 5'000;
  absl::Status LoadUntil(int throws_at, const std::function<void()>& thrower) {
    int next = 0;
    return session_->BulkLoad(*tree_, [&](KeyValue* entry) {
      if (next == throws_at) thrower();
      if (next == kKeys) return false;
      entry->key = std::to_string(100'000 + next++);
      entry->value = "v";
      return true;
    });
  }
  size_t Rows() {
    std::vector<KeyValue> rows;
    EXPECT_OK(session_->Scan(*tree_, "", SIZE_MAX, &rows));
    return rows.size();
  }
};

TEST_F(ThrownTest, ABulkLoadWhoseCallbackThrowsLoadsNothing) {
  for (const int at : {0, 1, kKeys / 2, kKeys}) {
    const absl::Status status = LoadUntil(at, [] { throw std::runtime_error("no more of it"); });
    EXPECT_CODE(status, Cancelled);
    EXPECT_NE(status.message().find("no more of it"), std::string::npos) << status;
    EXPECT_NE(status.message().find("nothing was loaded"), std::string::npos) << status;
    EXPECT_EQ(Rows(), 0u) << "at entry " << at;
  }
  EXPECT_CODE(LoadUntil(3, [] { throw 7; }), Cancelled);
  // The session goes on, and so does the tree, none of whose memory is lost.
  ASSERT_OK(LoadUntil(-1, [] {}));
  EXPECT_EQ(Rows(), static_cast<size_t>(kKeys));
  const auto report = session_->Check(*tree_, {.quiet_tree = true});
  ASSERT_OK(report);
  EXPECT_TRUE(report->ok()) << report->problems.front();
}

TEST_F(ThrownTest, InsideATaskItIsTheCallThatSaysIt) {
  absl::Status status;
  session_->Spawn(
      [&] { status = LoadUntil(kKeys / 2, [] { throw std::runtime_error("in a task"); }); });
  EXPECT_NO_THROW(session_->Run()) << "the call has said it";
  EXPECT_CODE(status, Cancelled);
  EXPECT_EQ(Rows(), 0u);
}

TEST_F(ThrownTest, AnExecutorGoesOnWhenACallbackThrows) {
  auto created = Executor::Create(client_.get(), {.workers = 1});
  ASSERT_OK(created);
  auto executor = *std::move(created);
  const LinesWith lines("the callback's fault");
  constexpr int kThrowing = 100;
  std::atomic<int> called = 0;
  const auto throws = [&](OperationResult result) {
    EXPECT_OK(result.status);
    ++called;
    throw std::runtime_error("the callback's fault");
  };
  for (int i = 0; i < kThrowing; ++i) {
    ASSERT_OK(executor->Submit(*tree_, {.kind = Kind::kPut, .key = std::to_string(i), .value = "v"},
                               throws));
  }
  ASSERT_OK(executor->Submit(*tree_, {.kind = Kind::kGet, .key = "1"}, [&](OperationResult) {
    ++called;
    throw 7;
  }));
  while (called < kThrowing + 1) std::this_thread::yield();
  EXPECT_EQ(executor->Execute(*tree_, {.kind = Kind::kGet, .key = "1"}).value, "v");
  executor.reset();  // which ends what was submitted
  EXPECT_EQ(called, kThrowing + 1);
  EXPECT_GE(lines.count(), 1);
  EXPECT_LT(lines.count(), kThrowing) << "a line for each fills a disk";
  EXPECT_EQ(Rows(), static_cast<size_t>(kThrowing));
}

TEST_F(ThrownTest, NorDoesItMatterToOnesThatWait) {
  auto created = Executor::Create(client_.get(), {.workers = 1, .queue_max = 4});
  ASSERT_OK(created);
  for (int i = 0; i < 64; ++i) {  // none of them stays in the count of those that wait
    std::mutex mutex;
    std::condition_variable ended;
    bool done = false;
    ASSERT_OK((*created)->Submit(*tree_, {.kind = Kind::kPut, .key = "k", .value = "v"},
                                 [&](OperationResult) {
                                   {
                                     std::lock_guard lock(mutex);
                                     done = true;
                                     ended.notify_one();
                                   }
                                   throw std::runtime_error("again");
                                 }));
    std::unique_lock lock(mutex);
    ended.wait(lock, [&] { return done; });
  }
}

}  // namespace
}  // namespace pando
