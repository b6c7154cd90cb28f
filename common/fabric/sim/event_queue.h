// The simulator's agenda: a 4-ary heap of small events. Events of one time run in the order they
// were added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pando::sim {

enum class EventKind : uint8_t {
  kArrive,        // a chain reaches its server
  kFencePassed,   // a fenced verb may go
  kUnit,          // the next bytes of a verb move
  kComplete,      // a chain's completion reaches its poster
  kRun,           // an endpoint's runner is due
  kCallRequest,   // a control request reaches its server
  kCallReply,     // its reply reaches the caller
  kCallDeadline,  // the caller gives up
  kPeerGone,      // a server learns that a client is gone
  kServerTimer,   // a server's handler wants to be called
  kCallback,      // something the harness asked for
  kBreak,         // a queue pair breaks
  kBreakSeen,     // its sender notices
  kReopen,        // the server is asked for another
  kReopened,      // the sender has it
};

struct Event {
  int64_t time_ns = 0;
  uint64_t sequence = 0;
  uint32_t target = 0;  // index of what `kind` says
  EventKind kind = EventKind::kCallback;
  uint8_t verb = 0;

  bool Before(const Event& other) const {
    return time_ns != other.time_ns ? time_ns < other.time_ns : sequence < other.sequence;
  }
};
static_assert(sizeof(Event) == 24);

class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  size_t size() const { return heap_.size(); }
  const Event& top() const { return heap_.front(); }

  void Push(Event event) {
    event.sequence = next_sequence_++;
    size_t at = heap_.size();
    heap_.push_back(event);
    while (at > 0) {
      const size_t parent = (at - 1) / kArity;
      if (!event.Before(heap_[parent])) break;
      heap_[at] = heap_[parent];
      at = parent;
    }
    heap_[at] = event;
  }

  Event Pop() {
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) SinkFromRoot(last);
    return first;
  }

 private:
  static constexpr size_t kArity = 4;

  void SinkFromRoot(const Event& event) {
    size_t at = 0;
    for (;;) {
      const size_t first_child = at * kArity + 1;
      if (first_child >= heap_.size()) break;
      const size_t end = first_child + kArity < heap_.size() ? first_child + kArity : heap_.size();
      size_t best = first_child;
      for (size_t child = first_child + 1; child < end; ++child) {
        if (heap_[child].Before(heap_[best])) best = child;
      }
      if (!heap_[best].Before(event)) break;
      heap_[at] = heap_[best];
      at = best;
    }
    heap_[at] = event;
  }

  std::vector<Event> heap_;
  uint64_t next_sequence_ = 0;
};

}  // namespace pando::sim
