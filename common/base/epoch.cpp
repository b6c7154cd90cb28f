#include "common/base/epoch.h"

#include <algorithm>

#include "common/base/check.h"

namespace pando {
namespace {
constexpr size_t kCollectEvery = 64;
}

EpochDomain::Guard::Guard(const EpochDomain& domain, Slot* slot) : slot_(slot) {
  // Sequentially consistent, like the unlinking store and the collector's load: either the
  // collector sees this pin, or this reader sees the unlinking.
  slot->pinned.store(domain.epoch_.load(std::memory_order_relaxed), std::memory_order_seq_cst);
}

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

void EpochDomain::Retire(void* object, void (*deleter)(void*)) {
  retired_.push_back({object, deleter, epoch_.fetch_add(1, std::memory_order_seq_cst)});
  if (retired_.size() % kCollectEvery == 0) Collect();
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
  std::erase_if(retired_, [oldest](const Retired& r) {
    if (r.epoch >= oldest) return false;
    r.deleter(r.object);
    return true;
  });
}

}  // namespace pando
