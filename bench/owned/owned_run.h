// Random runs of owners, one after the other and side by side: they die, leave, are stopped beyond
// their leases and go on, their queue pairs break; memory is little, trees are dropped under load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/fabric/sim/sim_options.h"

namespace pando {

struct OwnedRunOptions {
  uint64_t seed = 1;
  sim::DeliveryMode mode = sim::DeliveryMode::kLines;
  int memory_servers = 2;
  size_t trees = 1, sessions = 1;
  int coroutines = 3;  // of a session
  // Compute servers, each of which comes while the one before is at work.
  int lives = 4;
  int operations = 60;  // of a coroutine
  uint64_t keys = 60;
  int64_t timeout_ms = 20;  // of an operation
  double kill = 0.5;        // else they leave
  // Owners stop for up to two of their leases; they may be fenced meanwhile.
  bool leases = false;
  double pause = 0;
  double break_probability = 0;
  // This share of the turns erases a range of keys.
  double erase = 0;
  bool little_memory = false;
  // Values of more than a few bytes lie in cells (rules K).
  bool cells = false;
  // Before that share of the operations a range is divided, or goes to somebody else; who leaves
  // may do so while it works.
  double moves = 0;
  // Ranges are lent whenever they are clean, and every now and then all only read for a while.
  bool lends = false;
  // The last tree is dropped while all work.
  bool drop = false;
};

struct OwnedRunResult {
  std::vector<std::string> problems;
  uint64_t concluded = 0, unknown = 0, refused = 0, adopted = 0, cut_off = 0;
  uint64_t refused_records = 0, moves = 0, retired = 0, lent = 0;
  bool ok() const { return problems.empty(); }
  std::string what() const { return ok() ? "" : problems[0]; }
};

OwnedRunResult RunOwners(const OwnedRunOptions& options);

}  // namespace pando
