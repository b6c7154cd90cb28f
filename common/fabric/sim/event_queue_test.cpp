#include "common/fabric/sim/event_queue.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>

#include "common/base/random.h"

namespace pando::sim {
namespace {

Event At(int64_t time_ns, uint32_t target) {
  Event event;
  event.time_ns = time_ns;
  event.target = target;
  return event;
}

TEST(EventQueueTest, EventsOfOneTimeKeepTheirOrder) {
  EventQueue queue;
  // The first is far away when it is added, the others near.
  queue.Push(At(100'000, 1));
  queue.Push(At(99'990, 2));
  EXPECT_EQ(queue.Pop().target, 2u);
  for (uint32_t i = 3; i < 6; ++i) queue.Push(At(100'000, i));
  for (const uint32_t target : {1u, 3u, 4u, 5u}) {
    EXPECT_EQ(queue.top().target, target);
    EXPECT_EQ(queue.Pop().target, target);
  }
  EXPECT_TRUE(queue.empty());
}

TEST(EventQueueTest, LikeASortedSet) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    EventQueue queue;
    std::set<std::pair<int64_t, uint32_t>> expected;
    int64_t now_ns = 0;
    uint32_t next = 0;
    for (int step = 0; step < 20'000; ++step) {
      // Fewer and more in turns, near and far.
      const bool add = expected.empty() || random.Uniform(100) < (step / 1000 % 2 == 0 ? 60 : 40);
      if (add) {
        const uint64_t span = uint64_t{1} << (4 * random.Uniform(6));
        const int64_t time_ns = now_ns + static_cast<int64_t>(random.Uniform(span));
        queue.Push(At(time_ns, next));
        expected.emplace(time_ns, next++);
        continue;
      }
      const auto [time_ns, target] = *expected.begin();
      expected.erase(expected.begin());
      ASSERT_EQ(queue.top().target, target);
      const Event event = queue.Pop();
      ASSERT_EQ(event.time_ns, time_ns);
      ASSERT_EQ(event.target, target);
      ASSERT_EQ(queue.size(), expected.size());
      now_ns = time_ns;
    }
  }
}

}  // namespace
}  // namespace pando::sim
