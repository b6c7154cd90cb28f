// Compute servers that do not reach each other for a while, in both directions or in one.
#include <utility>

#include "common/fabric/sim/peer_network.h"

namespace pando::sim {

void PeerNetwork::SetCut(uint32_t from, uint32_t to, bool cut) {
  std::vector<bool>& cuts = core_->processes[from]->peer_cut;
  if (cuts.size() <= to) cuts.resize(to + 1);
  cuts[to] = cut;
}

bool PeerNetwork::IsCut(uint32_t from, uint32_t to) const {
  const std::vector<bool>& cuts = core_->processes[from]->peer_cut;
  return to < cuts.size() && cuts[to];
}

void PeerNetwork::Cut(uint32_t one, uint32_t other, bool cut) {
  SetCut(one, other, cut);
  SetCut(other, one, cut);
  if (!cut) return;
  ForEachEndOf(one, [&](uint32_t end) {
    if (at(Other(end)).process == other) OnBreak(end);
  });
}

// Neither end can tell at once: one is heard of, the other gets no acknowledgements and tries
// again. What was lost meanwhile never comes, so the link ends, whatever becomes of the network.
void PeerNetwork::CutOneWay(uint32_t from, uint32_t to, bool cut) {
  SetCut(from, to, cut);
  if (!cut) return;
  const auto silent_ns = static_cast<uint64_t>(core_->options.peer_silent_ns);
  ForEachEndOf(from, [&](uint32_t end) {
    if (at(Other(end)).process != to || at(end).cut || at(end).mute) return;
    at(end).mute = true;
    ++core_->stats.peer_links_mute;
    core_->Schedule(1 + static_cast<int64_t>(core_->break_random.Uniform(silent_ns + 1)),
                    EventKind::kPeerBreak, end);
  });
}

}  // namespace pando::sim
