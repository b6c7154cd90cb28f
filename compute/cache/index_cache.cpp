#include "compute/cache/index_cache.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <utility>

#include "common/wire/lock_word.h"

namespace pando {
namespace {

constexpr size_t kBytesPerBucket = 512;  // a node of 8/8 takes 250 to 400
constexpr size_t kBucketsMin = 1024;
constexpr size_t kBucketsMax = size_t{1} << 22;
// Evictions after which a use counts as older.
constexpr uint64_t kEvictionsPerGeneration = 16;

}  // namespace

IndexCache::IndexCache(size_t bytes_max, uint64_t seed)
    : bytes_max_(bytes_max),
      upper_bytes_max_(std::max(bytes_max / 2, kUpperBytesLeast)),
      random_(seed) {
  const size_t buckets =
      std::bit_ceil(std::clamp(bytes_max / kBytesPerBucket, kBucketsMin, kBucketsMax));
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
  CachedNode::Prefetch(node);
  while (node != nullptr && node->address() != reference.address) {
    node = node->next_in_bucket.load(std::memory_order_seq_cst);
  }
  if (node == nullptr || node->life() != reference.life) return nullptr;
  Touch(*node);
  return node;
}

CachedNode* IndexCache::FindLocked(RemoteAddress address) const {
  CachedNode* node = BucketOf(address).load(std::memory_order_relaxed);
  while (node != nullptr && node->address() != address) {
    node = node->next_in_bucket.load(std::memory_order_relaxed);
  }
  return node;
}

void IndexCache::RemoveLocked(CachedNode* node) {
  Bucket* link = &BucketOf(node->address());
  while (link->load(std::memory_order_relaxed) != node) {
    link = &link->load(std::memory_order_relaxed)->next_in_bucket;
  }
  // The node keeps its own next pointer: a reader standing on it still finds the rest of the chain.
  link->store(node->next_in_bucket.load(std::memory_order_relaxed), std::memory_order_seq_cst);
  if (node->level() == 1) {
    if (node->directory_slot != UINT32_MAX) directories_[node->tree_id()]->Remove(node);
    level1_bytes_.fetch_sub(node->bytes(), std::memory_order_relaxed);
  } else {
    upper_bytes_.fetch_sub(node->bytes(), std::memory_order_relaxed);
  }
  std::vector<CachedNode*>& list = ListOf(*node);
  list.back()->list_index = node->list_index;
  list[node->list_index] = list.back();
  list.pop_back();
  epochs_.Retire(node, &CachedNode::Destroy, node->bytes());
}

void IndexCache::MakeRoomLocked(const CachedNode& fresh) {
  const size_t upper_more = fresh.level() == 1 ? 0 : fresh.bytes();
  while (upper_bytes() + upper_more > upper_bytes_max_ && !upper_.empty()) EvictLocked(upper_);
  while (bytes() + fresh.bytes() > bytes_max_ && !level1_.empty()) EvictLocked(level1_);
  pressure_.store(bytes() + fresh.bytes() > bytes_max_ / 8 * 7 ||
                      upper_bytes() + upper_more > upper_bytes_max_ / 8 * 7,
                  std::memory_order_relaxed);
}

void IndexCache::EvictLocked(const std::vector<CachedNode*>& from) {
  CachedNode* a = from[random_.Uniform(from.size())];
  CachedNode* b = from[random_.Uniform(from.size())];
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
  if (fresh->level() == 1 && fresh->bytes() > bytes_max_) {  // too small for one node: holds none
    CachedNode::Destroy(fresh);
    return;
  }
  MakeRoomLocked(*fresh);
  fresh->last_used.store(generation_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  std::vector<CachedNode*>& list = ListOf(*fresh);
  fresh->list_index = static_cast<uint32_t>(list.size());
  list.push_back(fresh);
  if (fresh->level() == 1) {
    level1_bytes_.fetch_add(fresh->bytes(), std::memory_order_relaxed);
    AddToDirectoryLocked(fresh);
  } else {
    upper_bytes_.fetch_add(fresh->bytes(), std::memory_order_relaxed);
  }
  Bucket& bucket = BucketOf(self.address);
  fresh->next_in_bucket.store(bucket.load(std::memory_order_relaxed), std::memory_order_relaxed);
  bucket.store(fresh, std::memory_order_seq_cst);
}

void IndexCache::AddToDirectoryLocked(CachedNode* node) {
  std::shared_ptr<ParentDirectory>& directory = directories_[node->tree_id()];
  if (directory == nullptr) directory = std::make_shared<ParentDirectory>();
  if (directory->Add(node) || !directory->WantsRebuild()) return;
  if (!epochs_.IsFreed(retired_array_)) epochs_.Collect();
  if (!epochs_.IsFreed(retired_array_)) {  // a reader stands on it
    directory->PutOffRebuild();
    return;
  }
  std::vector<CachedNode*> nodes;
  std::copy_if(level1_.begin(), level1_.end(), std::back_inserter(nodes),
               [node](const CachedNode* other) { return other->tree_id() == node->tree_id(); });
  retired_array_ = directory->Rebuild(std::move(nodes), &epochs_);
}

std::shared_ptr<const ParentDirectory> IndexCache::DirectoryOf(uint32_t tree_id) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<ParentDirectory>& directory = directories_[tree_id];
  if (directory == nullptr) directory = std::make_shared<ParentDirectory>();
  return directory;
}

void IndexCache::Invalidate(const Reference& reference) {
  std::lock_guard lock(mutex_);
  CachedNode* node = FindLocked(reference.address);
  if (node != nullptr && node->life() == reference.life) RemoveLocked(node);
}

void IndexCache::InvalidateIfLeads(const Reference& parent, const SearchKey& key,
                                   const Reference& child) {
  std::lock_guard lock(mutex_);
  CachedNode* node = FindLocked(parent.address);
  if (node == nullptr || node->life() != parent.life || !node->Covers(key)) return;
  if (node->Child(node->ChildIndex(key)) == child) RemoveLocked(node);
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
  directories_.erase(tree_id);
  epochs_.Collect();
}

}  // namespace pando
