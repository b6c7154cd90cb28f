#include "common/sched/scheduler.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/sched/fake_endpoint.h"
#include "common/sched/stack_room.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using Mode = FakeEndpoint::Mode;

TEST(SchedulerTest, RunsTasksInOrderAndOnlyFromRunReady) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  std::vector<int> order;
  for (int i = 0; i < 5; ++i) {
    scheduler.Spawn([&order, i] { order.push_back(i); });
  }
  EXPECT_TRUE(order.empty());
  EXPECT_FALSE(scheduler.idle());
  EXPECT_TRUE(scheduler.RunReady());
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_TRUE(scheduler.idle());
  EXPECT_FALSE(scheduler.RunReady());
}

TEST(SchedulerTest, TellsWhoseCoroutineRuns) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  Scheduler* seen = nullptr;
  EXPECT_EQ(Scheduler::Current(), nullptr);
  scheduler.Spawn([&] { seen = Scheduler::Current(); });
  scheduler.Drain();
  EXPECT_EQ(seen, &scheduler);
  EXPECT_EQ(Scheduler::Current(), nullptr);
}

TEST(SchedulerTest, WaitsForAChain) {
  FakeEndpoint endpoint(Mode::kManual);
  Scheduler scheduler(&endpoint);
  Chain chain(1);
  bool after = false;
  scheduler.Spawn([&] {
    scheduler.Await(&chain);
    after = true;
  });
  scheduler.RunReady();
  EXPECT_FALSE(after);
  EXPECT_EQ(endpoint.in_flight(), 1u);
  EXPECT_EQ(scheduler.active_tasks(), 1u);
  endpoint.FinishOldest();
  scheduler.Drain();
  EXPECT_TRUE(after);
  EXPECT_TRUE(chain.done());
  EXPECT_EQ(scheduler.active_tasks(), 0u);
}

TEST(SchedulerTest, WaitsForAllChains) {
  FakeEndpoint endpoint(Mode::kManual);
  Scheduler scheduler(&endpoint);
  Chain a(1), b(2), c(3);
  std::array<Chain*, 3> chains = {&a, &b, &c};
  bool after = false;
  scheduler.Spawn([&] {
    scheduler.AwaitAll(chains);
    after = true;
  });
  for (int i = 0; i < 3; ++i) {
    scheduler.RunReady();
    EXPECT_FALSE(after);
    ASSERT_EQ(endpoint.in_flight(), 3u - i);  // posted together
    endpoint.FinishOldest();
    endpoint.Poll();
  }
  scheduler.RunReady();
  EXPECT_TRUE(after);
}

TEST(SchedulerTest, AFailedChainIsTheCallersAffair) {
  FakeEndpoint endpoint(Mode::kDelayed, 1'000);
  endpoint.FailChains(absl::UnavailableError("server 1 is gone"));
  Scheduler scheduler(&endpoint);
  absl::Status status;
  scheduler.Spawn([&] {
    Chain chain(1);
    scheduler.Await(&chain);
    status = chain.status();
  });
  scheduler.Drain();
  EXPECT_EQ(status, absl::UnavailableError("server 1 is gone"));
}

TEST(SchedulerTest, AwaitingNothingReturns) {
  FakeEndpoint endpoint(Mode::kManual);
  Scheduler scheduler(&endpoint);
  bool after = false;
  scheduler.Spawn([&] {
    scheduler.AwaitAll({});
    after = true;
  });
  scheduler.Drain();
  EXPECT_TRUE(after);
}

// Chains that are done at once cost no switch, but a task that never waits must not keep others
// out.
TEST(SchedulerTest, ATaskThatNeverWaitsGivesWay) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  std::vector<char> order;
  for (char name : {'a', 'b'}) {
    scheduler.Spawn([&scheduler, &order, name] {
      Chain chain(1);
      for (int i = 0; i < 1'000; ++i) {
        chain.Reset(1);
        scheduler.Await(&chain);
        order.push_back(name);
      }
    });
  }
  scheduler.RunReady();
  const auto first_b = std::find(order.begin(), order.end(), 'b') - order.begin();
  EXPECT_GT(first_b, 1);
  EXPECT_LE(first_b, 64);
  scheduler.Drain();
  int longest = 0, run = 0;
  for (size_t i = 1; i < 1'900; ++i) {
    run = order[i] == order[i - 1] ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  EXPECT_LE(longest, 64);
}

TEST(SchedulerTest, YieldPutsATaskBehindTheOthers) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    scheduler.Spawn([&, i] {
      order.push_back(i);
      scheduler.Yield();
      order.push_back(10 + i);
    });
  }
  scheduler.Drain();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 10, 11, 12}));
}

TEST(SchedulerTest, SleepersWakeInOrderOfTime) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  std::vector<int> order;
  const int64_t start_ns = scheduler.NowNs();
  for (int i : {3, 1, 2}) {
    scheduler.Spawn([&, i] {
      scheduler.SleepUntil(start_ns + i * 5 * kMillisecondNs);
      order.push_back(i);
    });
  }
  scheduler.Drain();
  EXPECT_EQ(order, (std::vector<int>{1, 2, 3}));
  EXPECT_GE(scheduler.NowNs() - start_ns, 15 * kMillisecondNs);
  EXPECT_LT(endpoint.polls(), 1'000);  // it slept, it did not spin
}

TEST(SchedulerTest, SleepingUntilThePastIsAYield) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  int turns = 0;
  scheduler.Spawn([&] {
    scheduler.SleepUntil(0);
    ++turns;
    scheduler.SleepUntil(scheduler.NowNs());
    ++turns;
  });
  scheduler.Drain();
  EXPECT_EQ(turns, 2);
}

TEST(SchedulerTest, CallsReturnTheReplyOrTheDeadline) {
  FakeEndpoint endpoint(Mode::kImmediate);
  endpoint.Reply("ping", "pong");
  Scheduler scheduler(&endpoint);
  absl::StatusOr<std::string> ping, lost;
  int64_t lost_ns = 0;
  scheduler.Spawn([&] { ping = scheduler.Call(1, "ping", kNeverNs); });
  scheduler.Spawn([&] {
    const int64_t start_ns = scheduler.NowNs();
    lost = scheduler.Call(1, "lost", start_ns + 20 * kMillisecondNs);
    lost_ns = scheduler.NowNs() - start_ns;
  });
  scheduler.Drain();
  EXPECT_EQ(*ping, "pong");
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_GE(lost_ns, 20 * kMillisecondNs);
}

TEST(SchedulerTest, CoroutinesAreBoundedAndQueuedTasksFollowInOrder) {
  FakeEndpoint endpoint(Mode::kManual);
  Scheduler scheduler(&endpoint, {.coroutines_max = 4});
  std::array<Chain, 20> chains;
  std::vector<int> finished;
  for (int i = 0; i < 20; ++i) {
    scheduler.Spawn([&, i] {
      chains[i].Reset(1);
      scheduler.Await(&chains[i]);
      finished.push_back(i);
    });
  }
  while (!scheduler.idle()) {
    scheduler.RunReady();
    EXPECT_LE(scheduler.active_tasks(), 4u);
    EXPECT_LE(endpoint.in_flight(), 4u);
    if (endpoint.in_flight() > 0) endpoint.FinishOldest();
    endpoint.Poll();
  }
  ASSERT_EQ(finished.size(), 20u);
  EXPECT_TRUE(std::is_sorted(finished.begin(), finished.end()));
}

// Else the last mapping goes to a stack, and malloc() has none.
TEST(SchedulerTest, ManySchedulersGoOnWithFewCoroutines) {
  sched::StackRoom room(/*mappings_max=*/32);  // 8 stacks, and 4 that are needed
  FakeEndpoint endpoint(Mode::kManual);
  const auto run = [&](Scheduler* scheduler) {
    std::array<Chain, 10> chains;
    size_t most = 0;
    for (Chain& chain : chains) {
      chain.Reset(1);
      scheduler->Spawn([&] { scheduler->Await(&chain); });
    }
    while (!scheduler->idle()) {
      scheduler->RunReady();
      most = std::max(most, scheduler->active_tasks());
      if (endpoint.in_flight() > 0) endpoint.FinishOldest();
      endpoint.Poll();
    }
    return most;
  };
  const Scheduler::Options options{
      .coroutines_max = 6, .coroutines_needed = 2, .stack_room = &room};
  auto first = std::make_unique<Scheduler>(&endpoint, options);
  EXPECT_EQ(run(first.get()), 6u);
  {
    Scheduler second(&endpoint, options), third(&endpoint, options), fourth(&endpoint, options);
    EXPECT_EQ(run(&second), 2u);
    EXPECT_EQ(run(&third), 2u);
    EXPECT_TRUE(fourth.Prepare());
    Scheduler fifth(&endpoint, options), sixth(&endpoint, options);
    EXPECT_TRUE(fifth.Prepare());
    EXPECT_FALSE(sixth.Prepare());
    EXPECT_EQ(run(&second), 2u);
    first.reset();
    EXPECT_TRUE(sixth.Prepare());
    EXPECT_EQ(run(&second), 3u) << "there is room again";
  }
  Scheduler last(&endpoint, options);
  EXPECT_EQ(run(&last), 6u);
}

// Its tasks may wait for one another.
TEST(SchedulerTest, WhoNeedsMoreCoroutinesThanThereIsRoomForIsRefused) {
  sched::StackRoom room(/*mappings_max=*/32);
  while (room.TryTake(/*is_needed=*/true)) continue;
  room.Give(1);
  FakeEndpoint endpoint(Mode::kManual);
  const Scheduler::Options options{
      .coroutines_max = 6, .coroutines_needed = 2, .stack_room = &room};
  {
    Scheduler scheduler(&endpoint, options);
    EXPECT_FALSE(scheduler.Prepare(2));
    EXPECT_TRUE(scheduler.Prepare(1)) << "that one is there";
  }
  room.Give(1);
  Scheduler scheduler(&endpoint, options);
  EXPECT_TRUE(scheduler.Prepare(2));
  EXPECT_FALSE(room.TryTake(/*is_needed=*/true));
  int ended = 0;
  Parking parking(&scheduler);
  scheduler.Spawn([&] {
    parking.ParkUntil(kNeverNs);
    ++ended;
  });
  scheduler.Spawn([&] {
    parking.Unpark();
    ++ended;
  });
  scheduler.Drain();
  EXPECT_EQ(ended, 2);
}

TEST(SchedulerTest, TasksSpawnTasks) {
  FakeEndpoint endpoint(Mode::kDelayed, 1'000);
  Scheduler scheduler(&endpoint, {.coroutines_max = 3});
  int leaves = 0;
  std::function<void(int)> grow = [&](int depth) {
    Chain chain(1);
    scheduler.Await(&chain);
    if (depth == 0) {
      ++leaves;
      return;
    }
    for (int i = 0; i < 2; ++i) scheduler.Spawn([&grow, depth] { grow(depth - 1); });
  };
  scheduler.Spawn([&] { grow(7); });
  scheduler.Drain();
  EXPECT_EQ(leaves, 128);
}

TEST(SchedulerTest, WhatATaskHoldsIsFreedBeforeItCountsAsFinished) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  auto token = std::make_shared<int>(1);
  scheduler.Spawn([token] {});
  scheduler.Drain();
  EXPECT_EQ(token.use_count(), 1);
}

TEST(SchedulerTest, StartStopStart) {
  FakeEndpoint endpoint(Mode::kDelayed, 1'000);
  for (int round = 0; round < 20; ++round) {
    Scheduler scheduler(&endpoint, {.coroutines_max = 8});
    int done = 0;
    for (int i = 0; i < 30; ++i) {
      scheduler.Spawn([&] {
        Chain chain(1);
        scheduler.Await(&chain);
        ++done;
      });
    }
    scheduler.Drain();
    EXPECT_EQ(done, 30);
  }
  EXPECT_EQ(endpoint.in_flight(), 0u);
}

TEST(SchedulerTest, DestructionRunsWhatWasAcceptedButNotStarted) {
  FakeEndpoint endpoint(Mode::kDelayed, 1'000);
  int done = 0;
  {
    Scheduler scheduler(&endpoint);
    const auto task = [&] {
      Chain chain(1);
      scheduler.Await(&chain);
      EXPECT_FALSE(scheduler.Post([] {}));  // shutting down
      ++done;
    };
    scheduler.Spawn(task);
    EXPECT_TRUE(scheduler.Post(task));
  }
  EXPECT_EQ(done, 2);
}

TEST(SchedulerTest, DestructionWithAnUnfinishedTaskIsOurBug) {
  EXPECT_DEATH(
      {
        FakeEndpoint endpoint(Mode::kManual);
        Chain chain(1);
        Scheduler scheduler(&endpoint);
        scheduler.Spawn([&] { scheduler.Await(&chain); });
        scheduler.RunReady();
      },
      "unfinished");
}

TEST(SchedulerTest, SuspendingOutsideACoroutineIsOurBug) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  EXPECT_DEATH(scheduler.Yield(), "outside of a coroutine");
  Chain chain(1);
  EXPECT_DEATH(scheduler.Await(&chain), "outside of a coroutine");
}

TEST(SchedulerTest, PostsFromManyThreadsAllRunOnTheOwner) {
  FakeEndpoint endpoint(Mode::kDelayed, 1'000);
  Scheduler scheduler(&endpoint, {.coroutines_max = 8});
  constexpr int kThreads = 4, kTasks = 500;
  int ran = 0;  // owner's thread only: TSan would see anything else
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kTasks; ++i) {
        ASSERT_TRUE(scheduler.Post([&] {
          Chain chain(1);
          if (ran % 7 == 0) scheduler.Await(&chain);
          ++ran;
        }));
        if (i % 50 == 0) std::this_thread::yield();
      }
    });
  }
  scheduler.RunUntil([&] { return ran == kThreads * kTasks; });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(ran, kThreads * kTasks);
}

TEST(SchedulerTest, APostWakesASleepingSession) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  for (int round = 0; round < 200; ++round) {
    bool ran = false;
    std::thread poster([&] {
      if (round % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
      scheduler.Post([&] { ran = true; });
    });
    scheduler.RunUntil([&] { return ran; });
    poster.join();
  }
  EXPECT_LE(endpoint.wakes(), 200);
}

TEST(SchedulerTest, ASessionThatIsAwakeIsNotWoken) {
  FakeEndpoint endpoint(Mode::kImmediate);
  Scheduler scheduler(&endpoint);
  int ran = 0;
  scheduler.Spawn([&] {
    std::thread([&] {
      for (int i = 0; i < 100; ++i) scheduler.Post([&] { ++ran; });
    }).join();
  });
  scheduler.Drain();
  EXPECT_EQ(ran, 100);
  EXPECT_EQ(endpoint.wakes(), 0);
}

}  // namespace
}  // namespace pando
