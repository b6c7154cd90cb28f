// What a run came to: the operations of all lives, what the kills and stops did to them, and
// whether that is as it should be. Pure: no I/O.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/chaos/plan.h"

namespace pando::chaos {

// One process of a compute server, from its first operation to its end.
struct Life {
  int server = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;  // killed, or the end of the run
};

// An operation that returned.
struct Finished {
  int life = 0;
  int64_t call_ns = 0;
  int64_t return_ns = 0;
  absl::StatusCode status = absl::StatusCode::kOk;
};

struct Kill {
  int server = 0;
  int life = 0;
  int64_t at_ns = 0;
  int64_t dead_ns = 0;                                   // it had ended by then
  uint64_t used_bytes_before = 0, used_bytes_after = 0;  // of all memory servers
  // Filled in by Evaluate(): of the other compute servers while it could matter.
  int64_t longest_gap_ns = 0;        // during which one of them finished no operation
  int64_t longest_operation_ns = 0;  // answered or not, that was called before or in that time
};

struct Stop {
  int server = 0;
  bool memory = false;  // it is a memory server
  int64_t at_ns = 0;
  int64_t end_ns = 0;
  // Filled in by Evaluate(): called after the server went on, and before anything else happened, by
  // itself; by anybody if it is a memory server.
  int64_t longest_after_ns = 0;
};

// A compute server that gave its ranges away under load, and ended; another process came for it.
struct Leave {
  int server = 0;
  int life = 0;
  int64_t at_ns = 0;
  int64_t left_ns = 0;   // it had given everything away; 0: it never had
  int64_t ended_ns = 0;  // its process
};

struct Outcome {
  std::vector<Life> lives;
  std::vector<Leave> leaves;
  std::vector<Kill> kills;
  std::vector<Stop> stops;
  std::vector<Finished> operations;
  bool final_state_known = false;  // FILE.final could be written
  uint64_t lost = 0;  // writes that a killed process had called and nobody was told about
  std::vector<std::string> failures;  // anything else that went wrong, in words

  // Filled in by Evaluate().
  std::map<std::string, uint64_t> explained, unexplained;  // errors by status
};

// Its process was killed.
bool WasKilled(const Outcome& outcome, const Leave& leave);

// Measures the kills, sorts the errors, and adds to `failures` what should not have been: a gap
// over the plan's gap_max_ms, an operation called after a stop that took over after_stop_max_ms, an
// operation that ended after its deadline (two seconds later; over verbs 17) though its own process
// was not stopped, a leave that did not get done though nobody killed its process and the load went
// on for long enough, an error that nothing explains.
//
// A stopped process keeps its locks, so operations that ran beside a stop may end at their deadline
// (DeadlineExceeded, or Unknown where a write was under way). A write of an owned tree that an
// owner was asked for while it was killed is Unknown. Nothing else is explained.
void Evaluate(const Plan& plan, Outcome* outcome);

}  // namespace pando::chaos
