#include "compute/cache/parent_directory.h"

#include <algorithm>
#include <new>

namespace pando {
namespace {

constexpr uint32_t kNoSlot = UINT32_MAX;
// An array is rebuilt when this many nodes, and this share of it, have found no slot.
constexpr size_t kRebuildMin = 16;
constexpr size_t kRebuildShare = 16;

}  // namespace

ParentDirectory::Array* ParentDirectory::Array::Create(uint32_t count) {
  Array header;
  header.count = count;
  auto* const array = new (::operator new(header.bytes())) Array(header);
  for (uint32_t i = 0; i < count; ++i) new (array->slots() + i) Slot(nullptr);
  return array;
}

void ParentDirectory::Array::MakeSections() {
  const uint64_t range = heads()[count - 1] - heads()[0];
  while (range >> shift >= count) ++shift;
  uint32_t at = 0;
  for (uint32_t i = 0; i < count; ++i) {
    sections()[i] = at;
    while (at < count && SectionOf(heads()[at]) == i) ++at;
  }
  sections()[count] = count;
}

void ParentDirectory::Array::Destroy(void* array) { ::operator delete(array); }

ParentDirectory::~ParentDirectory() { Array::Destroy(array_.load()); }

bool ParentDirectory::Add(CachedNode* node) {
  Array* const array = array_.load(std::memory_order_relaxed);
  const uint32_t end = array == nullptr ? 0 : array->UpperBound(node->low_head());
  if (end == 0 || array->heads()[end - 1] != node->low_head() ||
      array->slots()[end - 1].load(std::memory_order_relaxed) != nullptr) {
    ++without_slot_;
    return false;
  }
  node->directory_slot = end - 1;
  array->slots()[end - 1].store(node, std::memory_order_seq_cst);
  return true;
}

void ParentDirectory::Remove(CachedNode* node) {
  if (node->directory_slot == kNoSlot) return;
  array_.load(std::memory_order_relaxed)
      ->slots()[node->directory_slot]
      .store(nullptr, std::memory_order_seq_cst);
  node->directory_slot = kNoSlot;
}

bool ParentDirectory::WantsRebuild() const {
  const Array* const array = array_.load(std::memory_order_relaxed);
  return without_slot_ > kRebuildMin + (array == nullptr ? 0 : array->count / kRebuildShare);
}

size_t ParentDirectory::bytes() const {
  const Array* const array = array_.load(std::memory_order_relaxed);
  return array == nullptr ? 0 : array->bytes();
}

uint64_t ParentDirectory::Rebuild(std::vector<CachedNode*> nodes, EpochDomain* epochs) {
  std::sort(nodes.begin(), nodes.end(), [](const CachedNode* a, const CachedNode* b) {
    return a->low_head() != b->low_head() ? a->low_head() < b->low_head() : a->low() < b->low();
  });
  without_slot_ = 0;
  Array* const fresh = nodes.empty() ? nullptr : Array::Create(static_cast<uint32_t>(nodes.size()));
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    fresh->heads()[i] = nodes[i]->low_head();
    fresh->slots()[i].store(nodes[i], std::memory_order_relaxed);
    nodes[i]->directory_slot = i;
  }
  if (fresh != nullptr) fresh->MakeSections();
  Array* const old = array_.exchange(fresh, std::memory_order_seq_cst);
  return old == nullptr ? 0 : epochs->Retire(old, &Array::Destroy, old->bytes());
}

}  // namespace pando
