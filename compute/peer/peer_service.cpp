#include "compute/peer/peer_service.h"

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/status.h"
#include "compute/peer/served_peer.h"

namespace pando {

PeerService::PeerService(const Options& options,
                         std::vector<std::unique_ptr<SessionContext>> sessions,
                         PeerExecutor* executor)
    : options_(options), executor_(executor), closed_log_(3, &sessions.at(0)->endpoint().clock()) {
  for (auto& session : sessions) lanes_.emplace_back(std::move(session));
}

absl::Status PeerService::Start() {
  if (options_.event_driven) return absl::OkStatus();
  for (Lane& lane : lanes_) PANDO_RETURN_IF_ERROR(lane.session.Start("pando-service"));
  return absl::OkStatus();
}

PeerService::~PeerService() {
  PANDO_CHECK(peers_.empty()) << "the port is destroyed before those that its links call";
  for (Lane& lane : lanes_) lane.session.End();
  PANDO_CHECK_EQ(under_way_.load(), 0u);
}

PeerHandler* PeerService::OnAccepted(const std::shared_ptr<PeerLink>& link) {
  std::lock_guard lock(mutex_);
  Lane& lane = *std::ranges::min_element(lanes_, {}, &Lane::links);
  auto peer = std::make_shared<ServedPeer>(this, &lane.session.session(), link);
  PeerHandler* const handler = peer.get();
  PANDO_CHECK(peers_.emplace(link.get(), Served{.peer = std::move(peer), .lane = &lane}).second);
  ++lane.links;
  PeerCounters::Add(&counters_.links);
  return handler;
}

void PeerService::Forget(PeerLink* link) {
  Served gone;  // its end, if it is that, is not under the mutex
  std::lock_guard lock(mutex_);
  const auto found = peers_.find(link);
  if (found == peers_.end()) return;
  gone = std::move(found->second);
  --gone.lane->links;
  peers_.erase(found);
}

}  // namespace pando
