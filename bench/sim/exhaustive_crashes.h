// Kills a client between every two packets of an operation, once each, and lets others work on.
//
// A script of inserts and erases, run by one client, is the source of operations: each one that
// makes the tree do something else (an update in place, splits of one, two or three levels, a
// growing root, merges at one, two or three levels, a shrinking root; in trees with windows also a
// put whose flag is a WRITE of its own, rule N6) is taken as a victim. For
// every number of packets (WRITEs and atomics) that its client may still send, a fresh world
// executes the script up to it, the victim's client starts it and dies there; then clients with a
// warm and with a cold cache read, write and scan everything. With `kill_recoverer` the first of
// those dies as well, between every two of its first packets. Afterwards the history must be
// linearizable, the tree whole, every lock free and no node lost.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/fabric/sim/sim_options.h"
#include "pando/options.h"

namespace pando {

// So many different ones the script names.
constexpr uint64_t kExhaustiveKeysMin = 3;

struct ExhaustiveOptions {
  uint64_t seed = 1;
  sim::DeliveryMode mode = sim::DeliveryMode::kLines;
  // Nodes of one or of four packets; fences that continue in header lines; few slots and long
  // separators, so that few keys are a tree of four levels.
  TreeOptions tree = {.key_bytes_max = 255, .value_bytes_max = 255, .node_bytes = 3328};
  uint32_t key_prefix_bytes = 235;  // equal bytes
  uint32_t packet_bytes = 1024;
  uint64_t keys = 240;  // at least kExhaustiveKeysMin
  int memory_servers = 2;
  int victims_of_a_kind = 2;
  // 0: the recoverer lives. Else it dies after 0, 1, ... so many packets.
  uint64_t kill_recoverer = 0;
  // The victim's queue pairs break there instead (rule L5), while others read and write; it lives
  // on, and so does the recoverer. `break_late`: packets that it was not to send may leave it all
  // the same, and come late.
  bool break_only = false, break_late = false;
  // What was executed by then is heard of first: of a list the chains before the break are done,
  // and their coroutines have posted again.
  bool break_heard = false;
  // The victim's session has others under way beside it, each in a coroutine of its own: readers,
  // writers of the same leaf and of others. They begin in one turn, so the packets between which it
  // ends are those of several chains to one server.
  bool side_by_side = false;
  // The victims are runs of this many writes to keys one after the other (rules U6, S4), into trees
  // that hold few of them, many, or nearly all; they have a few spare nodes on each server. 0:
  // single operations.
  uint64_t run_length = 0;
  // The victims erase a range of this many keys (rule M8), in trees that hold many, or nearly all.
  // 0: single operations, or runs.
  uint64_t erase_length = 0;
  // Techniques::narrow_writes, of all clients: rule N8, where the tree has windows.
  bool narrow_writes = false;
};

struct ExhaustiveResult {
  std::vector<std::string> problems;      // empty: ok; each says how to repeat it
  std::map<std::string, uint64_t> kinds;  // of victims, with the number of kills
  uint64_t worlds = 0;
  uint64_t locks_recovered = 0;  // with `break_only`
  uint64_t verbs_late = 0;       // executed after their chain had failed
  uint64_t lists_broken = 0;     // worlds where a break failed several chains at once
  bool ok() const { return problems.empty(); }
};

ExhaustiveResult RunExhaustiveCrashes(const ExhaustiveOptions& options);

}  // namespace pando
