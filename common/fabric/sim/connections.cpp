// How connections between compute servers and memory servers end while both live: cut off by the
// server, or given up by the client, which may connect again, to the same life of the server.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/fabric/sim/world_impl.h"

namespace pando::sim {

void Network::Leave(uint32_t peer, uint32_t server) {
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    QueuePair& queue_pair = queue_pairs_[i];
    if (queue_pair.peer != peer || queue_pair.server != server || queue_pair.broken) continue;
    std::vector<Chain*> failed;
    for (const std::unique_ptr<Flight>& flight : flights_) {
      if (flight->chain == nullptr || flight->queue_pair != i) continue;
      failed.push_back(flight->chain);
      // What has ended and is on its way back is not heard of either.
      if (!flight->in_queue) flight->chain = nullptr;
    }
    CutQueue(queue_pair, core_->break_random.Uniform(queue_pair.waiting_verbs + 1));
    for (Chain* chain : failed) {
      FailLater(i, chain, core_->now_ns + core_->options.cut_seen_ns,
                CutOffError(core_->servers[server].id));
    }
    DelayRemains(i, core_->options.break_late_ns);
    Pump(i);
  }
}

bool Network::DestroyLeft(uint32_t peer, uint32_t server) {
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    if (queue_pairs_[i].peer == peer && queue_pairs_[i].server == server) DropRemains(i);
  }
  return core_->ChainsOf(peer, server) == 0;
}

void Network::Replace(uint32_t peer, uint32_t server) {
  for (QueuePair& queue_pair : queue_pairs_) {
    if (queue_pair.peer == peer && queue_pair.server == server) queue_pair.replaced = true;
  }
}

void SimWorld::Impl::SchedulePeerGone(uint32_t process_index) {
  const auto report = [&](uint32_t peer, uint32_t server) {
    // Its last packet will tell; the variant of the rule does not wait for it.
    if (core.ChainsOf(peer, server) > 0 && RuleHolds(Rule::kC2)) return;
    if (core.HasLeft(peer, server)) return;  // is heard of anyway
    core.Schedule(core.NetworkDelay(), EventKind::kPeerGone, peer, static_cast<uint8_t>(server));
  };
  for (uint32_t server = 0; server < core.servers.size(); ++server) report(process_index, server);
  for (uint32_t i = 0; i < core.later_peers.size(); ++i) {
    if (core.later_peers[i].process != process_index) continue;
    report(Core::kLaterPeers + i, core.later_peers[i].server);
  }
}

// Of a process that has ended there is a second report, too.
bool SimFence::CutOff(PeerId peer_id) {
  const auto peer = static_cast<uint32_t>(peer_id) - 1;
  if (world_->core.HasLeft(peer, server_)) return false;
  world_->CutOff(peer, server_);
  return true;
}

void SimWorld::Impl::CutOff(uint32_t peer, uint32_t server) {
  CheckUntimed();
  Core::ConnectionEnd& end = core.EndOf(peer, server);
  if (end.fenced) return;
  // The variant of the rule publishes a death without destroying anything.
  if (RuleHolds(Rule::kC2)) {
    end.fenced = true;
    const bool quiet = core.ChainsOf(peer, server) == 0;
    const uint32_t process_index = core.ProcessOf(peer);
    Process& process = *core.processes[process_index];
    process.cut.resize(core.servers.size());
    if (peer == core.PeerOf(process_index, server)) process.cut[server] = true;
    network.CutOff(peer, server);
    if (!quiet) return;  // its last packet tells
  }
  core.Schedule(core.NetworkDelay(), EventKind::kPeerGone, peer, static_cast<uint8_t>(server));
}

void SimWorld::Impl::Disconnect(uint32_t process_index, uint32_t server) {
  CheckUntimed();
  const uint32_t peer = core.PeerOf(process_index, server);
  Core::ConnectionEnd& end = core.EndOf(peer, server);
  if (end.left) return;
  end.left = true;
  Process& process = *core.processes[process_index];
  process.cut.resize(core.servers.size());
  process.cut[server] = true;
  if (!end.fenced) network.Leave(peer, server);
  FailCallsOver(peer, server);
  // Behind all calls that it has made.
  core.Schedule(2 * core.options.call_delay_ns + core.NetworkDelay(), EventKind::kPeerLeft, peer,
                static_cast<uint8_t>(server));
}

// The server first destroys its side. When what has started has ended, its handler is told.
void SimWorld::Impl::OnPeerLeft(const Event& event) {
  constexpr int64_t kQuietAgainNs = 1 * kMicrosecondNs;
  Server& server = core.servers[event.verb];
  if (server.handler == nullptr || server.dead || IsHeld(event.verb, event)) return;
  core.EndOf(event.target, event.verb).seen = true;
  if (!network.DestroyLeft(event.target, event.verb)) {
    core.Schedule(kQuietAgainNs, EventKind::kPeerLeft, event.target, event.verb);
    return;
  }
  server.handler->OnPeerGone(event.target + 1);
  RunServerTimer(event.verb);
}

uint32_t SimWorld::Impl::ConnectAgain(uint32_t process_index, uint32_t server) {
  Process& process = *core.processes[process_index];
  const uint32_t before = core.PeerOf(process_index, server);
  PANDO_CHECK(core.HasLeft(before, server));
  const uint32_t peer = Core::kLaterPeers + static_cast<uint32_t>(core.later_peers.size());
  core.later_peers.push_back({process_index, server});
  process.later_peers.resize(core.servers.size());
  process.later_peers[server] = peer;
  process.cut[server] = false;
  network.Replace(before, server);
  return peer;
}

}  // namespace pando::sim
