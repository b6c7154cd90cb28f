#include "common/sched/timer_heap.h"

#include <array>
#include <map>
#include <utility>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace pando::sched {
namespace {

TEST(TimerHeapTest, FiresByTimeThenByOrderOfArming) {
  TimerHeap heap;
  std::array<Timer, 4> timers;
  heap.Arm(&timers[0], 30);
  heap.Arm(&timers[1], 10);
  heap.Arm(&timers[2], 10);
  heap.Arm(&timers[3], 20);
  EXPECT_EQ(heap.next_due_ns(), 10);
  EXPECT_EQ(heap.PopDue(9), nullptr);
  EXPECT_EQ(heap.PopDue(25), &timers[1]);
  EXPECT_EQ(heap.PopDue(25), &timers[2]);
  EXPECT_EQ(heap.PopDue(25), &timers[3]);
  EXPECT_EQ(heap.PopDue(25), nullptr);
  heap.Disarm(&timers[0]);
  heap.Disarm(&timers[0]);
  EXPECT_TRUE(heap.empty());
  EXPECT_EQ(heap.next_due_ns(), kNeverNs);
}

TEST(TimerHeapTest, AgreesWithAnOrderedMap) {
  Random random(5);
  TimerHeap heap;
  std::array<Timer, 50> timers;
  std::map<std::pair<int64_t, uint64_t>, Timer*> model;
  uint64_t armed = 0;
  for (int step = 0; step < 20'000; ++step) {
    Timer* const timer = &timers[random.Uniform(timers.size())];
    if (random.Chance(0.3)) {
      const auto now_ns = static_cast<int64_t>(random.Uniform(100));
      Timer* const got = heap.PopDue(now_ns);
      Timer* expected = nullptr;
      if (!model.empty() && model.begin()->first.first <= now_ns) {
        expected = model.begin()->second;
        model.erase(model.begin());
      }
      ASSERT_EQ(got, expected);
    } else if (timer->armed()) {
      model.erase({timer->due_ns, timer->sequence});
      heap.Disarm(timer);
    } else {
      const auto due_ns = static_cast<int64_t>(random.Uniform(100));
      heap.Arm(timer, due_ns);
      model[{due_ns, armed++}] = timer;
    }
    ASSERT_EQ(heap.empty(), model.empty());
  }
}

}  // namespace
}  // namespace pando::sched
