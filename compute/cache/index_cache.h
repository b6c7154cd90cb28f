// Index cache of a compute server (Sherman, section 4.2.3): decoded internal nodes by address.
// Nodes are bounded in bytes: those of level 1 are evicted by power of two choices; upper levels
// leave them so much less, and are kept up to half of the bound: what is beyond that is mostly
// nodes that have died, which nobody looks up any more. Entries are hints: every use is validated
// against the node that the reference leads to (rule V1).
//
// Thread safety: Find() from any thread under an EpochDomain::Guard, without shared writes; the
// rest from any thread. Invariants:
//   1. A published node never changes but for its chain pointer and its coarse use stamp.
//   2. The bytes of all nodes never exceed the bound after Insert() returned, but in a small cache:
//      of upper levels kUpperBytesLeast may be kept whatever the bound, and where they leave no
//      room for a node of level 1, the last one that came is kept all the same, if it fits the
//      bound alone.
//   3. At most one node an address is in the table.
//   4. Of the directories' arrays at most one waits until its readers have left, and beyond that as
//      few bytes as EpochDomain says.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/epoch.h"
#include "common/base/random.h"
#include "compute/cache/cached_node.h"
#include "compute/cache/parent_directory.h"

namespace pando {

class IndexCache {
 public:
  static constexpr size_t kUpperBytesLeast = 64 << 10;

  IndexCache(size_t bytes_max, uint64_t seed);
  ~IndexCache();
  IndexCache(const IndexCache&) = delete;
  IndexCache& operator=(const IndexCache&) = delete;

  EpochDomain& epochs() { return epochs_; }

  // The node that `reference` means, or null. Needs a guard; the result is valid as long as the
  // guard.
  const CachedNode* Find(const Reference& reference) const;

  // The tree's shortcut. Searches of the tree keep it; after InvalidateTree() it stays empty.
  std::shared_ptr<const ParentDirectory> DirectoryOf(uint32_t tree_id);
  // A level-1 node that covers the key, or null: then it may still be found level by level. Needs a
  // guard.
  const CachedNode* FindParent(const ParentDirectory& directory, const SearchKey& key) const {
    const CachedNode* const node = directory.Find(key);
    CachedNode::Prefetch(node);
    if (node == nullptr || !node->Covers(key)) return nullptr;
    Touch(*node);
    return node;
  }

  // Publishes a decoded node, replacing what was there for its address.
  void Insert(uint32_t tree_id, const Reference& self, const InternalNode& node);
  // Forgets what is held for that address and life, if anything.
  void Invalidate(const Reference& reference);
  // Forgets a parent that led the key astray, if it still leads it to that child: what somebody
  // else has put there since is kept.
  void InvalidateIfLeads(const Reference& parent, const SearchKey& key, const Reference& child);
  void InvalidateTree(uint32_t tree_id);

  size_t level1_bytes() const { return level1_bytes_.load(std::memory_order_relaxed); }
  size_t upper_bytes() const { return upper_bytes_.load(std::memory_order_relaxed); }
  size_t bytes() const { return level1_bytes() + upper_bytes(); }  // what the bound is for
  uint64_t evictions() const { return evictions_.load(std::memory_order_relaxed); }

 private:
  using Bucket = std::atomic<CachedNode*>;

  Bucket& BucketOf(RemoteAddress address) const {
    return buckets_[MixBucket(address) & bucket_mask_];
  }
  static uint64_t MixBucket(RemoteAddress address);
  // Near the bound, uses leave a stamp, at most once a generation.
  void Touch(const CachedNode& node) const {
    if (!pressure_.load(std::memory_order_relaxed)) [[likely]]
      return;
    const uint32_t now = generation_.load(std::memory_order_relaxed);
    if (node.last_used.load(std::memory_order_relaxed) != now) {
      node.last_used.store(now, std::memory_order_relaxed);
    }
  }
  void AddToDirectoryLocked(CachedNode* node);
  void RemoveLocked(CachedNode* node);
  CachedNode* FindLocked(RemoteAddress address) const;
  // Evicts until the node fits, or nothing is left to evict.
  void MakeRoomLocked(const CachedNode& fresh);
  void EvictLocked(const std::vector<CachedNode*>& from);
  std::vector<CachedNode*>& ListOf(const CachedNode& node) {
    return node.level() == 1 ? level1_ : upper_;
  }

  const size_t bytes_max_, upper_bytes_max_;
  size_t bucket_mask_ = 0;
  std::unique_ptr<Bucket[]> buckets_;
  std::atomic<size_t> level1_bytes_{0};
  std::atomic<size_t> upper_bytes_{0};
  std::atomic<uint64_t> evictions_{0};
  std::atomic<bool> pressure_{false};    // near the bound: lookups leave coarse stamps
  std::atomic<uint32_t> generation_{1};  // advances with evictions; the unit of last_used

  std::mutex mutex_;                         // guards what follows, and all writes to the table
  std::vector<CachedNode*> level1_, upper_;  // what may be evicted
  absl::flat_hash_map<uint32_t, std::shared_ptr<ParentDirectory>> directories_;  // by tree
  uint64_t retired_array_ = 0;  // the last array's retirement
  Random random_;
  EpochDomain epochs_;
};

}  // namespace pando
