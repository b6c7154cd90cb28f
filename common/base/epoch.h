// Epoch-based reclamation for read-mostly structures: a reader pins the current epoch in a slot of
// its own (no shared write), a writer frees what it unlinked once every pinned reader is younger.
//
// Thread safety: a Slot belongs to one thread at a time; Retire() and Collect() need external
// mutual exclusion (the owner's writer mutex); Register() and Unregister() are thread-safe.
// Invariants:
//   1. What is retired was unlinked by a sequentially consistent store before.
//   2. Nothing is freed while a guard that was taken before its retirement is alive.
//   3. A guard is never held across a suspension.
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
    Guard(const EpochDomain& domain, Slot* slot);
    ~Guard() { slot_->pinned.store(0, std::memory_order_release); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Slot* const slot_;
  };

  // Frees `object` with `deleter` when no older guard is left.
  void Retire(void* object, void (*deleter)(void*));
  // Frees what can be freed; amortised by Retire().
  void Collect();
  size_t retired() const { return retired_.size(); }

 private:
  struct Retired {
    void* object;
    void (*deleter)(void*);
    uint64_t epoch;
  };

  std::atomic<uint64_t> epoch_{1};
  std::vector<Retired> retired_;
  std::mutex slots_mutex_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace pando
