// Ends of flushes on their way to the partition: some at a time, in one hold of its mutex. Each
// hold brings the lines that every put needs (the mutex, the order's nodes, the counts) to the
// flushing core and back; and what some records need is fetched together, before the hold or at its
// beginning.
//
// Not thread-safe: of one round of flushes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/core/session_context.h"
#include "compute/hot/partition.h"
#include "compute/owner/own_range.h"

namespace pando {

class Member;

class FlushEnds {
 public:
  // All outlive this.
  FlushEnds(Member* member, SessionContext* session, OwnRange* range,
            const std::vector<FlushItem>* items)
      : member_(*member), session_(*session), range_(*range), items_(*items) {}
  ~FlushEnds();  // after EndAll()
  FlushEnds(const FlushEnds&) = delete;
  FlushEnds& operator=(const FlushEnds&) = delete;

  void Add(size_t item, FlushResult result);
  // The partition hears of all that were added.
  void EndAll();
  // Of items none of which was added: nobody has flushed them.
  void GiveBack();

 private:
  // Whoever comes meanwhile waits, as when records are collected (collect.cpp). Eight are no
  // faster.
  static constexpr size_t kAHold = 4;
  struct End {
    size_t item;
    FlushResult result;
    uint64_t hash;
  };

  void ForgetIn(Partition* behind);

  Member& member_;
  SessionContext& session_;
  OwnRange& range_;
  const std::vector<FlushItem>& items_;
  std::array<End, kAHold> ends_;
  size_t count_ = 0;
};

}  // namespace pando
