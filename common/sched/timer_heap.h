// Timers of one scheduler: an intrusive binary heap that knows where each timer is, so that a wait
// that ends early takes its timer out. Never allocates beyond one pointer a timer. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace pando::sched {

struct Timer {
  static constexpr size_t kUnarmed = SIZE_MAX;

  int64_t due_ns = kNeverNs;
  uint64_t sequence = 0;  // timers of one time fire in the order they were armed
  size_t heap_index = kUnarmed;

  bool armed() const { return heap_index != kUnarmed; }
};

class TimerHeap {
 public:
  // `timer` stays in place until it is due or disarmed.
  void Arm(Timer* timer, int64_t due_ns) {
    PANDO_CHECK(!timer->armed());
    timer->due_ns = due_ns;
    timer->sequence = next_sequence_++;
    heap_.push_back(timer);
    Place(heap_.size() - 1, timer);
    SiftUp(heap_.size() - 1);
  }

  void Disarm(Timer* timer) {
    if (!timer->armed()) return;
    const size_t hole = timer->heap_index;
    Timer* const last = heap_.back();
    heap_.pop_back();
    timer->heap_index = Timer::kUnarmed;
    if (last == timer) return;
    Place(hole, last);
    SiftUp(hole);
    SiftDown(last->heap_index);
  }

  // The next timer that is due at `now_ns`, disarmed; nullptr if none is.
  Timer* PopDue(int64_t now_ns) {
    if (heap_.empty() || heap_.front()->due_ns > now_ns) return nullptr;
    Timer* const timer = heap_.front();
    Disarm(timer);
    return timer;
  }

  bool empty() const { return heap_.empty(); }
  int64_t next_due_ns() const { return heap_.empty() ? kNeverNs : heap_.front()->due_ns; }

 private:
  static bool Before(const Timer* a, const Timer* b) {
    return std::pair(a->due_ns, a->sequence) < std::pair(b->due_ns, b->sequence);
  }
  void Place(size_t index, Timer* timer) {
    heap_[index] = timer;
    timer->heap_index = index;
  }
  void SiftUp(size_t index) {
    Timer* const timer = heap_[index];
    while (index > 0 && Before(timer, heap_[(index - 1) / 2])) {
      Place(index, heap_[(index - 1) / 2]);
      index = (index - 1) / 2;
    }
    Place(index, timer);
  }
  void SiftDown(size_t index) {
    Timer* const timer = heap_[index];
    for (size_t child; (child = 2 * index + 1) < heap_.size(); index = child) {
      if (child + 1 < heap_.size() && Before(heap_[child + 1], heap_[child])) ++child;
      if (!Before(heap_[child], timer)) break;
      Place(index, heap_[child]);
    }
    Place(index, timer);
  }

  std::vector<Timer*> heap_;
  uint64_t next_sequence_ = 0;
};

}  // namespace pando::sched
