#include "common/base/spinning_mutex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace pando {
namespace {

TEST(SpinningMutexTest, OneAtATime) {
  constexpr int kThreads = 4, kTimes = 20'000;
  SpinningMutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < kTimes; ++n) {
        const std::lock_guard lock(mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreads * kTimes);
}

TEST(SpinningMutexTest, WhoSleepsGetsItInTheEnd) {
  SpinningMutex mutex;
  std::vector<std::thread> threads;
  std::unique_lock lock(mutex);
  int count = 0;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const std::lock_guard own(mutex);
      ++count;
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // they have looked long enough
  EXPECT_EQ(count, 0);
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, 3);
}

TEST(SpinningMutexTest, TryLock) {
  SpinningMutex mutex;
  EXPECT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  EXPECT_TRUE(mutex.try_lock());
  mutex.unlock();
}

}  // namespace
}  // namespace pando
