// A redo log at work on the simulated fabric, and what a reader finds of it afterwards. Sessions
// put and flush records of a model (a map in place of partitions and leaves); queue pairs break,
// chains are late, sessions are stopped, the member is killed, as the options say. Whatever was
// acknowledged has to be in the leaves, or in the log.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/fabric/sim/sim_options.h"
#include "compute/log/redo_log.h"

namespace pando {

inline constexpr uint64_t kAllPackets = UINT64_MAX;

struct LogRunOptions {
  sim::SimOptions sim;  // with the seed
  // Sessions that put: each member is stopped alone, and all of them share the log, as the sessions
  // of one do.
  int members = 1, sessions = 2, coroutines = 4;
  int puts = 40;  // of a coroutine
  uint64_t keys = 12;
  uint64_t ring_bytes = 8 << 10;
  uint32_t batch_bytes_max = 1 << 10;
  Lsn first_lsn = 1;
  bool flush = true;
  double flush_above = 0;  // of the ring
  bool tend = false;
  double break_probability = 0;
  // The log's server dies then, and the log moves to another one (rule W6).
  int64_t lose_server_at_ns = 0;
  int64_t stop_every_ns = 0, stop_ns = 0;  // members are stopped one after the other, for so long
  // The end: 0 ns and all packets: when all is done.
  int64_t kill_at_ns = 0;
  uint64_t packets = kAllPackets;
};

struct LogRunResult {
  std::vector<std::string> problems;  // what was acknowledged is gone
  std::vector<std::string> failed;    // calls that should not have, with their status
  LogCounters counters;
  bool ok() const { return problems.empty() && failed.empty(); }
  std::string what() const {
    return !problems.empty() ? problems[0] : failed.empty() ? "" : failed[0];
  }
  uint64_t moves = 0;
  uint64_t puts = 0;  // acknowledged
  uint64_t chains = 0;
  int64_t end_ns = 0;  // when the work was done, or had an end
  bool killed = false;
  uint64_t verbs_late = 0;  // executed after their chain had failed
};

LogRunResult RunLog(const LogRunOptions& options);

}  // namespace pando
