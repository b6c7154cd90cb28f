#include "bench/chaos/outcome.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "bench/chaos/operation_log.h"
#include "common/base/clock.h"

namespace pando::chaos {
namespace {

// For so long after a kill it may hold others up.
constexpr int64_t kAftermathNs = 5 * kSecondNs;

// After its deadline an operation's thread has to get a processor. Over verbs one whose queue pair
// breaks under a lock gives the lock back first (ClientOptions::operation_timeout_ms).
constexpr int64_t kLateMs = 2'000, kLateOverVerbsMs = 15'000;

bool Overlap(int64_t begin_a, int64_t end_a, int64_t begin_b, int64_t end_b) {
  return begin_a <= end_b && begin_b <= end_a;
}

bool BesideAStop(const Outcome& outcome, const Finished& operation) {
  return std::any_of(outcome.stops.begin(), outcome.stops.end(), [&](const Stop& stop) {
    return Overlap(operation.call_ns, operation.return_ns, stop.at_ns, stop.end_ns);
  });
}

// Its own process, which did nothing meanwhile.
bool WasStopped(const Outcome& outcome, const Finished& operation) {
  const int server = outcome.lives[static_cast<size_t>(operation.life)].server;
  return std::any_of(outcome.stops.begin(), outcome.stops.end(), [&](const Stop& stop) {
    return !stop.memory && stop.server == server &&
           Overlap(operation.call_ns, operation.return_ns, stop.at_ns, stop.end_ns);
  });
}

bool BesideAKill(const Outcome& outcome, const Finished& operation) {
  return std::any_of(outcome.kills.begin(), outcome.kills.end(), [&](const Kill& kill) {
    return Overlap(operation.call_ns, operation.return_ns, kill.at_ns, kill.dead_ns);
  });
}

// The longest time in [from, to] without a return; `returns` ascends.
int64_t LongestGap(const std::vector<int64_t>& returns, int64_t from, int64_t to) {
  int64_t longest_ns = 0, last_ns = from;
  for (auto at = std::lower_bound(returns.begin(), returns.end(), from);
       at != returns.end() && *at < to; ++at) {
    longest_ns = std::max(longest_ns, *at - last_ns);
    last_ns = *at;
  }
  return std::max(longest_ns, to - last_ns);
}

void Measure(const Outcome& outcome, const std::vector<std::vector<int64_t>>& answers, Kill* kill) {
  int64_t until_ns = kill->at_ns + kAftermathNs;
  for (const Stop& stop : outcome.stops) {
    if (stop.at_ns > kill->at_ns) until_ns = std::min(until_ns, stop.at_ns);
  }
  for (size_t i = 0; i < outcome.lives.size(); ++i) {
    const Life& life = outcome.lives[i];
    const int64_t to_ns = std::min(until_ns, life.end_ns);
    if (static_cast<int>(i) == kill->life || life.start_ns > kill->at_ns || to_ns <= kill->at_ns) {
      continue;
    }
    kill->longest_gap_ns =
        std::max(kill->longest_gap_ns, LongestGap(answers[i], kill->at_ns, to_ns));
  }
  for (const Finished& operation : outcome.operations) {
    if (!Overlap(operation.call_ns, operation.return_ns, kill->at_ns, until_ns)) continue;
    if (BesideAStop(outcome, operation)) continue;
    kill->longest_operation_ns =
        std::max(kill->longest_operation_ns, operation.return_ns - operation.call_ns);
  }
}

void Measure(const Outcome& outcome, Stop* stop) {
  int64_t until_ns = stop->end_ns + kAftermathNs;
  const auto end_before = [&](int64_t at_ns) {
    if (at_ns >= stop->end_ns) until_ns = std::min(until_ns, at_ns);
  };
  for (const Stop& other : outcome.stops) end_before(other.at_ns);
  for (const Kill& kill : outcome.kills) end_before(kill.at_ns);
  for (const Finished& operation : outcome.operations) {
    const Life& life = outcome.lives[static_cast<size_t>(operation.life)];
    if (!stop->memory && life.server != stop->server) continue;
    if (operation.call_ns < stop->end_ns || operation.call_ns >= until_ns) continue;
    stop->longest_after_ns = std::max(stop->longest_after_ns,
                                      std::min(operation.return_ns, until_ns) - operation.call_ns);
  }
}

// Whatever is stopped or killed, an operation ends by its deadline.
void CheckDeadlines(const Plan& plan, Outcome* outcome) {
  const int64_t late_ms = kLateMs + (plan.fabric == "verbs" ? kLateOverVerbsMs : 0);
  uint64_t late = 0;
  int64_t longest_ns = 0;
  for (const Finished& operation : outcome->operations) {
    const int64_t took_ns = operation.return_ns - operation.call_ns;
    if (took_ns <= (plan.timeout_ms + late_ms) * kMillisecondNs) continue;
    if (WasStopped(*outcome, operation)) continue;
    ++late;
    longest_ns = std::max(longest_ns, took_ns);
  }
  if (late == 0) return;
  outcome->failures.push_back(
      absl::StrCat(late, " operations did not end by their deadline: the longest took ",
                   longest_ns / kMillisecondNs, " ms, with --timeout_ms=", plan.timeout_ms,
                   ", and up to ", late_ms, " ms late is allowed"));
}

// Each kill, each stop and whoever else leaves may spoil the attempt that they fall into. With two
// more, and the stops' own time, there was enough.
bool HadTimeToLeave(const Outcome& outcome, const Leave& leave) {
  int64_t end_ns = leave.at_ns;
  for (const Life& life : outcome.lives) end_ns = std::max(end_ns, life.end_ns);
  const int64_t from_ns = leave.at_ns - kAftermathNs;
  int64_t time_ns = end_ns - leave.at_ns, attempts = 2;
  for (const Stop& stop : outcome.stops) {
    if (!Overlap(stop.at_ns, stop.end_ns, from_ns, end_ns)) continue;
    ++attempts;
    time_ns -= stop.end_ns - stop.at_ns;
  }
  for (const Kill& kill : outcome.kills) attempts += kill.at_ns >= from_ns ? 1 : 0;
  for (const Leave& other : outcome.leaves) {
    attempts += &other != &leave && (other.ended_ns == 0 || other.ended_ns >= from_ns) ? 1 : 0;
  }
  return time_ns >= attempts * kLeaveMs * kMillisecondNs;
}

void CheckLeaves(Outcome* outcome) {
  for (size_t i = 0; i < outcome->leaves.size(); ++i) {
    const Leave& leave = outcome->leaves[i];
    const bool done = leave.left_ns != 0 || WasKilled(*outcome, leave);
    if (done || !HadTimeToLeave(*outcome, leave)) continue;
    outcome->failures.push_back(
        absl::StrCat("leave ", i + 1, ": compute server ", leave.server,
                     " had not given away all that it owned by the end of the load, and nobody "
                     "had killed it"));
  }
}

}  // namespace

bool WasKilled(const Outcome& outcome, const Leave& leave) {
  return std::any_of(outcome.kills.begin(), outcome.kills.end(),
                     [&](const Kill& kill) { return kill.life == leave.life; });
}

void Evaluate(const Plan& plan, Outcome* outcome) {
  std::vector<std::vector<int64_t>> answers(outcome->lives.size());
  for (const Finished& operation : outcome->operations) {
    if (IsAnswer(operation.status)) {
      answers[static_cast<size_t>(operation.life)].push_back(operation.return_ns);
      continue;
    }
    const bool at_deadline = operation.status == absl::StatusCode::kDeadlineExceeded ||
                             operation.status == absl::StatusCode::kUnknown;
    const bool asked_the_dead = plan.owned() && operation.status == absl::StatusCode::kUnknown &&
                                BesideAKill(*outcome, operation);
    const bool explained = asked_the_dead || (at_deadline && BesideAStop(*outcome, operation));
    ++(explained ? outcome->explained
                 : outcome->unexplained)[absl::StatusCodeToString(operation.status)];
  }
  for (std::vector<int64_t>& returns : answers) std::sort(returns.begin(), returns.end());
  for (const auto& [status, count] : outcome->unexplained) {
    outcome->failures.push_back(absl::StrCat(count, " operations ended with ", status,
                                             " although no process was ",
                                             plan.owned() ? "stopped or killed" : "stopped"));
  }
  CheckDeadlines(plan, outcome);
  CheckLeaves(outcome);
  for (size_t i = 0; i < outcome->stops.size(); ++i) {
    Stop& stop = outcome->stops[i];
    Measure(*outcome, &stop);
    if (stop.longest_after_ns <= plan.after_stop_max_ms * kMillisecondNs) continue;
    outcome->failures.push_back(
        absl::StrCat("stop ", i + 1, ": an operation called after it had ended took ",
                     stop.longest_after_ns / kMillisecondNs, " ms, over ", plan.after_stop_max_ms));
  }
  for (size_t i = 0; i < outcome->kills.size(); ++i) {
    Kill& kill = outcome->kills[i];
    Measure(*outcome, answers, &kill);
    const auto check = [&](int64_t took_ns, const char* what) {
      if (took_ns <= plan.gap_max_ms * kMillisecondNs) return;
      outcome->failures.push_back(absl::StrCat("kill ", i + 1, ": ", what, " ",
                                               took_ns / kMillisecondNs, " ms, over ",
                                               plan.gap_max_ms));
    };
    check(kill.longest_gap_ns, "another compute server finished nothing for");
    check(kill.longest_operation_ns, "an operation of another compute server took");
  }
}

}  // namespace pando::chaos
