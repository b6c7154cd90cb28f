// Event-driven: the runner drives the scheduler, time is virtual.
#include <cstdint>
#include <utility>
#include <vector>

#include "common/sched/fake_endpoint.h"
#include "common/sched/scheduler.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(SchedulerEventTest, TheRunnerDrivesTasksChainsAndTimers) {
  FakeWorld world;
  FakeEventEndpoint endpoint(&world, 2'000);
  Scheduler scheduler(&endpoint);
  std::vector<int64_t> times;
  scheduler.Spawn([&] {
    times.push_back(world.NowNs());
    Chain chain(1);
    scheduler.Await(&chain);
    times.push_back(world.NowNs());
    scheduler.Yield();
    scheduler.SleepUntil(50'000);
    times.push_back(world.NowNs());
    EXPECT_EQ(scheduler.Call(1, "lost", 60'000).status().code(),
              absl::StatusCode::kDeadlineExceeded);
    times.push_back(world.NowNs());
  });
  world.RunAll();
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(times, (std::vector<int64_t>{1'000, 3'000, 50'000, 60'000}));
  EXPECT_LT(world.ran(), 20u);
}

TEST(SchedulerEventTest, RunUntilDrivesTheWorldFromOutside) {
  FakeWorld world;
  FakeEventEndpoint one(&world, 2'000), two(&world, 3'000);
  Scheduler first(&one), second(&two);
  Parking parking(&first);
  bool unparked = false;
  first.Spawn([&] { unparked = parking.ParkUntil(1'000'000); });
  second.Spawn([&] {
    Chain chain(1);
    second.Await(&chain);
    parking.Unpark();  // another session on the same thread
  });
  first.Drain();
  EXPECT_TRUE(unparked);
  EXPECT_LT(world.NowNs(), 10'000);
  second.Drain();
}

TEST(SchedulerEventTest, ARunnerCalledInsideATaskIsTolerated) {
  FakeWorld world;
  FakeEventEndpoint endpoint(&world, 2'000);
  Scheduler scheduler(&endpoint);
  int inside = 0, ran = 0;
  scheduler.Spawn([&] {
    ++inside;
    scheduler.Spawn([&] {
      EXPECT_EQ(inside, 0);
      ++ran;
    });
    endpoint.Run();
    EXPECT_FALSE(scheduler.RunReady());
    --inside;
  });
  world.RunAll();
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(scheduler.idle());
}

TEST(SchedulerEventTest, PostedTasksRunThroughAWakeUp) {
  FakeWorld world;
  FakeEventEndpoint endpoint(&world, 2'000);
  Scheduler scheduler(&endpoint);
  bool ran = false;
  scheduler.Post([&] { ran = true; });
  world.RunAll();
  EXPECT_TRUE(ran);
}

TEST(SchedulerEventTest, TheSameInputsGiveTheSameOrder) {
  const auto run = [] {
    FakeWorld world;
    FakeEventEndpoint endpoint(&world, 2'000);
    Scheduler scheduler(&endpoint, {.coroutines_max = 5});
    std::vector<std::pair<int, int64_t>> trace;
    for (int i = 0; i < 40; ++i) {
      scheduler.Spawn([&, i] {
        Chain chain(1);
        scheduler.Await(&chain);
        scheduler.SleepUntil(world.NowNs() + (i * 37) % 11 * 500);
        trace.emplace_back(i, world.NowNs());
      });
    }
    world.RunAll();
    return trace;
  };
  const auto first = run();
  EXPECT_EQ(first.size(), 40u);
  EXPECT_EQ(first, run());
}

}  // namespace
}  // namespace pando
