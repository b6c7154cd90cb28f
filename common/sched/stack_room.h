// How many coroutines' stacks a process may have. Each takes two of its mappings, which are counted
// (vm.max_map_count): once they are used up not even malloc() finds memory.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

namespace pando::sched {

class StackRoom {
 public:
  explicit StackRoom(int64_t mappings_max);
  // Of this process; never destroyed.
  static StackRoom& OfProcess();

  // False: there are too many. Of those that are no more than useful that is sooner.
  bool TryTake(bool is_needed);
  void Give(int64_t stacks) { taken_.fetch_sub(stacks, std::memory_order_relaxed); }

 private:
  const int64_t useful_max_, needed_max_;
  std::atomic<int64_t> taken_{0};
};

}  // namespace pando::sched
