// Scenarios for rule C5: a sweep and a merge meet at a node that a dead client had been handed, and
// one of the two is stopped in the middle, for longer than freed memory rests. Both live.
//
//   1. Client H fills a tree and dies: its nodes are orphans. L and its right neighbour R fit one.
//   2. Client W sweeps; client M erases a key of R, and merges R into L.
//   3. M is stopped when M4 is written (R is out of the tree, and M's next WRITE says that R is
//      dead), or W at any point of its sweep.
//   4. The other one finishes; what was freed rests; client C puts keys until its splits use R.
//   5. Who was stopped goes on. A newcomer puts more, with what was freed by then.
//
// If W frees R while M is at work there, M's WRITE destroys what C has linked; if W goes on with
// what it knew of R, W's does. A third kind has no merge: H dies in a split, so that R, its spare
// node, is written and never linked; two clients sweep, and one of them is stopped.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/sim/sim_run.h"
#include "common/base/clock.h"

namespace pando {

struct PausedMerger {
  enum class Stopped { kMerger, kSweeper, kSweeperOfSpare };
  uint64_t seed = 1;
  Stopped stopped = Stopped::kMerger;
  // kMerger: the merge begins so long after the sweep; it is stopped behind M4. Else: the sweep is
  // stopped so long after it began, and the merge, or the other sweep, begins then.
  int64_t offset_ns = 0;
  int64_t stop_ns = 1300 * kMillisecondNs;
};

struct PausedMergerResult {
  std::vector<std::string> problems;  // empty: nothing was lost
  bool stopped = false;               // the stop came while there was something to stop
  bool reused = false;  // R's memory was another node's before who was stopped went on
  uint64_t freed = 0, settled = 0, left = 0;  // by the sweep
};

PausedMergerResult PlayPausedMerger(const PausedMerger& options);

// Every fifth microsecond of each kind, as one run.
SimRunResult RunPausedMerger(uint64_t seed);

}  // namespace pando
