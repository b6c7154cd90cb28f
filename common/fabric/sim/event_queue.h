// The simulator's agenda. Events of one time run in the order they were added.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
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
  kTurn,          // a verb may be its queue pair's next (timing model)
  kPost,          // a NIC goes on with a chain (timing model)
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

// Two parts: a wheel with a slot for each of the nanoseconds to come, where nearly every event goes
// and where adding and taking one costs the same however many there are; and a 4-ary heap for later
// ones. An event stays where it was put.
class EventQueue {
 public:
  EventQueue() : slots_(kSlots), occupied_(kSlots / 64) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // The next event. Not of an empty queue.
  const Event& top() const {
    const Event* const near = NearTop();
    if (near == nullptr) return heap_.front();
    return heap_.empty() || near->Before(heap_.front()) ? *near : heap_.front();
  }

  // Not earlier than the last event taken.
  void Push(Event event) {
    event.sequence = next_sequence_++;
    ++size_;
    if (event.time_ns - floor_ns_ < kSlots && event.time_ns >= floor_ns_) {
      PushNear(event);
    } else {
      PushFar(event);
    }
  }

  Event Pop() {
    const Event* const near = NearTop();
    --size_;
    const bool is_near = near != nullptr && (heap_.empty() || near->Before(heap_.front()));
    const Event event = is_near ? PopNear() : PopFar();
    floor_ns_ = std::max(floor_ns_, event.time_ns);
    return event;
  }

 private:
  static constexpr int64_t kSlots = 1 << 14;  // 16 us: 128 KiB
  static constexpr size_t kArity = 4;
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Node {
    Event event;
    uint32_t next = kNone;
  };
  // The events of one nanosecond, in the order they were added.
  struct Slot {
    uint32_t head = kNone, tail = kNone;
  };

  static size_t SlotOf(int64_t time_ns) { return static_cast<size_t>(time_ns & (kSlots - 1)); }

  // The first event of the wheel: of the first slot from the floor's on, once around.
  const Event* NearTop() const {
    if (near_count_ == 0) return nullptr;
    const size_t start = SlotOf(floor_ns_);
    size_t word = start / 64;
    uint64_t bits = occupied_[word] & (~uint64_t{0} << (start % 64));
    while (bits == 0) {
      word = (word + 1) % occupied_.size();
      bits = occupied_[word];
    }
    return &nodes_[slots_[word * 64 + static_cast<size_t>(std::countr_zero(bits))].head].event;
  }

  void PushNear(const Event& event) {
    uint32_t index = free_;
    if (index == kNone) {
      index = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      free_ = nodes_[index].next;
    }
    nodes_[index] = {event, kNone};
    const size_t at = SlotOf(event.time_ns);
    Slot& slot = slots_[at];
    (slot.head == kNone ? slot.head : nodes_[slot.tail].next) = index;
    slot.tail = index;
    occupied_[at / 64] |= uint64_t{1} << (at % 64);
    ++near_count_;
  }

  Event PopNear() {
    const size_t at = SlotOf(NearTop()->time_ns);
    Slot& slot = slots_[at];
    Node& node = nodes_[slot.head];
    const Event event = node.event;
    const uint32_t rest = std::exchange(node.next, free_);
    free_ = std::exchange(slot.head, rest);
    if (rest == kNone) occupied_[at / 64] &= ~(uint64_t{1} << (at % 64));
    --near_count_;
    return event;
  }

  void PushFar(const Event& event) {
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

  Event PopFar() {
    const Event first = heap_.front();
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) SinkFromRoot(last);
    return first;
  }

  void SinkFromRoot(const Event& event) {
    size_t at = 0;
    for (;;) {
      const size_t first_child = at * kArity + 1;
      if (first_child >= heap_.size()) break;
      const size_t end = std::min(first_child + kArity, heap_.size());
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

  size_t size_ = 0;
  uint64_t next_sequence_ = 0;
  int64_t floor_ns_ = 0;  // of the last event taken; the wheel reaches kSlots from here

  size_t near_count_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint64_t> occupied_;  // a bit for each slot that is not empty
  std::vector<Node> nodes_;
  uint32_t free_ = kNone;  // unused nodes

  std::vector<Event> heap_;
};

}  // namespace pando::sim
