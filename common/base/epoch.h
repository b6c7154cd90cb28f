// Epoch-based reclamation for read-mostly structures: a reader pins the current epoch in a slot of
// its own (no shared write), a writer frees what it unlinked once every pinned reader is younger.
//
// Thread safety: a Slot belongs to one thread at a time; Retire() and Collect() need external
// mutual exclusion (the owner's writer mutex); Register() and Unregister() are thread-safe.
// Invariants:
//   1. What is retired was unlinked by a sequentially consistent store before.
//   2. Nothing is freed while a guard that was taken before its retirement is alive.
//   3. A guard is never held across a suspension.
//   4. Beyond what guards hold back, less than kCollectObjects objects and kCollectBytes wait to be
//      freed after Retire() returned.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace pando {

class EpochDomain {
 public:
  struct alignas(64) Slot {
    std::atomic<uint64_t> pinned{0};  // 0: no guard
  };

  EpochDomain() = default;
  ~EpochDomain();  // frees everything; no guard may be alive
  EpochDomain(const EpochDomain&) = delete;
  EpochDomain& operator=(const EpochDomain&) = delete;

  Slot* Register();
  void Unregister(Slot* slot);

  class Guard {
   public:
    // Sequentially consistent, like the unlinking store and the collector's load: either the
    // collector sees this pin, or this reader sees the unlinking.
    Guard(const EpochDomain& domain, Slot* slot) : slot_(slot) {
      slot->pinned.store(domain.epoch_.load(std::memory_order_relaxed), std::memory_order_seq_cst);
    }
    ~Guard() { slot_->pinned.store(0, std::memory_order_release); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Slot* const slot_;
  };

  static constexpr size_t kCollectObjects = 64;
  static constexpr size_t kCollectBytes = 16 * 1024;

  // Frees `object`, which takes so many bytes, with `deleter` when no older guard is left. The
  // result is for IsFreed().
  uint64_t Retire(void* object, void (*deleter)(void*), size_t bytes);
  // 0: nothing was retired.
  bool IsFreed(uint64_t retirement) const {
    return retired_.empty() || retirement < retired_.front().epoch;
  }
  // Frees what can be freed; amortised by Retire().
  void Collect();
  size_t retired() const { return retired_.size(); }
  size_t retired_bytes() const { return retired_bytes_; }

 private:
  struct Retired {
    void* object;
    void (*deleter)(void*);
    size_t bytes;
    uint64_t epoch;
  };

  std::atomic<uint64_t> epoch_{1};
  std::vector<Retired> retired_;  // by epoch
  size_t retired_bytes_ = 0;
  // What the last Collect() had to leave.
  size_t left_objects_ = 0, left_bytes_ = 0;
  std::mutex slots_mutex_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace pando
