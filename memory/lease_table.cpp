#include "memory/lease_table.h"

#include "common/base/rule.h"

namespace pando::memory {

void LeaseTable::Renew(PeerId peer, int64_t now_ns) {
  if (lease_ns_ == 0) return;
  if (heard_ns_.empty()) last_step_ns_ = now_ns;  // nobody was waited for
  heard_ns_[peer] = now_ns;
}

std::vector<PeerId> LeaseTable::Step(int64_t now_ns) {
  std::vector<PeerId> expired;
  if (heard_ns_.empty()) return expired;
  if (now_ns - last_step_ns_ > 2 * interval_ns() && RuleHolds(Rule::kC1)) {
    for (auto& [peer, heard_ns] : heard_ns_) heard_ns = now_ns;
  }
  last_step_ns_ = now_ns;
  for (const auto& [peer, heard_ns] : heard_ns_) {
    if (now_ns - heard_ns > lease_ns_) expired.push_back(peer);
  }
  for (const PeerId peer : expired) heard_ns_.erase(peer);
  return expired;
}

int64_t LeaseTable::NextStepNs() const {
  return heard_ns_.empty() ? kNeverNs : last_step_ns_ + interval_ns();
}

}  // namespace pando::memory
