// How links between compute servers end: closed, broken, given up; processes that die.
#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/fabric/sim/peer_network.h"
#include "common/fabric/sim/sim_peer_link.h"

namespace pando::sim {

void PeerNetwork::CutWire(uint32_t end) { at(end).cut = at(Other(end)).cut = true; }

void PeerNetwork::TellNow(uint32_t id, absl::Status why) {
  End& end = at(id);
  core_->stats.peer_messages_lost += end.incoming.size();
  end.incoming.clear();
  end.unposted = end.unarrived = 0;
  end.last_due_ns = core_->NowNs() + 1;
  Push(id, {.kind = Entry::Kind::kBroken, .why = std::move(why)}, end.last_due_ns);
}

void PeerNetwork::Tell(uint32_t id, absl::Status why) {
  End& end = at(id);
  const bool is_told = end.state == State::kEnded || end.closing ||
                       (!end.incoming.empty() && end.incoming.back().kind == Entry::Kind::kBroken);
  if (is_told) return;
  // What is on its way through the NICs of the timing model is lost.
  auto known = std::find_if(end.incoming.begin(), end.incoming.end(),
                            [](const Entry& entry) { return entry.due_ns == kNeverNs; });
  auto kept = known - end.incoming.begin();
  if (timed_ == nullptr) {
    kept = static_cast<ptrdiff_t>(
        core_->break_random.Uniform(static_cast<uint64_t>(end.incoming.size()) + 1));
  }
  core_->stats.peer_messages_lost += end.incoming.size() - static_cast<size_t>(kept);
  end.incoming.erase(end.incoming.begin() + kept, end.incoming.end());
  end.last_due_ns = end.incoming.empty() ? core_->NowNs() : end.incoming.back().due_ns;
  const auto seen_ns = static_cast<uint64_t>(std::max<int64_t>(core_->options.break_seen_ns, 1));
  Push(id, {.kind = Entry::Kind::kBroken, .why = std::move(why)},
       core_->NowNs() + 1 + static_cast<int64_t>(core_->break_random.Uniform(seen_ns)));
}

void PeerNetwork::Close(uint32_t id) {
  End& end = at(id);
  if (end.closing || end.state == State::kEnded || core_->processes[end.process]->killed) return;
  CutWire(id);
  TellNow(id, absl::CancelledError("closed"));
  end.closing = true;
  Tell(Other(id), OtherEndGone("it was closed there"));
}

bool PeerNetwork::IsKilled(uint32_t end) const {
  return core_->processes[ends_[end]->process]->killed;
}

void PeerNetwork::Finish(uint32_t id, const absl::Status& why) {
  End& end = at(id);
  if (end.state == State::kOpen) --ports_[end.port]->links;
  end.state = State::kEnded;
  end.cut = true;
  end.incoming.clear();
  const std::shared_ptr<SimPeerLink> link = std::move(end.link);
  if (link == nullptr) return;
  link->Detach();
  if (end.handler != nullptr) end.handler->OnBroken(link.get(), why);
}

// --- What befalls processes.

void PeerNetwork::KillProcess(uint32_t process) {
  ForEachEndOf(process, [this](uint32_t end) {
    CutWire(end);
    if (!IsKilled(Other(end))) Tell(Other(end), OtherEndGone("its process has ended"));
  });
}

void PeerNetwork::DrainProcess(uint32_t process) {
  ForEachEndOf(process, [this](uint32_t end) {
    at(end).closing = true;
    TellNow(end, absl::UnavailableError("killed: this compute server is dead"));
  });
}

void PeerNetwork::BreakAll(uint32_t process) {
  ForEachEndOf(process, [this](uint32_t end) { OnBreak(end); });
}

void PeerNetwork::OnBreak(uint32_t end) {
  if (at(end).cut) return;
  ++core_->stats.peer_links_broken;
  CutWire(end);
  Tell(end, OtherEndGone("it broke"));
  Tell(Other(end), OtherEndGone("it broke"));
}

}  // namespace pando::sim
