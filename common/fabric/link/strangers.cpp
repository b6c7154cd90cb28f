#include "common/fabric/link/strangers.h"

#include "common/base/check.h"

namespace pando {

std::optional<PeerId> Strangers::TakeOldest(const Queue* queue) {
  if (queue == nullptr) return std::nullopt;
  const PeerId oldest = queue->begin()->second;
  Remove(oldest);
  return oldest;
}

std::optional<PeerId> Strangers::Add(PeerId peer, const std::string& origin, int64_t until_ns) {
  std::optional<PeerId> evicted;
  const auto own = origins_.find(origin);
  if (own != origins_.end() && own->second.size() >= limits_.origin_max) {
    evicted = TakeOldest(&own->second);
  } else if (entries_.size() >= limits_.max) {
    evicted = Evict();
  }
  const Entry entry = {origin, ++arrivals_, until_ns};
  PANDO_CHECK(entries_.emplace(peer, entry).second);
  origins_[origin].emplace(entry.arrival, peer);
  by_time_.emplace(until_ns, peer);
  return evicted;
}

void Strangers::Extend(PeerId peer, int64_t until_ns) {
  const auto found = entries_.find(peer);
  if (found == entries_.end()) return;
  by_time_.erase({found->second.until_ns, peer});
  found->second.until_ns = until_ns;
  by_time_.emplace(until_ns, peer);
}

void Strangers::Remove(PeerId peer) {
  const auto found = entries_.find(peer);
  if (found == entries_.end()) return;
  const auto origin = origins_.find(found->second.origin);
  origin->second.erase(found->second.arrival);
  if (origin->second.empty()) origins_.erase(origin);
  by_time_.erase({found->second.until_ns, peer});
  entries_.erase(found);
}

std::optional<PeerId> Strangers::Evict() {
  const Queue* largest = nullptr;
  for (const auto& [origin, queue] : origins_) {
    if (largest == nullptr || queue.size() > largest->size()) largest = &queue;
  }
  return TakeOldest(largest);
}

std::optional<PeerId> Strangers::TakeLate(int64_t now_ns) {
  if (next_ns() > now_ns) return std::nullopt;
  const PeerId late = by_time_.begin()->second;
  Remove(late);
  return late;
}

}  // namespace pando
