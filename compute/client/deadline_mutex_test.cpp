#include "compute/client/deadline_mutex.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "absl/status/status.h"

namespace pando {
namespace {

int64_t In(std::chrono::milliseconds time) {
  return std::chrono::nanoseconds((std::chrono::steady_clock::now() + time).time_since_epoch())
      .count();
}

TEST(DeadlineMutexTest, WaitsUpToTheDeadline) {
  DeadlineMutex mutex;
  {
    auto lock = mutex.LockBy(In(std::chrono::milliseconds(0)));
    ASSERT_TRUE(lock.ok()) << "free: taken at any time";
    std::thread([&] {
      EXPECT_TRUE(
          absl::IsDeadlineExceeded(mutex.LockBy(In(std::chrono::milliseconds(20))).status()));
    }).join();
  }
  // Who has given up is not waited for.
  EXPECT_TRUE(mutex.LockBy(0).ok());
}

TEST(DeadlineMutexTest, WhoComesAgainWaitsBehindThoseThatWait) {
  DeadlineMutex mutex;
  constexpr int kRounds = 20;
  int in_order = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::atomic<bool> comes = false;
    bool had_turn = false;  // under the mutex
    mutex.lock();
    std::thread waits([&] {
      comes = true;
      std::lock_guard lock(mutex);
      had_turn = true;
    });
    while (!comes) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    mutex.unlock();
    mutex.lock();
    in_order += had_turn ? 1 : 0;
    mutex.unlock();
    waits.join();
  }
  // On a busy machine the other may not have come to wait in some rounds.
  EXPECT_GT(in_order, kRounds / 2);
}

}  // namespace
}  // namespace pando
