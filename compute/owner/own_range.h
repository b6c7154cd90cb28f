// A range of an owned tree that this member owns (rule O4): its borders, its entry in the map, and
// its records in memory.
//
// Thread safety: borders never change; everything else is under partition.mutex(). Invariants:
//   1. Operations are executed only while the state is kServing, looked at in the step that decides
//      them (rule T4).
//   2. Once kGone, for ever: its records are nobody's, or those of the ranges that it was divided
//      into, one of which goes on with its partition (rule O10).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/rule.h"
#include "common/sched/scheduler.h"
#include "compute/core/session_context.h"
#include "compute/hot/partition.h"
#include "compute/owner/claim.h"
#include "compute/owner/lending.h"
#include "compute/owner/range_meter.h"

namespace pando {

class OwnedTree;

struct OwnRange {
  enum class State : uint8_t {
    kServing,
    kWaiting,  // for a while, and operations with it: it is loaded or given up
    kGone,     // this member owns it no more, or as two
  };

  OwnRange(MappedRange mapped, State state)
      : OwnRange(std::move(mapped), state, std::make_shared<Partition>()) {}
  // `records`: of a range that this one is a part of, or that were adopted with it (rule D4).
  OwnRange(MappedRange mapped, State state, std::shared_ptr<Partition> records)
      : low(mapped.low),
        high(mapped.high),
        records(std::move(records)),
        partition(*this->records),
        state(state),
        mapped(std::move(mapped)) {}

  bool Covers(std::string_view key) const {
    return (low.empty() || key >= low) && (high.empty() || key < high);
  }
  // Where time is simulated: what is done under the mutex, by this session. Anywhere in that.
  void Charge(const SessionContext& session, size_t records) {
    if (CpuCosts* const costs = session.cpu_costs(); costs != nullptr) [[unlikely]]
      costs->ChargeRecords(&partition.busy(), records);
  }
  // The same of a record that was found without the mutex (rule T9).
  static void ChargeShown(const SessionContext& session) {
    if (CpuCosts* const costs = session.cpu_costs(); costs != nullptr) [[unlikely]]
      costs->ChargeRecords(nullptr, 1);
  }
  // Under the mutex. Whoever waits looks again.
  void SetState(State now) {
    state = now;
    // Readers without the mutex do not see the state (rule T9).
    if (now != State::kServing && RuleHolds(Rule::kT9Close)) partition.StopShowing();
    if (now == State::kGone) meter.Clear();
    for (Parking* const parking : waiting) parking->Unpark();
  }

  bool IsGone() const {
    std::lock_guard lock(partition.mutex());
    return state == State::kGone;
  }
  // Under the mutex. Its leaves have all of it: what is in memory besides says the same.
  bool IsClean() const {
    return partition.dirty().records == 0 && partition.refused().records == 0;
  }

  // Memory servers had no room for something of it (rule B3). That is so until all that is refused
  // was tried again, and no server has said it: their leaves are out of reach.
  void NoteFull() {
    full_again.store(true, std::memory_order_relaxed);
    full.store(true, std::memory_order_relaxed);
  }
  void NoteAllTried() {
    const bool again = full_again.exchange(false, std::memory_order_relaxed);
    full.store(again, std::memory_order_relaxed);
  }

  const std::string low, high;  // [low, high); "" above: to the end of the tree
  const std::shared_ptr<Partition> records;
  Partition& partition;  // *records

  State state;
  MappedRange mapped;             // the entry as its owner wrote it last
  std::vector<Parking*> waiting;  // operations, while kWaiting
  RangeMeter meter;
  Lending lending;
  std::string try_from;          // what was refused is tried again from this key on; the flushes'
  std::string overdue_from;      // and tombstones whose time has come are flushed from this one on
  int64_t overdue_again_ns = 0;  // not before then
  std::atomic<bool> full{true}, full_again{true};
  // Where clean records of this range are still, since it was divided from another one (rule O10):
  // what its leaf holds, or forgotten. Set by the service, with no flush under way, and taken away
  // under the mutex; nullptr: they are all here, or given up.
  std::shared_ptr<Partition> behind;
  uint64_t looks_before = 0;  // of the partition's clock, when all clocks were evened (rule T7)
  int64_t came_ns = 0;        // when it, or what it is a part of, came to this member
};

// A range of a tree.
struct OwnPlace {
  OwnedTree* tree;
  OwnRange* range;
};

// Dirty records of a range that lie below one level-1 node, as far as the index cache knows these.
struct DirtyGroup {
  OwnedTree* tree;
  OwnRange* range;
  std::string from, to;  // keys from <= key < to; "": to the end of the range
  size_t records;        // as of a moment
};

// Records of a range that is being adopted: their messages are in the log, from that LSN on, and no
// term refers to them yet.
struct AdoptedRecords {
  uint32_t tree_id;
  std::shared_ptr<Partition> records;
  Lsn since;
};

}  // namespace pando
