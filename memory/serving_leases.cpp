#include "memory/serving_leases.h"

#include <algorithm>
#include <limits>

namespace pando::memory {

void ServingLeases::Renew(const ClientId& client, int64_t now_ns) {
  if (lease_ns_ == 0) return;
  const auto [entry, is_new] = heard_ns_.try_emplace(client, now_ns);
  entry->second = now_ns;
  if (!is_new) return;
  // A client that is over needs no entry. New lives are few, so that this is seldom.
  absl::erase_if(heard_ns_, [&](const auto& other) { return other.second + lease_ns_ <= now_ns; });
}

int64_t ServingLeases::OverNs(const ClientId& client) const {
  if (lease_ns_ == 0) return std::numeric_limits<int64_t>::min();
  const auto entry = heard_ns_.find(client);
  const int64_t heard_ns = entry == heard_ns_.end() ? start_ns_ : entry->second;
  return std::max(heard_ns, start_ns_) + lease_ns_;
}

}  // namespace pando::memory
