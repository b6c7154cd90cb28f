#include "bench/ycsb/own_keys.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

namespace pando::bench {

void OwnKeys::Learn(const std::vector<RangeInfo>& all, uint16_t compute_server) {
  auto own = std::make_shared<std::vector<Range>>();
  for (const RangeInfo& range : all) {
    if (range.owner.nobody() || range.owner.compute_server != compute_server) continue;
    own->push_back({.low = range.low, .high = range.high});
  }
  std::lock_guard lock(mutex_);
  ranges_ = std::move(own);
  version_.fetch_add(1, std::memory_order_release);
}

void OwnKeysView::Refresh() {
  if (keys_.version_.load(std::memory_order_acquire) == version_) return;
  std::lock_guard lock(keys_.mutex_);
  ranges_ = keys_.ranges_;
  version_ = keys_.version_.load(std::memory_order_relaxed);
}

bool OwnKeysView::empty() {
  Refresh();
  return ranges_->empty();
}

bool OwnKeysView::Has(std::string_view key) {
  Refresh();
  const auto above = std::ranges::upper_bound(
      *ranges_, key, std::less<std::string_view>(),
      [](const OwnKeys::Range& range) { return std::string_view(range.low); });
  if (above == ranges_->begin()) return false;
  const OwnKeys::Range& range = *std::prev(above);
  return range.high.empty() || key < range.high;
}

}  // namespace pando::bench
