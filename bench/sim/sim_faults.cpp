// What is done to a run: deaths, pauses, partitions.
#include <algorithm>

#include "bench/sim/sim_run_state.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"

namespace pando::sim_run {
namespace {

// From a death to the sweep that it is the reason of.
constexpr uint64_t kSweepWithinNs = 500 * kMicrosecondNs;
// Short stops of a memory server: calls are repeated meanwhile where all times are short.
constexpr uint64_t kShortStopNs = 2 * kMillisecondNs;

}  // namespace

void SimRun::PlanCrashes() {
  for (int i = 0; i < options_.crashes; ++i) {
    crashes_.push_back({.operations = crash_random_.Uniform(options_.operations + 1)});
  }
  std::sort(crashes_.begin(), crashes_.end(),
            [](const Crash& a, const Crash& b) { return a.operations > b.operations; });
}

void SimRun::MaybeCrash() {
  if (crashes_.empty() || begun_ < crashes_.back().operations) return;
  Crash& crash = crashes_.back();
  if (crash.event == 0) crash.event = world_.stats().events + 1 + crash_random_.Uniform(300);
  if (world_.stats().events < crash.event) return;
  crashes_.pop_back();
  std::vector<ComputeServer*> alive;
  for (auto& server : servers_) {
    if (IsAlive(*server)) alive.push_back(server.get());
  }
  if (alive.size() < 2) return;  // somebody has to go on
  ComputeServer& dies = *alive[crash_random_.Uniform(alive.size())];
  world_.KillFabric(*dies.fabric);
  NoteDying(&dies);
  ReplaceLater(dies);
  NoteTrouble(NowNs() + options_.sim.death_seen_ns + options_.sim.kill_late_ns);
  if (options_.sweeps > 0) {
    sweep_at_ns_ = NowNs() + options_.sim.kill_late_ns +
                   static_cast<int64_t>(sweeps_.random().Uniform(kSweepWithinNs));
  }
}

void SimRun::MaybePause() {
  if (pauses_left_ == 0 || begun_ < next_pause_) return;
  --pauses_left_;
  next_pause_ = begun_ + 1 + pause_random_.Uniform(options_.operations / 4 + 1);
  ComputeServer& server = *servers_[pause_random_.Uniform(servers_.size())];
  if (!IsAlive(server)) return;
  const auto longest_ns = static_cast<uint64_t>(options_.pause_max_ns);
  Pause(server, 1 + static_cast<int64_t>(pause_random_.Uniform(longest_ns)));
}

void SimRun::Pause(ComputeServer& server, int64_t pause_ns) { Stop(server.fabric, pause_ns); }

void SimRun::Stop(const std::shared_ptr<Fabric>& fabric, int64_t for_ns) {
  for (const auto& server : servers_) server->stopped |= server->fabric == fabric;
  world_.PauseFabric(*fabric);
  NoteTrouble(NowNs() + for_ns);
  world_.At(NowNs() + for_ns, [this, stopped = std::weak_ptr<Fabric>(fabric)] {
    if (const auto again = stopped.lock()) world_.ResumeFabric(*again);
  });
}

void SimRun::MaybeKillServer() {
  if (!server_deaths_.Take(begun_)) return;
  std::vector<size_t> mortal;  // not the first, which keeps the catalog
  for (size_t i = 1; i < server_dead_.size(); ++i) {
    if (!server_dead_[i]) mortal.push_back(i);
  }
  if (mortal.empty()) return;
  KillServer(mortal[server_deaths_.random().Uniform(mortal.size())]);
}

void SimRun::KillServer(size_t place) {
  server_dead_[place] = true;
  ++dead_servers_;
  ++result_.server_deaths;
  world_.KillServer(static_cast<ServerId>(place + 1));
  NoteTrouble(NowNs() + options_.sim.death_seen_ns);
  for (const auto& server : servers_) server->cutter_died |= server->gave_up;
  RestartLater(place);
}

void SimRun::MaybePauseServer() {
  if (!server_pauses_.Take(begun_)) return;
  Random& random = server_pauses_.random();
  const size_t stopped = random.Uniform(memory_servers_.size());
  auto longest_ns = static_cast<uint64_t>(options_.server_pause_max_ns);
  if (random.Chance(0.5)) longest_ns = std::min(longest_ns, kShortStopNs);
  const auto for_ns = 1 + static_cast<int64_t>(random.Uniform(longest_ns));
  if (server_dead_[stopped]) return;
  ++result_.server_pauses;
  const auto id = static_cast<ServerId>(stopped + 1);
  world_.PauseServer(id);
  NoteTrouble(NowNs() + for_ns);
  world_.At(NowNs() + for_ns, [this, id] { world_.ResumeServer(id); });
}

void SimRun::MaybePauseThread() {
  if (!thread_pauses_.Take(begun_)) return;
  Random& random = thread_pauses_.random();
  ComputeServer* const server = Choose(&random);
  const auto longest_ns = static_cast<uint64_t>(options_.thread_pause_max_ns);
  const auto for_ns = 1 + static_cast<int64_t>(random.Uniform(longest_ns));
  if (server == nullptr || server->sessions.empty()) return;
  const SimSession& place = *server->sessions[random.Uniform(server->sessions.size())];
  if (place.session == nullptr) return;
  ++result_.thread_pauses;
  const uint32_t thread = world_.PauseEndpoint(ImplOf(*place.session).scheduler().endpoint());
  NoteTrouble(NowNs() + for_ns);
  world_.At(NowNs() + for_ns, [this, thread] { world_.ResumeEndpoint(thread); });
}

void SimRun::MaybePartition() {
  if (!partitions_.Take(begun_)) return;
  ComputeServer* const server = Choose(&partitions_.random());
  if (server == nullptr) return;
  const auto id = static_cast<ServerId>(1 + partitions_.random().Uniform(memory_servers_.size()));
  const auto longest_ns = static_cast<uint64_t>(options_.partition_max_ns);
  ++result_.partitions;
  world_.CutLink(*server->fabric, id, true);
  const int64_t until_ns =
      NowNs() + 1 + static_cast<int64_t>(partitions_.random().Uniform(longest_ns));
  NoteTrouble(until_ns);
  world_.At(until_ns, [this, id, cut = std::weak_ptr<Fabric>(server->fabric)] {
    if (const auto there = cut.lock()) world_.CutLink(*there, id, false);
  });
}

}  // namespace pando::sim_run
