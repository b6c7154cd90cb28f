// One run of the production client on the simulated fabric: a seeded workload, its history, and
// what must hold afterwards.
//
// A run is a function of its options: same options, same trace hash. It fails when the history is
// not linearizable, an invariant of the tree is broken (tree_check.h), a lock is left behind, an
// operation ends in an error that nothing explains, or it does not end at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/history/history.h"
#include "common/fabric/sim/sim_options.h"
#include "pando/client.h"
#include "pando/options.h"
#include "pando/stats.h"

namespace pando {

struct SimRunOptions {
  sim::SimOptions sim;  // seed, delivery mode, network
  int memory_servers = 2;
  int compute_servers = 2;
  int threads = 4;     // sessions of a compute server
  int coroutines = 2;  // of a session, each one client of the history
  uint64_t operations = 2000;

  // Keys that operations choose from. With `grow` > 0 that share of the inserts brings a new key.
  uint64_t keys = 64;
  double grow = 0;
  bool ascending_growth = false;
  // The run begins with a put of each of the first `load` keys, besides `operations`.
  uint64_t load = 0;
  // This share of the operations goes to the first `hot_keys` keys.
  double hot_share = 0;
  uint64_t hot_keys = 4;
  // Shares of the operations; they need not sum to 1.
  double get = 0.4, put = 0.2, update = 0.1, insert = 0.15, remove = 0.15, scan = 0;
  uint64_t scan_limit_max = 20;

  TreeOptions tree;
  // Keys start with so many equal bytes: separators are long then, and trees deep.
  uint32_t key_prefix_bytes = 0;
  ClientOptions client;  // fabric and registry are not used
  uint64_t main_bytes = 64 << 20;
  uint64_t lock_words = 4096;  // of each server; few make nodes share words
  uint32_t chunk_bytes = 64 << 10;

  int crashes = 0;  // compute servers killed on the way
  int pauses = 0;   // times that a compute server is stopped, and goes on up to 20 ms later
  // Who is not heard of for so long is fenced, and comes back as another (rules C1, C2); 0: nobody.
  int64_t lease_ns = 0;
  // Each chain breaks its queue pair with this probability (rule L5); 0: none does. Where there are
  // no local locks there has to be a lease: nobody else frees the locks then.
  double break_probability = 0;
  // Lock words of the dead that a memory server frees in one step; 0: all.
  uint32_t fence_words_per_step = 0;
  uint64_t events_max = 0;  // 0: derived from `operations`
  std::string history_path;
};

// A run in which everything else is derived from the seed, too: mode, network, servers, shape of
// the tree, keys, techniques (`pando-sim --preset=mixed --seed=N`).
SimRunOptions MixedRun(uint64_t seed);

// One line for people: what kind of run this is.
std::string DescribeRun(const SimRunOptions& options);

struct SimRunResult {
  std::vector<std::string> problems;  // empty: ok
  uint64_t trace_hash = 0;
  int64_t virtual_ns = 0;
  uint64_t operations = 0, unknown = 0, deadlines = 0, reconnects = 0;
  uint64_t refused = 0;  // operations without effect, as their queue pair had broken
  std::vector<size_t> nodes_per_level;
  size_t missing_separators = 0;
  SweepResult swept;  // after crashes
  ClientStats stats;  // of all clients
  sim::SimStats sim;

  bool ok() const { return problems.empty(); }
};

SimRunResult RunSim(const SimRunOptions& options);

}  // namespace pando
