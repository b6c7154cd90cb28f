// What the end of an operation says about it, and about its client.
#pragma once

#include "absl/status/status.h"
#include "bench/history/history.h"

namespace pando {

// True: `status` is an outcome that the operation may have; `found` says which. Else it failed.
bool Conclude(const absl::Status& status, history::Operation* operation);

// Of an operation without an outcome: a read says nothing then.
void ForgetReads(history::Operation* operation);
// Of one that took no effect: for the history it is a read that says nothing.
void ForgetAll(history::Operation* operation);

// What an operation's end says about it and its client.
enum class Ending {
  kConcluded,  // with an outcome that it may have
  kRefused,    // it had no effect: its queue pair had broken
  kUnknown,    // the same, but nobody knows whether it had
  kCutOff,     // its client is, or will be, fenced
  kProblem,    // nothing explains it; the operation is as it was
};
struct Circumstances {
  bool leases = false;        // clients are fenced
  bool breaks = false;        // queue pairs break
  bool server_death = false;  // a memory server has died
  bool lost = false;          // or has come back without what the tree had there
  bool dropped = false;       // the tree was dropped: it may not grow
  bool little_memory = false;
  bool owners_end = false;  // those who execute what others ask them, or their links
};
// Completes the operation accordingly, but for times.
Ending Explain(const absl::Status& status, const Circumstances& circumstances,
               history::Operation* operation);

}  // namespace pando
