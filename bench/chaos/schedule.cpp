#include "bench/chaos/schedule.h"

#include <algorithm>
#include <utility>

#include "common/base/clock.h"
#include "common/base/random.h"

namespace pando::chaos {
namespace {

// Shares of an event's time: it begins in the first part, a killed server starts again after the
// second, and the last one is left to see what came of it.
constexpr double kLatestBegin = 0.2;
constexpr double kDownShare = 0.4;
constexpr double kStopMinSeconds = 0.1;
constexpr double kStopMaxSeconds = 3;
constexpr uint64_t kScheduleSeed = 0x5c4ed, kLeaveSeed = 0x1ea7e;
// Of the share of the run that it has: the rest is for the process that comes.
constexpr double kLatestLeave = 0.5;

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * kSecondNs); }

}  // namespace

std::vector<Leaving> MakeLeavings(const Plan& plan) {
  Random random(DeriveSeed(plan.seed, kLeaveSeed));
  const double share_s = plan.duration_s / std::max(1, plan.leaves);
  std::vector<Leaving> leavings;
  for (int i = 0; i < plan.leaves; ++i) {
    const auto server = random.Uniform(static_cast<uint64_t>(plan.compute_servers));
    const double at_s = (i + random.NextDouble() * kLatestLeave) * share_s;
    leavings.push_back({.server = static_cast<int>(server), .at_ns = Nanoseconds(at_s)});
  }
  return leavings;
}

std::vector<Event> MakeSchedule(const Plan& plan) {
  Random random(DeriveSeed(plan.seed, kScheduleSeed));
  std::vector<Event> events(static_cast<size_t>(plan.events()));
  for (size_t i = 0; i < events.size(); ++i) {
    events[i].kind = i < static_cast<size_t>(plan.kills)                ? Event::Kind::kKill
                     : i < static_cast<size_t>(plan.kills + plan.stops) ? Event::Kind::kStop
                                                                        : Event::Kind::kMemoryStop;
  }
  for (size_t i = events.size(); i > 1; --i) std::swap(events[i - 1], events[random.Uniform(i)]);
  const double share_s = plan.duration_s / static_cast<double>(std::max<size_t>(1, events.size()));
  for (size_t i = 0; i < events.size(); ++i) {
    Event& event = events[i];
    const bool memory = event.kind == Event::Kind::kMemoryStop;
    const int servers = memory ? plan.memory_servers : plan.compute_servers;
    event.server = static_cast<int>(random.Uniform(static_cast<uint64_t>(servers)));
    const double begin_s =
        static_cast<double>(i) * share_s + random.NextDouble() * kLatestBegin * share_s;
    const double stop_max_s = std::min(kStopMaxSeconds, kStopShareMax * share_s);
    const double length_s =
        event.kind == Event::Kind::kKill ? kDownShare * share_s
        : plan.stop_s > 0                ? plan.stop_s
                          : kStopMinSeconds + random.NextDouble() * (stop_max_s - kStopMinSeconds);
    event.at_ns = Nanoseconds(begin_s);
    event.end_ns = Nanoseconds(begin_s + length_s);
  }
  return events;
}

}  // namespace pando::chaos
