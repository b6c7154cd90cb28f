#include "common/base/epoch.h"

#include <algorithm>

#include "common/base/check.h"

namespace pando {

EpochDomain::~EpochDomain() {
  for (const Retired& r : retired_) r.deleter(r.object);
}

EpochDomain::Slot* EpochDomain::Register() {
  std::lock_guard lock(slots_mutex_);
  slots_.push_back(std::make_unique<Slot>());
  return slots_.back().get();
}

void EpochDomain::Unregister(Slot* slot) {
  std::lock_guard lock(slots_mutex_);
  PANDO_CHECK(slot->pinned.load() == 0) << "an epoch slot is unregistered under a guard";
  std::erase_if(slots_, [slot](const auto& s) { return s.get() == slot; });
}

uint64_t EpochDomain::Retire(void* object, void (*deleter)(void*), size_t bytes) {
  const uint64_t epoch = epoch_.fetch_add(1, std::memory_order_seq_cst);
  retired_.push_back({object, deleter, bytes, epoch});
  retired_bytes_ += bytes;
  if (retired_.size() >= left_objects_ + kCollectObjects ||
      retired_bytes_ >= left_bytes_ + kCollectBytes) {
    Collect();
  }
  return epoch;
}

void EpochDomain::Collect() {
  uint64_t oldest = UINT64_MAX;
  {
    std::lock_guard lock(slots_mutex_);
    for (const auto& slot : slots_) {
      const uint64_t pinned = slot->pinned.load(std::memory_order_seq_cst);
      if (pinned != 0) oldest = std::min(oldest, pinned);
    }
  }
  auto end = retired_.begin();
  for (; end != retired_.end() && end->epoch < oldest; ++end) {
    retired_bytes_ -= end->bytes;
    end->deleter(end->object);
  }
  retired_.erase(retired_.begin(), end);
  left_objects_ = retired_.size();
  left_bytes_ = retired_bytes_;
}

}  // namespace pando
