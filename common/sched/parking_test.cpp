#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "common/sched/fake_endpoint.h"
#include "common/sched/scheduler.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using Mode = FakeEndpoint::Mode;

class ParkingTest : public ::testing::Test {
 protected:
  int64_t In(int64_t ns) { return scheduler_.NowNs() + ns; }

  FakeEndpoint endpoint_{Mode::kImmediate};
  Scheduler scheduler_{&endpoint_};
};

TEST_F(ParkingTest, AnEarlyUnparkIsRememberedOnce) {
  Parking parking(&scheduler_);
  parking.Unpark();
  parking.Unpark();
  bool first = false, second = true;
  scheduler_.Spawn([&] {
    first = parking.ParkUntil(kNeverNs);
    second = parking.ParkUntil(In(kMillisecondNs));
  });
  scheduler_.Drain();
  EXPECT_TRUE(first);
  EXPECT_FALSE(second);
}

TEST_F(ParkingTest, TimePasses) {
  Parking parking(&scheduler_);
  bool unparked = true;
  const int64_t deadline_ns = In(5 * kMillisecondNs);
  scheduler_.Spawn([&] { unparked = parking.ParkUntil(deadline_ns); });
  scheduler_.Drain();
  EXPECT_FALSE(unparked);
  EXPECT_GE(scheduler_.NowNs(), deadline_ns);
}

TEST_F(ParkingTest, ACoroutineWakesAnother) {
  Parking parking(&scheduler_);
  std::vector<int> order;
  scheduler_.Spawn([&] {
    EXPECT_TRUE(parking.ParkUntil(In(kSecondNs)));
    order.push_back(2);
  });
  scheduler_.Spawn([&] {
    parking.Unpark();
    order.push_back(1);  // resumed later, never from inside Unpark()
  });
  scheduler_.Drain();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
  EXPECT_EQ(endpoint_.wakes(), 0);
}

// The time and the wake-up come in one turn of the loop: the wait ends once and says "unparked".
TEST_F(ParkingTest, TimeAndUnparkTogether) {
  Parking parking(&scheduler_);
  int ended = 0;
  bool unparked = false;
  const int64_t deadline_ns = In(2 * kMillisecondNs);
  scheduler_.Spawn([&] {
    while (scheduler_.NowNs() < deadline_ns) {
    }
    // The parked coroutine's timer is due now; its Unpark comes in the same turn.
    scheduler_.Yield();
    parking.Unpark();
  });
  scheduler_.Spawn([&] {
    unparked = parking.ParkUntil(deadline_ns);
    ++ended;
    EXPECT_FALSE(parking.ParkUntil(In(kMillisecondNs)));
    ++ended;
  });
  scheduler_.Drain();
  EXPECT_EQ(ended, 2);
}

TEST_F(ParkingTest, AStaleLetterDoesNotEndALaterWait) {
  Parking parking(&scheduler_);
  std::vector<bool> results;
  scheduler_.Spawn([&] {
    const int64_t deadline_ns = In(kMillisecondNs);
    std::thread unparker;
    // While this coroutine is parked another one sees the deadline pass and lets a thread unpark:
    // the letter arrives after the timer has ended the wait.
    scheduler_.Spawn([&] {
      while (scheduler_.NowNs() < deadline_ns) {
      }
      std::thread([&] { parking.Unpark(); }).join();
    });
    results.push_back(parking.ParkUntil(deadline_ns));
    results.push_back(parking.ParkUntil(In(3 * kMillisecondNs)));
  });
  scheduler_.Drain();
  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(results[0]);
  EXPECT_FALSE(results[1]);
}

// It is in the mailbox when the last task has ended, and wakes nobody.
TEST(ParkingMailTest, ALateWakeUpDoesNotHoldUpDrain) {
  struct : FakeEndpoint {
    using FakeEndpoint::FakeEndpoint;
    void Wait(int64_t) override { ++sleeps; }  // until the next look, not for ever
    int sleeps = 0;
  } endpoint{FakeEndpoint::Mode::kImmediate};
  Scheduler scheduler(&endpoint);
  Parking parking(&scheduler);
  bool unparked = false;
  // Both are due at once. The first one's wake-up comes when the second one's time has.
  scheduler.Spawn([&] {
    scheduler.SleepUntil(1);
    std::thread([&] { parking.Unpark(); }).join();
  });
  scheduler.Spawn([&] { unparked = parking.ParkUntil(2); });
  scheduler.Drain();
  EXPECT_TRUE(unparked);
  EXPECT_TRUE(scheduler.idle());
  EXPECT_EQ(endpoint.sleeps, 0);
}

TEST_F(ParkingTest, ParkingOutsideIsOurBug) {
  Parking parking(&scheduler_);
  EXPECT_DEATH(parking.ParkUntil(0), "outside of a coroutine");
}

// One session hands a token to another and back, many times: a lost wake-up hangs, a doubled one is
// counted.
TEST(ParkingRaceTest, PingPongBetweenTwoThreads) {
  constexpr int kRounds = 5'000;
  FakeEndpoint endpoints[2] = {FakeEndpoint(Mode::kImmediate), FakeEndpoint(Mode::kImmediate)};
  Scheduler schedulers[2] = {Scheduler(&endpoints[0]), Scheduler(&endpoints[1])};
  Parking places[2] = {Parking(&schedulers[0]), Parking(&schedulers[1])};
  int token = 0;  // passed on, never shared
  const auto play = [&](int me) {
    schedulers[me].Spawn([&, me] {
      for (int i = 0; i < kRounds; ++i) {
        ASSERT_TRUE(places[me].ParkUntil(kNeverNs));
        ++token;
        places[1 - me].Unpark();
      }
    });
    schedulers[me].Drain();
  };
  std::thread other([&] { play(1); });
  places[0].Unpark();
  play(0);
  other.join();
  EXPECT_EQ(token, 2 * kRounds);
}

// Waits with short deadlines against late wake-ups from several threads. The parking is shared, as
// callers share it, and the session goes away while wake-ups may still be on their way.
TEST(ParkingRaceTest, DeadlinesAgainstUnparks) {
  Random seeds(11);
  for (int round = 0; round < 30; ++round) {
    FakeEndpoint endpoint(Mode::kImmediate);
    std::vector<std::thread> threads;
    std::atomic<int> unparked{0}, timed_out{0};
    {
      Scheduler scheduler(&endpoint, {.coroutines_max = 8});
      std::vector<std::shared_ptr<Parking>> places;
      for (int i = 0; i < 8; ++i) places.push_back(std::make_shared<Parking>(&scheduler));
      for (int t = 0; t < 2; ++t) {
        threads.emplace_back([places, seed = seeds.Next()] {
          Random random(seed);
          for (int i = 0; i < 400; ++i) {
            places[random.Uniform(places.size())]->Unpark();
            if (random.Chance(0.2)) std::this_thread::yield();
          }
        });
      }
      for (const auto& place : places) {
        scheduler.Spawn([&, place] {
          Random random(round);
          for (int i = 0; i < 20; ++i) {
            const auto wait_ns = static_cast<int64_t>(random.Uniform(50'000));
            (place->ParkUntil(scheduler.NowNs() + wait_ns) ? unparked : timed_out) += 1;
          }
        });
      }
      scheduler.Drain();
      EXPECT_EQ(unparked + timed_out, 8 * 20);
    }
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace pando
