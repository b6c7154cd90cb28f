#include "compute/owner/read_leases.h"

#include <algorithm>

namespace pando {
namespace {

// Of a range that is not lent, in lengths of leases.
constexpr int64_t kAskAgain = 64, kAskAgainUnreadable = 1024;

bool IsBelow(std::string_view key, const ReadLease* lease) { return key < lease->low; }

}  // namespace

ReadLease* ReadLeases::Find(std::string_view key) const {
  const List* const list = list_.load(std::memory_order_acquire);
  if (list == nullptr) return nullptr;
  const auto above = std::upper_bound(list->begin(), list->end(), key, IsBelow);
  if (above == list->begin()) return nullptr;
  ReadLease* const lease = *std::prev(above);
  return lease->Covers(key) ? lease : nullptr;
}

ReadLease* ReadLeases::Add(std::string_view low, std::string_view high) {
  const std::lock_guard lock(mutex_);
  const List* const before = list_.load(std::memory_order_relaxed);
  List list = before == nullptr ? List() : *before;
  const auto same = std::find_if(list.begin(), list.end(), [&](const ReadLease* lease) {
    return lease->low == low && lease->high == high;
  });
  if (same != list.end()) return *same;
  std::erase_if(list, [&](const ReadLease* lease) {
    const bool ends_before = !lease->high.empty() && lease->high <= low;
    const bool begins_behind = !high.empty() && high <= lease->low;
    return !ends_before && !begins_behind;
  });
  ReadLease* const lease = all_leases_.emplace_back(std::make_unique<ReadLease>(low, high)).get();
  list.insert(std::upper_bound(list.begin(), list.end(), low, IsBelow), lease);
  all_lists_.push_back(std::make_unique<const List>(std::move(list)));
  list_.store(all_lists_.back().get(), std::memory_order_release);
  return lease;
}

ReadLease* ReadLeases::Learn(std::string_view low, std::string_view high, bool lent,
                             int64_t sent_ns, int64_t lease_ns) {
  ReadLease* lease = Find(low);
  if (lease == nullptr || lease->low != low || lease->high != high) lease = Add(low, high);
  const int64_t fresh_ns = sent_ns + lease_ns / 4 * 3;
  if (!lent || NowNs() >= fresh_ns) {
    NoteRefused(lease, lease_ns);
    return lease;
  }
  lease->held.Set(clock_, sent_ns + lease_ns);
  lease->fresh.Set(clock_, fresh_ns);
  return lease;
}

void ReadLeases::NoteRefused(ReadLease* lease, int64_t lease_ns) {
  lease->refused.Set(clock_, NowNs() + kAskAgain * lease_ns);
}

void ReadLeases::NoteUnreadable(ReadLease* lease, int64_t lease_ns) {
  lease->fresh.Clear();
  lease->held.Clear();
  lease->refused.Set(clock_, NowNs() + kAskAgainUnreadable * lease_ns);
}

}  // namespace pando
