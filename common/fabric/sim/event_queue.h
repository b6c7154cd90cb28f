// The simulator's agenda. Events of one time run in the order they were added.
#pragma once

#include <algorithm>
#include <array>
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
  kPeerDue,       // something reaches an end of a link between compute servers
  kPeerCredit,    // room for messages reaches their sender
  kPeerDeadline,  // an end waits no longer for its link to be open
  kPeerBreak,     // a link breaks
  kPeerPosted,    // a NIC knows of a message (timing model)
  kPeerArrived,   // and another one has it
  kPeerLeft,      // the end of a connection that its client has given up reaches the server
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

// Three parts: a wheel with a slot for each of the nanoseconds to come, where nearly every event
// goes and where adding and taking one costs the same however many there are; a 4-ary heap for
// later ones; and a place for an event that is the only one, as those of a lone client are. An
// event stays where it was put, but that the only one goes to the others when there is another.
class EventQueue {
 public:
  EventQueue() : slots_(kSlots) {}

  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // The next event. Not of an empty queue.
  const Event& top() const {
    if (has_only_) return only_;
    if (near_count_ == 0) return heap_.front();
    const Event& near = NearTop(NearSlot());
    return heap_.empty() || near.Before(heap_.front()) ? near : heap_.front();
  }

  // Not earlier than the last event taken; its sequence is given here.
  void Push(const Event& event) {
    const uint64_t sequence = next_sequence_++;
    if (size_++ == 0) {
      Write(event, sequence, &only_);
      has_only_ = true;
      return;
    }
    if (std::exchange(has_only_, false)) Store(only_, only_.sequence);
    Store(event, sequence);
  }

  Event Pop() {
    --size_;
    const Event event = std::exchange(has_only_, false) ? only_ : Take();
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

  // Member by member into its place: a copy of the whole event reads at once what has just been
  // written in parts, and waits until that is in the cache. It was a tenth of a simulation.
  static void Write(const Event& event, uint64_t sequence, Event* to) {
    to->time_ns = event.time_ns;
    to->sequence = sequence;
    to->target = event.target;
    to->kind = event.kind;
    to->verb = event.verb;
  }

  void Store(const Event& event, uint64_t sequence) {
    if (event.time_ns - floor_ns_ < kSlots && event.time_ns >= floor_ns_) {
      Write(event, sequence, AddNear(event.time_ns));
    } else {
      StoreFar({event.time_ns, sequence, event.target, event.kind, event.verb});
    }
  }

  Event Take() {
    if (near_count_ == 0) return TakeFar();
    const size_t slot = NearSlot();
    const bool is_near = heap_.empty() || NearTop(slot).Before(heap_.front());
    return is_near ? TakeNear(slot) : TakeFar();
  }

  static size_t SlotOf(int64_t time_ns) { return static_cast<size_t>(time_ns & (kSlots - 1)); }

  // The first slot of the wheel that is not empty: from the floor's on, once around. There is one.
  size_t NearSlot() const {
    const size_t start = SlotOf(floor_ns_);
    const size_t word = start / 64;
    const uint64_t bits = occupied_[word] & (~uint64_t{0} << (start % 64));
    return bits != 0 ? FirstBit(word, bits) : FirstBit(NearWord(word + 1));
  }
  // The first word of `occupied_` that is not 0, from that one on and once around.
  size_t NearWord(size_t start) const {
    size_t word = start / 64 % occupied_words_.size();
    uint64_t bits = occupied_words_[word] & (~uint64_t{0} << (start % 64));
    while (bits == 0) {
      word = (word + 1) % occupied_words_.size();
      bits = occupied_words_[word];
    }
    return FirstBit(word, bits);
  }
  size_t FirstBit(size_t word) const { return FirstBit(word, occupied_[word]); }
  static size_t FirstBit(size_t word, uint64_t bits) {
    return word * 64 + static_cast<size_t>(std::countr_zero(bits));
  }

  const Event& NearTop(size_t slot) const { return nodes_[slots_[slot].head].event; }

  // The place of a new event of the wheel.
  Event* AddNear(int64_t time_ns) {
    uint32_t index = free_;
    if (index == kNone) {
      index = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      free_ = nodes_[index].next;
    }
    Node& node = nodes_[index];
    const size_t at = SlotOf(time_ns);
    node.next = kNone;
    Slot& slot = slots_[at];
    (slot.head == kNone ? slot.head : nodes_[slot.tail].next) = index;
    slot.tail = index;
    occupied_[at / 64] |= uint64_t{1} << (at % 64);
    occupied_words_[at / 4096] |= uint64_t{1} << (at / 64 % 64);
    ++near_count_;
    return &node.event;
  }

  Event TakeNear(size_t at) {
    Slot& slot = slots_[at];
    Node& node = nodes_[slot.head];
    const Event event = node.event;
    const uint32_t rest = std::exchange(node.next, free_);
    free_ = std::exchange(slot.head, rest);
    if (rest == kNone) {
      uint64_t& bits = occupied_[at / 64];
      bits &= ~(uint64_t{1} << (at % 64));
      if (bits == 0) occupied_words_[at / 4096] &= ~(uint64_t{1} << (at / 64 % 64));
    }
    --near_count_;
    return event;
  }

  void StoreFar(const Event& event) {
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

  Event TakeFar() {
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
  Event only_;
  bool has_only_ = false;

  size_t near_count_ = 0;
  std::vector<Slot> slots_;
  // A bit for each slot that is not empty, and one for each word of these that is not 0.
  std::array<uint64_t, kSlots / 64> occupied_{};
  std::array<uint64_t, kSlots / 4096> occupied_words_{};
  std::vector<Node> nodes_;
  uint32_t free_ = kNone;  // unused nodes

  std::vector<Event> heap_;
};

}  // namespace pando::sim
