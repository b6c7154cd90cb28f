// Memory servers that have died and start again: empty, as another life (rules R7, R8). As on real
// machines nobody is told: each client looks for servers now and then, and takes up what it finds.
// (compute/client/member_watch.h does so on a thread and in real time, which a simulated run has
// none of; AddMember() is what it calls.)
//
// A server comes back by a callback of the world, at any time: before anybody has noticed its
// death, while clients open, load or drop trees, connect, recover what the dead have left, or take
// up an earlier life. Clients take it up one after the other, between two events of the others.
//
// What may be lost is what a death loses, and the trees that had nodes on the ended life: these say
// so in every operation, from when their client has taken up the next one. They are dropped and
// created again, with histories of their own. All else goes on. Once all servers are there, and
// everybody has taken them up, nothing may be refused any more, and trees are checked as a whole
// afterwards.
#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/sim/sim_run_state.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"

namespace pando::sim_run {
namespace {

constexpr double kDiesAgain = 0.25;  // of the new lives
constexpr int kLivesMax = 8;
// From when a client is told that its tree is lost until that is dropped: this share of the events.
constexpr double kDropLost = 0.02;
constexpr int64_t kTakeUpAgainNs = 50 * kMicrosecondNs;

}  // namespace

void SimRun::RestartLater(size_t place) {
  if (no_more_restarts_ || !restart_random_.Chance(options_.server_restarts)) return;
  const auto longest_ns = static_cast<uint64_t>(options_.server_restart_max_ns);
  const int64_t at_ns = NowNs() + 1 + static_cast<int64_t>(restart_random_.Uniform(longest_ns + 1));
  ++restarts_due_;
  world_.At(at_ns, [this, place] {
    if (no_more_restarts_) return;
    --restarts_due_;
    Restart(place);
  });
}

void SimRun::Restart(size_t place) {
  const auto id = static_cast<ServerId>(place + 1);
  ended_lives_.push_back(std::move(memory_servers_[place]));
  world_.SetHandler(id, nullptr);
  auto started = StartMemoryServer(id);
  if (!started.ok()) return Problem(absl::StrCat("start again: ", started.status().ToString()));
  memory_servers_[place] = *std::move(started);
  server_dead_[place] = false;
  --dead_servers_;
  ++result_.servers_restarted;
  const auto within_ns = static_cast<uint64_t>(options_.take_up_max_ns) + 1;
  for (const auto& server : servers_) {
    if (!IsAlive(*server)) continue;
    const int64_t at_ns = NowNs() + static_cast<int64_t>(restart_random_.Uniform(within_ns));
    not_taken_up_.push_back({server.get(), id, at_ns});
  }
  taken_up_ns_ = NowNs();
  NoteTrouble(NowNs() + options_.take_up_max_ns);
  if (ended_lives_.size() >= kLivesMax || !restart_random_.Chance(kDiesAgain)) return;
  const int64_t dies_ns = NowNs() + static_cast<int64_t>(restart_random_.Uniform(within_ns));
  world_.At(dies_ns, [this, place, life = memory_servers_[place].get()] {
    if (no_more_restarts_ || server_dead_[place] || memory_servers_[place].get() != life) return;
    if (is_taking_up_ || !not_taken_up_.empty()) ++result_.died_while_taken_up;
    KillServer(place);
  });
}

void SimRun::MaybeTakeUp() {
  while (!not_taken_up_.empty()) {
    const auto due = std::find_if(not_taken_up_.begin(), not_taken_up_.end(),
                                  [this](const NotTakenUp& one) { return one.at_ns <= NowNs(); });
    if (due == not_taken_up_.end()) return;
    const NotTakenUp next = *due;
    not_taken_up_.erase(due);
    TakeUp(*next.server, next.id);
  }
}

void SimRun::TakeUp(ComputeServer& server, ServerId id) {
  taken_up_ns_ = NowNs();
  const auto is_out = [&] {
    return !IsAlive(server) || server.client == nullptr || server.gave_up ||
           server.client->fenced();
  };
  if (server_dead_[id - size_t{1}] || is_out() || server.fabric->IsConnected(id)) return;
  is_taking_up_ = true;
  const uint64_t lives = Lives();
  const absl::Status added = ImplOf(*server.client).AddMember({.id = id});
  is_taking_up_ = false;
  taken_up_ns_ = NowNs();
  NoteTrouble(NowNs());
  if (added.ok()) {
    ++result_.servers_taken_up;
    return;
  }
  if (is_out() || Lives() != lives) return TakeUpLater(server, id);
  Problem(absl::StrCat("taking up memory server ", id, ": ", added.ToString()));
}

// An attempt that has met another death, its own included.
void SimRun::TakeUpLater(ComputeServer& server, ServerId id) {
  if (server_dead_[id - size_t{1}] || !IsAlive(server)) return;
  not_taken_up_.push_back({&server, id, NowNs() + kTakeUpAgainNs});
}

void SimRun::MaybeDropLost() {
  if (result_.servers_restarted == 0 || !CanConnect()) return;
  for (size_t i = 0; i < open_.size(); ++i) {
    ComputeServer& server = *open_[i];
    if (server.lost_slot == SIZE_MAX || !IsFree(server)) continue;
    const TreeHandle& handle = server.handles[server.lost_slot];
    if (handle.life == nullptr || handle.life->dropped) {
      server.lost_slot = SIZE_MAX;
      continue;
    }
    if (!restart_random_.Chance(kDropLost)) continue;
    server.lost_slot = SIZE_MAX;
    handle.life->dropped = true;
    const std::string name = handle.tree->name();
    if (server.client->DropTree(name).ok()) ++result_.lost_trees_dropped;
  }
}

void SimRun::EndRestarts() {
  if (restarts_due_ > 0 && result_.problems.empty() && restart_random_.Chance(0.5)) {
    world_.RunUntil(NowNs() + options_.server_restart_max_ns + 1);
  }
  no_more_restarts_ = true;
  not_taken_up_.clear();
}

int64_t SimRun::SettledNs() const {
  if (!CanConnect() || is_taking_up_ || !not_taken_up_.empty()) return kNeverNs;
  const bool is_owned = options_.tree.mode == TreeOptions::Mode::kOwned;
  return taken_up_ns_ + options_.sim.death_seen_ns + (is_owned ? LongestWaitNs() : 0);
}

}  // namespace pando::sim_run
