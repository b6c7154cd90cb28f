// A range of an owned tree that this member owns (rule O4): its borders, its entry in the map, and
// its records in memory.
//
// Thread safety: borders never change; everything else is under partition.mutex(). Invariants:
//   1. Operations are executed only while the state is kServing, looked at in the step that decides
//      them (rule T4).
//   2. Once kGone, for ever: its records are nobody's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/sched/scheduler.h"
#include "compute/hot/partition.h"
#include "compute/owner/claim.h"

namespace pando {

struct OwnRange {
  enum class State : uint8_t {
    kServing,
    kWaiting,  // for a while, and operations with it: it is adopted, loaded or given up
    kGone,     // this member owns it no more
  };

  OwnRange(MappedRange mapped, State state)
      : low(mapped.low), high(mapped.high), state(state), mapped(std::move(mapped)) {}

  bool Covers(std::string_view key) const { return key >= low && (high.empty() || key < high); }
  // Under the mutex. Whoever waits looks again.
  void SetState(State now) {
    state = now;
    for (Parking* const parking : waiting) parking->Unpark();
  }

  const std::string low, high;  // [low, high); "" above: to the end of the tree
  Partition partition;

  State state;
  MappedRange mapped;             // the entry as its owner wrote it last
  std::vector<Parking*> waiting;  // operations, while kWaiting
};

}  // namespace pando
