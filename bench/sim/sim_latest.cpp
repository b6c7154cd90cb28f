// By when what a killed compute server had under way has happened, if it has: once every memory
// server has it for dead, and none of its packets is in the network any more. The history may rely
// on that (Operation::latest_ns). It is not said of
//   - operations on owned trees: whoever was asked may execute what it was asked for later;
//   - ranges that are erased and loads in bulk, which others may end.
#include <algorithm>
#include <utility>

#include "bench/sim/ask_server.h"
#include "bench/sim/sim_run_state.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"

namespace pando::sim_run {
namespace {

constexpr int64_t kLookAgainNs = 20 * kMicrosecondNs;

}  // namespace

void SimRun::NoteDying(ComputeServer* server) {
  if (options_.tree.mode == TreeOptions::Mode::kOwned || server->client == nullptr) return;
  const ControlChannel& channel = ImplOf(*server->client).check_servers().channel;
  dying_.push_back({server, {channel.compute_server(), channel.incarnation()}});
}

void SimRun::LookAtDying() {
  if (dying_.empty() || NowNs() < look_at_dying_ns_) return;
  look_at_dying_ns_ = NowNs() + kLookAgainNs;
  std::erase_if(dying_, [this](const Dying& one) {
    if (one.server->fabric == nullptr) return true;  // it was run to its end
    if (world_.HasPacketsUnderWay(*one.server->fabric)) return false;
    for (size_t i = 0; i < memory_servers_.size(); ++i) {
      if (server_dead_[i]) continue;
      const ClientLiveness state = AskState(memory_servers_[i].get(), one.who);
      if (state != ClientLiveness::kDead && state != ClientLiveness::kUnknown) return false;
    }
    const int64_t latest_ns = Stamp();
    for (const int32_t client : one.server->clients) latest_ns_[client] = latest_ns;
    return true;
  });
}

void SimRun::SayLatest() {
  for (const auto& life : lives_) {
    auto shared = life->shared_ends.begin();
    for (size_t i = 0; i < life->operations.size(); ++i) {
      while (shared != life->shared_ends.end() && shared->second <= i) ++shared;
      history::Operation& o = life->operations[i];
      const auto latest = latest_ns_.find(o.client);
      if (!o.unknown() || latest == latest_ns_.end()) continue;
      if (shared != life->shared_ends.end() && shared->first <= i) continue;
      o.latest_ns = latest->second;
      ++result_.latest_known;
    }
  }
}

}  // namespace pando::sim_run
