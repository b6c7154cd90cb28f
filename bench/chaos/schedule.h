// When which compute server is killed or stopped: a function of the plan's seed.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/chaos/plan.h"

namespace pando::chaos {

struct Event {
  enum class Kind : uint8_t { kKill, kStop, kMemoryStop };
  Kind kind = Kind::kKill;
  int server = 0;      // a compute server; kMemoryStop: a memory server, the first is 0
  int64_t at_ns = 0;   // from the start of the run
  int64_t end_ns = 0;  // the server starts again, or goes on

  friend bool operator==(const Event&, const Event&) = default;
};

// Compute servers that are to leave, and when, from the start of the run; ascending. From a random
// stream of their own, beside the events.
struct Leaving {
  int server = 0;
  int64_t at_ns = 0;
  friend bool operator==(const Leaving&, const Leaving&) = default;
};
std::vector<Leaving> MakeLeavings(const Plan& plan);

// Ascending; each has an equal share of the run for itself, so that what follows from one is not
// taken for the other's doing. Kills and stops are in random order.
std::vector<Event> MakeSchedule(const Plan& plan);

}  // namespace pando::chaos
