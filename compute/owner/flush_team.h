// Sessions of a member that bring records to leaves beside its own one (rule B2), each with a
// thread of its own where the fabric has threads.
//
// Thread safety: FlushTeam and its runs are for coroutines of the member's session, one run at a
// time; `work` is called on the threads of the team.
// Invariants:
//   1. Nothing of a run is executed once its Join() has returned, and none outlives its team.
//   2. The team's sessions do nothing else.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "compute/core/session_context.h"
#include "compute/core/session_thread.h"

namespace pando {

class FlushTeam {
 public:
  explicit FlushTeam(std::vector<std::unique_ptr<SessionContext>> sessions);
  // Gives each session a thread: where they may have one (not Capabilities::event_driven), before
  // any run. ResourceExhausted: the system has none.
  absl::Status Start();
  // What was begun ends first.
  ~FlushTeam() = default;
  FlushTeam(const FlushTeam&) = delete;
  FlushTeam& operator=(const FlushTeam&) = delete;

  std::vector<const SessionContext*> sessions() const;

  // One piece of work, done by all of the team's sessions at once, a coroutine of each.
  class Run {
   public:
    using Work = std::function<size_t(SessionContext*)>;

    // `caller`: the scheduler of who joins.
    Run(FlushTeam* team, Scheduler* caller, const Work& work);
    ~Run() { (void)Join(); }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    // Suspends until the last of them has returned. The sum of what they say; 0 once it is told.
    size_t Join();

   private:
    struct State;
    std::shared_ptr<State> state_;  // nullptr: joined
  };

 private:
  std::deque<SessionThread> sessions_;
};

}  // namespace pando
