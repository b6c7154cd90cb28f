// Who waits for another's READ: woken once, and free to go.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "compute/hot/partition.h"

namespace pando {
namespace {

struct Recorder : LoadWaiter {
  Recorder() {
    wake = [](LoadWaiter* self) {
      auto* const recorder = static_cast<Recorder*>(self);
      recorder->order->push_back(recorder);
    };
  }
  std::vector<Recorder*>* order = nullptr;
};

class LoadTest : public testing::Test {
 protected:
  LoadTest() {
    for (Recorder& waiter : waiters_) {
      waiter.order = &woken_;
      partition_.Wait(partition_.Find("key").record, &waiter);
    }
  }
  void ExpectAllWoken(LoadWaiter::Outcome outcome) {
    ASSERT_EQ(woken_.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(woken_[i], &waiters_[i]) << "in the order of their arrival";
      EXPECT_EQ(waiters_[i].outcome, outcome);
      EXPECT_FALSE(partition_.StopWaiting("key", &waiters_[i]));
    }
  }

  Partition partition_;
  const Load load_ = partition_.BeginLoad("key");
  Recorder waiters_[3];
  std::vector<Recorder*> woken_;
};

TEST_F(LoadTest, AnAnswerWakesAllAndIsKeptForThem) {
  EXPECT_TRUE(partition_.EndLoad("key", load_, "value", /*keep=*/false));
  ExpectAllWoken(LoadWaiter::Outcome::kLook);
  EXPECT_EQ(partition_.Find("key").value, "value");
}

TEST_F(LoadTest, AnAnswerThatNobodyWaitsForIsNotKept) {
  for (Recorder& waiter : waiters_) EXPECT_TRUE(partition_.StopWaiting("key", &waiter));
  EXPECT_TRUE(partition_.EndLoad("key", load_, "value", /*keep=*/false));
  EXPECT_TRUE(woken_.empty());
  EXPECT_EQ(partition_.Find("key").state, RecordState::kAbsent);
}

// Else each of them would READ the leaf after the other.
TEST_F(LoadTest, NotFoundIsSaidToAllWhoWait) {
  EXPECT_TRUE(partition_.EndLoad("key", load_, std::nullopt, true));
  ExpectAllWoken(LoadWaiter::Outcome::kNotFound);
  EXPECT_EQ(partition_.Find("key").state, RecordState::kAbsent);
}

TEST_F(LoadTest, AFailureLetsThemTry) {
  EXPECT_TRUE(partition_.AbandonLoad("key", load_));
  ExpectAllWoken(LoadWaiter::Outcome::kLook);
  EXPECT_EQ(partition_.Find("key").state, RecordState::kAbsent);
  EXPECT_FALSE(partition_.EndLoad("key", load_, "late", true));
}

TEST_F(LoadTest, AMessageWakesThem) {
  partition_.Put("key", "new", 1);
  ExpectAllWoken(LoadWaiter::Outcome::kLook);
}

TEST_F(LoadTest, DroppingWakesThem) {
  partition_.Drop();
  ExpectAllWoken(LoadWaiter::Outcome::kLook);
}

TEST_F(LoadTest, WhoStopsWaitingIsNotWoken) {
  EXPECT_TRUE(partition_.StopWaiting("key", &waiters_[0]));
  EXPECT_FALSE(partition_.StopWaiting("key", &waiters_[0]));
  EXPECT_TRUE(partition_.EndLoad("key", load_, "value", false));
  EXPECT_EQ(woken_, (std::vector<Recorder*>{&waiters_[1], &waiters_[2]}));
}

TEST_F(LoadTest, AWaiterMayWaitAgain) {
  ASSERT_TRUE(partition_.AbandonLoad("key", load_));
  const Load again = partition_.BeginLoad("key");
  partition_.Wait(partition_.Find("key").record, &waiters_[1]);
  EXPECT_EQ(waiters_[1].outcome, LoadWaiter::Outcome::kWaiting);
  EXPECT_TRUE(partition_.EndLoad("key", again, std::nullopt, false));
  EXPECT_EQ(waiters_[1].outcome, LoadWaiter::Outcome::kNotFound);
  EXPECT_EQ(woken_.size(), 4u);
}

// A thread that waits in its own frame, with a deadline that mostly passes.
struct ThreadWaiter : LoadWaiter {
  ThreadWaiter() {
    wake = [](LoadWaiter* self) { static_cast<ThreadWaiter*>(self)->changed.notify_one(); };
  }
  std::condition_variable_any changed;
};

TEST(LoadThreadsTest, WaitersComeAndGoWhileReadsEnd) {
  Partition partition;
  constexpr int kThreads = 4, kTurns = 3000;
  std::vector<std::thread> threads;
  std::atomic<int> answers{0}, passed{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Random random(static_cast<uint64_t>(t));
      for (int turn = 0; turn < kTurns; ++turn) {
        const std::string key(1, static_cast<char>('a' + random.Uniform(2)));
        std::unique_lock lock(partition.mutex());
        const Partition::View view = partition.Find(key);
        if (view.state == RecordState::kAbsent) {
          const Load load = partition.BeginLoad(key);
          lock.unlock();
          std::this_thread::yield();  // the READ
          lock.lock();
          if (random.Chance(0.1)) {
            partition.AbandonLoad(key, load);
          } else {
            partition.EndLoad(key, load, "value", random.Chance(0.5));
          }
        } else if (view.state == RecordState::kLoading) {
          ThreadWaiter waiter;
          partition.Wait(view.record, &waiter);
          waiter.changed.wait_for(lock, std::chrono::microseconds(random.Uniform(20)),
                                  [&] { return waiter.outcome != LoadWaiter::Outcome::kWaiting; });
          ++(partition.StopWaiting(key, &waiter) ? passed : answers);
        } else {
          partition.Evict(SIZE_MAX);
          partition.Evict(SIZE_MAX);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  partition.Check();
  EXPECT_GT(answers + passed, 0);
}

}  // namespace
}  // namespace pando
