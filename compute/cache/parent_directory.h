// A shortcut through one tree: from a key straight to the cached level-1 node that covers it,
// instead of level by level from the root. A sorted array of the nodes' low fences (their first
// eight bytes) with the nodes beside them; what it says is a hint like everything in the cache.
//
// Thread safety: Find() from any thread under an EpochDomain::Guard, without shared writes; the
// rest needs the cache's writer mutex.
// Invariants:
//   1. A node is taken out before it is retired.
//   2. Fences of a published array do not change; a new node takes the slot of one that started at
//      the same key, or waits for the next array.
//   3. An array has one slot for each level-1 node that was cached when it was made
//      (kBytesPerNode).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/base/epoch.h"
#include "compute/cache/cached_node.h"

namespace pando {

class ParentDirectory {
 public:
  ParentDirectory() = default;
  ~ParentDirectory();
  ParentDirectory(const ParentDirectory&) = delete;
  ParentDirectory& operator=(const ParentDirectory&) = delete;

  // The only node that can cover the key, as far as first bytes tell. Null: look elsewhere. Needs a
  // guard; the caller checks the fences.
  const CachedNode* Find(const SearchKey& key) const {
    const Array* const array = array_.load(std::memory_order_seq_cst);
    if (array == nullptr) return nullptr;
    const uint32_t end = array->UpperBound(key.head);
    return end == 0 ? nullptr : array->slots()[end - 1].load(std::memory_order_seq_cst);
  }

  // False: there is no slot for it. Worth a Rebuild() once WantsRebuild().
  bool Add(CachedNode* node);
  void Remove(CachedNode* node);
  bool WantsRebuild() const;
  // A new array of these nodes, all that are cached of this tree at level 1. The result is the old
  // one's retirement (EpochDomain::IsFreed).
  uint64_t Rebuild(std::vector<CachedNode*> nodes, EpochDomain* epochs);
  // Instead of a Rebuild(): asks again after half as many nodes.
  void PutOffRebuild() { without_slot_ /= 2; }
  size_t bytes() const;  // of the array

 private:
  using Slot = std::atomic<CachedNode*>;

  static constexpr size_t kBytesPerNode = sizeof(uint64_t) + sizeof(Slot) + sizeof(uint32_t);

  // One allocation: low heads in ascending order, slots, and where in them to look: the heads
  // between the first and the last are dealt to as many sections of equal width, section i being
  // [sections[i], sections[i + 1]). Most of them hold one head or two, unless keys are very uneven.
  struct alignas(8) Array {
    uint32_t count = 0;
    uint32_t shift = 0;  // width of a section: 2^shift

    static Array* Create(uint32_t count);
    static void Destroy(void* array);
    size_t bytes() const { return sizeof(Array) + count * kBytesPerNode + sizeof(uint32_t); }
    uint64_t* heads() { return reinterpret_cast<uint64_t*>(this + 1); }
    const uint64_t* heads() const { return reinterpret_cast<const uint64_t*>(this + 1); }
    Slot* slots() { return reinterpret_cast<Slot*>(heads() + count); }
    const Slot* slots() const { return reinterpret_cast<const Slot*>(heads() + count); }
    uint32_t* sections() { return reinterpret_cast<uint32_t*>(slots() + count); }
    const uint32_t* sections() const { return reinterpret_cast<const uint32_t*>(slots() + count); }
    uint64_t SectionOf(uint64_t head) const { return (head - heads()[0]) >> shift; }
    // How many heads are not above `head`.
    uint32_t UpperBound(uint64_t head) const {
      if (head < heads()[0]) return 0;
      const uint64_t section = SectionOf(head);
      if (section >= count) return count;
      uint32_t first = sections()[section], n = sections()[section + 1] - first;
      while (n > 0) {
        const uint32_t half = n / 2;
        const bool right = heads()[first + half] <= head;
        first += right ? half + 1 : 0;
        n = right ? n - half - 1 : half;
      }
      return first;
    }
    void MakeSections();
  };

  std::atomic<Array*> array_{nullptr};
  size_t without_slot_ = 0;  // nodes added since the array was made
};

}  // namespace pando
