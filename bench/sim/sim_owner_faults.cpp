// What is done to owners: links between them that are cut, and those to memory servers;
// who comes for those that were killed.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "bench/sim/ask_server.h"
#include "bench/sim/sim_run_state.h"
#include "common/fabric/peer.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/owner/member.h"

namespace pando::sim_run {
namespace {

// Whoever has connected in vain hears of it then, and tries again.
constexpr int64_t kHelloNs = PeerOptions{}.hello_timeout_ms * kMillisecondNs;
constexpr int kChoicesMax = 4;

}  // namespace

AskedClient IdentityOf(const ComputeServer& server) {
  const Member* const member = server.client == nullptr ? nullptr : ImplOf(*server.client).member();
  if (member == nullptr) return {};
  return {member->self().compute_server, member->self().incarnation};
}

namespace {

// Less than a lease, about one, or more.
int64_t AroundLeaseNs(int64_t lease_ns, Random* random) {
  const auto part = [&](int64_t of_ns) {
    return static_cast<int64_t>(random->Uniform(static_cast<uint64_t>(of_ns) + 1));
  };
  const int64_t eighth_ns = lease_ns / 8;
  switch (random->Uniform(3)) {
    case 0:
      return 1 + part(lease_ns - 2 * eighth_ns);
    case 1:
      return lease_ns - eighth_ns + part(2 * eighth_ns);
    default:
      return lease_ns + eighth_ns + part(2 * lease_ns);
  }
}

}  // namespace

void SimRun::MaybeCutPeers() {
  if (!peer_cuts_.Take(begun_)) return;
  Random& random = peer_cuts_.random();
  ComputeServer* const one = Choose(&random);
  ComputeServer* other = Choose(&random);
  for (int again = 0; again < kChoicesMax && other == one; ++again) other = Choose(&random);
  const auto direction = random.Uniform(3);
  const auto longest_ns = static_cast<uint64_t>(options_.owner_faults.peer_cut_max_ns);
  const int64_t until_ns = NowNs() + 1 + static_cast<int64_t>(random.Uniform(longest_ns));
  if (one == nullptr || one == other) return;
  ++result_.peer_cuts;
  const auto cut = [this, direction](const Fabric& from, const Fabric& to, bool is_cut) {
    if (direction == 0) return world_.CutPeers(from, to, is_cut);
    world_.CutPeersOneWay(from, to, is_cut);
  };
  if (direction > 0) ++result_.peer_cuts_one_way;
  cut(*one->fabric, *other->fabric, true);
  NoteTrouble(std::max(until_ns, NowNs() + options_.sim.peer_silent_ns) + kHelloNs);
  world_.At(until_ns, [cut, from = std::weak_ptr<Fabric>(one->fabric),
                       to = std::weak_ptr<Fabric>(other->fabric)] {
    const auto a = from.lock(), b = to.lock();
    if (a != nullptr && b != nullptr) cut(*a, *b, false);
  });
}

ServerId SimRun::ServerToCut(const ComputeServer& server, Random* random) {
  enum : uint64_t { kCatalogs, kLogs };
  const uint64_t which = random->Uniform(3);
  const auto any = static_cast<ServerId>(1 + random->Uniform(memory_servers_.size()));
  if (which == kCatalogs) return 1;
  for (size_t i = 0; which == kLogs && i < memory_servers_.size(); ++i) {
    if (!AskHasLog(memory_servers_[i].get(), IdentityOf(server))) continue;
    ++result_.cut_off_from_logs;
    return static_cast<ServerId>(i + 1);
  }
  return any;
}

void SimRun::MaybeCutMember() {
  if (!member_cuts_.Take(begun_)) return;
  Random& random = member_cuts_.random();
  ComputeServer* const server = Choose(&random);
  const int64_t for_ns = AroundLeaseNs(options_.lease_ns, &random);
  if (server == nullptr || server->client == nullptr) return;
  const ServerId id = ServerToCut(*server, &random);
  ++result_.member_cuts;
  world_.CutLink(*server->fabric, id, true);
  NoteTrouble(NowNs() + for_ns);
  world_.At(NowNs() + for_ns, [this, id, client = IdentityOf(*server),
                               cut = std::weak_ptr<Fabric>(server->fabric)] {
    const auto there = cut.lock();
    if (there == nullptr) return;
    size_t others = 0;  // that have it for dead, too
    for (size_t i = 0; i < memory_servers_.size(); ++i) {
      const bool is_dead = AskState(memory_servers_[i].get(), client) == ClientLiveness::kDead;
      if (static_cast<ServerId>(i + 1) != id) {
        others += is_dead;
      } else if (!is_dead) {
        ++result_.cut_off_and_alive;
        others = memory_servers_.size();
      }
    }
    if (others == 0 && memory_servers_.size() > 1) ++result_.dead_for_one;
    world_.CutLink(*there, id, false);
  });
}

void SimRun::ReplaceLater(const ComputeServer& dead) {
  if (!options_.owner_faults.replace_killed) return;
  const auto longest_ns = static_cast<uint64_t>(options_.owner_faults.replace_max_ns);
  const int64_t at_ns = NowNs() + static_cast<int64_t>(replace_random_.Uniform(longest_ns + 1));
  replacements_.push_back({at_ns, IdentityOf(dead)});
}

void SimRun::MaybeReplace() {
  const auto due = std::find_if(replacements_.begin(), replacements_.end(),
                                [this](const Replacement& one) { return one.at_ns <= NowNs(); });
  if (due == replacements_.end()) return;
  const AskedClient dead = due->dead;
  replacements_.erase(due);
  if (workload_.is_over() || !CanConnect()) return;
  const uint64_t lives = Lives();
  const absl::Status joined = AddComputeServer();
  if (JoinsLater(joined, lives)) {
    ++connects_owed_;
    return;
  }
  if (!joined.ok()) {
    return Problem(absl::StrCat("in the place of one that was killed: ", joined.ToString()));
  }
  ++result_.killed_replaced;
  bool has_log = false;
  for (const auto& server : memory_servers_) has_log |= AskHasLog(server.get(), dead);
  if (has_log) ++result_.replaced_before_recovered;
  SpawnClients(*servers_.back());
}

}  // namespace pando::sim_run
