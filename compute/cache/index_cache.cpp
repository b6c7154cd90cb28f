#include "compute/cache/index_cache.h"

#include <algorithm>
#include <bit>

#include "common/wire/lock_word.h"

namespace pando {
namespace {

constexpr size_t kBytesPerBucket = 1024;  // about one node of 8/8
constexpr size_t kBucketsMin = 1024;
constexpr size_t kBucketsMax = size_t{1} << 22;
// Header and search heads of a node of 8/8.
constexpr size_t kSearchLines = 6;
// Evictions after which a use counts as older.
constexpr uint64_t kEvictionsPerGeneration = 16;

}  // namespace

IndexCache::IndexCache(size_t level1_bytes_max, uint64_t seed)
    : level1_bytes_max_(level1_bytes_max), random_(seed) {
  const size_t buckets =
      std::bit_ceil(std::clamp(level1_bytes_max / kBytesPerBucket, kBucketsMin, kBucketsMax));
  bucket_mask_ = buckets - 1;
  buckets_ = std::make_unique<Bucket[]>(buckets);
}

IndexCache::~IndexCache() {
  for (size_t i = 0; i <= bucket_mask_; ++i) {
    for (CachedNode* node = buckets_[i].load(); node != nullptr;) {
      CachedNode* next = node->next_in_bucket.load();
      CachedNode::Destroy(node);
      node = next;
    }
  }
}

uint64_t IndexCache::MixBucket(RemoteAddress address) { return MixAddress(address.raw()); }

const CachedNode* IndexCache::Find(const Reference& reference) const {
  const CachedNode* node = BucketOf(reference.address).load(std::memory_order_seq_cst);
  // A search touches most of these lines: fetch them together, not one miss after the other.
  for (size_t i = 1; i <= kSearchLines; ++i) {
    __builtin_prefetch(reinterpret_cast<const std::byte*>(node) + i * 64);
  }
  while (node != nullptr && node->self().address != reference.address) {
    node = node->next_in_bucket.load(std::memory_order_seq_cst);
  }
  if (node == nullptr || node->self().life != reference.life) return nullptr;
  if (pressure_.load(std::memory_order_relaxed)) {
    const uint32_t now = generation_.load(std::memory_order_relaxed);
    if (node->last_used.load(std::memory_order_relaxed) != now) {
      node->last_used.store(now, std::memory_order_relaxed);
    }
  }
  return node;
}

CachedNode* IndexCache::FindLocked(RemoteAddress address) const {
  CachedNode* node = BucketOf(address).load(std::memory_order_relaxed);
  while (node != nullptr && node->self().address != address) {
    node = node->next_in_bucket.load(std::memory_order_relaxed);
  }
  return node;
}

void IndexCache::RemoveLocked(CachedNode* node) {
  Bucket* link = &BucketOf(node->self().address);
  while (link->load(std::memory_order_relaxed) != node) {
    link = &link->load(std::memory_order_relaxed)->next_in_bucket;
  }
  // The node keeps its own next pointer: a reader standing on it still finds the rest of the chain.
  link->store(node->next_in_bucket.load(std::memory_order_relaxed), std::memory_order_seq_cst);
  if (node->level() == 1) {
    level1_bytes_.fetch_sub(node->bytes(), std::memory_order_relaxed);
    level1_.back()->level1_index = node->level1_index;
    level1_[node->level1_index] = level1_.back();
    level1_.pop_back();
  } else {
    upper_bytes_.fetch_sub(node->bytes(), std::memory_order_relaxed);
  }
  epochs_.Retire(node, &CachedNode::Destroy);
}

void IndexCache::EvictLocked() {
  CachedNode* a = level1_[random_.Uniform(level1_.size())];
  CachedNode* b = level1_[random_.Uniform(level1_.size())];
  const bool a_is_older =
      a->last_used.load(std::memory_order_relaxed) <= b->last_used.load(std::memory_order_relaxed);
  RemoveLocked(a_is_older ? a : b);
  if (evictions_.fetch_add(1, std::memory_order_relaxed) % kEvictionsPerGeneration == 0) {
    generation_.fetch_add(1, std::memory_order_relaxed);
  }
}

void IndexCache::Insert(uint32_t tree_id, const Reference& self, const InternalNode& node) {
  CachedNode* fresh = CachedNode::Create(tree_id, self, node);
  std::lock_guard lock(mutex_);
  if (CachedNode* old = FindLocked(self.address); old != nullptr) RemoveLocked(old);
  if (fresh->level() == 1) {
    if (fresh->bytes() > level1_bytes_max_) {  // a cache too small for one node holds none
      CachedNode::Destroy(fresh);
      return;
    }
    while (level1_bytes_.load(std::memory_order_relaxed) + fresh->bytes() > level1_bytes_max_) {
      EvictLocked();
    }
    level1_bytes_.fetch_add(fresh->bytes(), std::memory_order_relaxed);
    pressure_.store(level1_bytes_.load(std::memory_order_relaxed) > level1_bytes_max_ / 8 * 7,
                    std::memory_order_relaxed);
    fresh->last_used.store(generation_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    fresh->level1_index = static_cast<uint32_t>(level1_.size());
    level1_.push_back(fresh);
  } else {
    upper_bytes_.fetch_add(fresh->bytes(), std::memory_order_relaxed);
  }
  Bucket& bucket = BucketOf(self.address);
  fresh->next_in_bucket.store(bucket.load(std::memory_order_relaxed), std::memory_order_relaxed);
  bucket.store(fresh, std::memory_order_seq_cst);
}

void IndexCache::Invalidate(const Reference& reference) {
  std::lock_guard lock(mutex_);
  CachedNode* node = FindLocked(reference.address);
  if (node != nullptr && node->self().life == reference.life) RemoveLocked(node);
}

void IndexCache::InvalidateTree(uint32_t tree_id) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i <= bucket_mask_; ++i) {
    for (CachedNode* node = buckets_[i].load(std::memory_order_relaxed); node != nullptr;) {
      CachedNode* next = node->next_in_bucket.load(std::memory_order_relaxed);
      if (node->tree_id() == tree_id) RemoveLocked(node);
      node = next;
    }
  }
  epochs_.Collect();
}

}  // namespace pando
