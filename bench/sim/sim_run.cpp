#include "bench/sim/sim_run.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/history/history_io.h"
#include "bench/sim/coverage.h"
#include "bench/sim/sim_run_state.h"
#include "common/base/status.h"
#include "compute/client/connect.h"
#include "compute/client/session_impl.h"
#include "memory/sim_identity.h"

namespace pando::sim_run {
namespace {

constexpr uint64_t kCrashSeed = 0x6372617368, kPauseSeed = 0x7061757365, kTreeSeed = 0x74726565;
constexpr uint64_t kWalkSeed = 0x77616c6b, kRunSeed = 0x72756e73;
constexpr uint64_t kManySeed = 0x6d616e79, kStretchSeed = 0x73747265, kMoveSeed = 0x6d6f7665;
constexpr uint64_t kEraseSeed = 0x6572617365, kDeadlineSeed = 0x64656164;
constexpr uint64_t kSweepSeed = 0x7377656570, kReopenSeed = 0x72656f70656e, kDropSeed = 0x64726f70;
constexpr uint64_t kDeathSeed = 0x6465617468, kPartitionSeed = 0x70617274;
constexpr uint64_t kServerPauseSeed = 0x73746f70;
constexpr uint64_t kThreadPauseSeed = 0x746872656164, kRestartSeed = 0x72657374617274;
constexpr uint64_t kPeerCutSeed = 0x70637574, kMemberCutSeed = 0x6d637574;
constexpr uint64_t kReplaceSeed = 0x7265706c, kLogDeathSeed = 0x6c6f6764;
// Where dozens of one call's coroutines want a lock at once, without local locks.
constexpr uint64_t kStretched = 8;
// Before who was fenced tries again to connect, where memory servers are full.
constexpr int64_t kConnectAgainNs = 100 * kMicrosecondNs;
// Pauses and partitions apart: until who was cut off has heard of it, and has come again.
constexpr int64_t kComesByNs = kSecondNs;
// Nothing needs more events an operation than this, even in the slowest mode with everybody at one
// leaf, where nobody backs off and a lock's holder is stopped for very long.
constexpr uint64_t kEventsAnOperation = 60'000;
constexpr uint64_t kEventsAtLeast = 20'000'000;
constexpr int kConnectsMax = 20;

}  // namespace

int ComputeServer::running() const {
  int running = 0;
  for (const auto& session : sessions) running += session->running;
  return running;
}

void ComputeServer::Halt() {
  for (const auto& session : sessions) session->halting = true;
}

void ComputeServer::Close() {
  // Operations that are run to their end now look at their session, and have copies of handles.
  for (const auto& session : sessions) session->session.reset();
  sessions.clear();
  reopening.reset();
  handles.clear();
  client.reset();
  closed = true;
}

SimRun::SimRun(const SimRunOptions& options)
    : options_(options),
      world_(options.sim),
      workload_(options),
      crash_random_(DeriveSeed(options.sim.seed, kCrashSeed)),
      pause_random_(DeriveSeed(options.sim.seed, kPauseSeed)),
      walk_random_(DeriveSeed(options.sim.seed, kWalkSeed)),
      run_random_(DeriveSeed(options.sim.seed, kRunSeed)),
      many_random_(DeriveSeed(options.sim.seed, kManySeed)),
      stretch_random_(DeriveSeed(options.sim.seed, kStretchSeed)),
      move_random_(DeriveSeed(options.sim.seed, kMoveSeed)),
      erase_random_(DeriveSeed(options.sim.seed, kEraseSeed)),
      deadline_random_(DeriveSeed(options.sim.seed, kDeadlineSeed)),
      restart_random_(DeriveSeed(options.sim.seed, kRestartSeed)),
      pauses_left_(options.pauses),
      tree_random_(DeriveSeed(options.sim.seed, kTreeSeed)),
      sweeps_(options.sim.seed, kSweepSeed, options.sweeps, options.operations),
      reopens_(options.sim.seed, kReopenSeed, options.reopens, options.operations),
      drops_(options.sim.seed, kDropSeed, options.drops, options.operations),
      server_deaths_(options.sim.seed, kDeathSeed, options.server_deaths, options.operations),
      server_pauses_(options.sim.seed, kServerPauseSeed, options.server_pauses, options.operations),
      partitions_(options.sim.seed, kPartitionSeed, options.partitions, options.operations),
      thread_pauses_(options.sim.seed, kThreadPauseSeed, options.thread_pauses, options.operations),
      peer_cuts_(options.sim.seed, kPeerCutSeed, options.owner_faults.peer_cuts,
                 options.operations),
      member_cuts_(options.sim.seed, kMemberCutSeed, options.owner_faults.member_cuts,
                   options.operations),
      replace_random_(DeriveSeed(options.sim.seed, kReplaceSeed)),
      log_deaths_(options.sim.seed, kLogDeathSeed, options.owner_faults.log_deaths,
                  options.operations) {}

absl::Status SimRun::SetUp() {
  crc_ = options_.sim.mode == sim::DeliveryMode::kWords;
  for (int i = 1; i <= options_.memory_servers; ++i) {
    PANDO_RETURN_IF_ERROR(AddMemoryServer(static_cast<ServerId>(i)));
  }
  for (int i = 0; i < options_.compute_servers; ++i) PANDO_RETURN_IF_ERROR(AddComputeServer());
  return absl::OkStatus();
}

absl::Status SimRun::AddMemoryServer(ServerId id) {
  PANDO_ASSIGN_OR_RETURN(auto memory_server, StartMemoryServer(id));
  memory_servers_.push_back(std::move(memory_server));
  server_dead_.push_back(false);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<memory::MemoryServer>> SimRun::StartMemoryServer(ServerId id) {
  const ServerMemory memory = world_.AddServer(id, options_.main_bytes, options_.lock_words * 8);
  memory::MemoryServerOptions server;
  server.server_id = id;
  server.is_catalog = id == 1;
  server.chunk_bytes = options_.chunk_bytes;
  server.packet_bytes = options_.sim.packet_bytes;
  server.needs_crc = crc_;
  server.times = options_.times;
  server.clock = &world_.ServerClock(id);
  server.fence_words_per_step = options_.fence_words_per_step;
  server.lease_ns = options_.lease_ns;
  server.serving_lease_ns =
      options_.serving_lease_ns > 0 ? options_.serving_lease_ns : options_.lease_ns / 2;
  // Without leases only a process's end is its death.
  if (options_.lease_ns > 0) server.fence = world_.Fence(id);
  server.identity_key = memory::SimIdentityKey();
  server.life = 1 + ended_lives_.size();
  PANDO_ASSIGN_OR_RETURN(auto memory_server, memory::MemoryServer::Create(memory, server));
  world_.SetHandler(id, memory_server.get());
  return memory_server;
}

absl::Status SimRun::AddComputeServer() {
  for (int attempt = 1;; ++attempt) {
    const absl::Status added = TryAddComputeServer();
    if (added.ok() || attempt == kConnectsMax) return added;
    ComputeServer& server = *servers_.back();
    if (!WasCutOff(server, added)) return added;
    server.Close();
  }
}

bool SimRun::WasCutOff(ComputeServer& server, const absl::Status& why) {
  // A lease may run out while calls of the set-up are lost and repeated, or while it is stopped.
  if (options_.lease_ns == 0) return false;
  if (absl::IsFailedPrecondition(why)) return true;
  // What it sees first may be that its queue pairs are gone; soon it hears why.
  const bool may_be =
      server.stopped || options_.server_pauses > 0 || options_.sim.call_request_loss > 0;
  if (!absl::IsUnavailable(why) || !may_be) return false;
  if (server.client == nullptr) return true;
  world_.RunUntil(NowNs() + 2 * options_.lease_ns);
  return server.client->fenced();
}

absl::Status SimRun::TryAddComputeServer() {
  servers_.push_back(std::make_unique<ComputeServer>());
  ComputeServer& server = *servers_.back();
  open_.push_back(&server);
  server.fabric = world_.NewFabric();
  if (options_.peer_break_probability > 0) {
    world_.SetPeerBreakProbability(*server.fabric, options_.peer_break_probability);
  }
  PANDO_ASSIGN_OR_RETURN(server.client,
                         ConnectOverFabric(options_.client, server.fabric, options_.times));
  for (size_t slot = 0; slot < static_cast<size_t>(options_.trees); ++slot) {
    PANDO_ASSIGN_OR_RETURN(TreeHandle handle, OpenSlot(server, slot));
    server.handles.push_back(std::move(handle));
  }
  for (int i = 0; i < options_.threads; ++i) {
    PANDO_ASSIGN_OR_RETURN(auto session, server.client->NewSession());
    server.sessions.push_back(std::make_unique<SimSession>());
    server.sessions.back()->session = std::move(session);
  }
  return absl::OkStatus();
}

ComputeServer* SimRun::Choose(Random* random) {
  std::vector<ComputeServer*> free;
  for (ComputeServer* const server : open_) {
    if (IsFree(*server)) free.push_back(server);
  }
  return free.empty() ? nullptr : free[random->Uniform(free.size())];
}

void SimRun::Reconnect() {
  for (size_t i = 0; i < open_.size(); ++i) {
    ComputeServer& server = *open_[i];
    if (!server.gave_up || server.running() > 0 || !IsAlive(server)) continue;
    if (!server.client->fenced()) continue;  // it has only seen that its queue pairs are gone
    AddStats(server.client->Stats(), &result_.stats);
    server.Close();
    NoteTrouble(NowNs());  // others see to what it has left
    ++connects_owed_;
  }
  while (connects_owed_ > 0 && CanConnect() && NowNs() >= connect_not_before_ns_ &&
         NowNs() >= join_not_before_ns_) {
    const uint64_t lives = Lives();
    const absl::Status joined = AddComputeServer();
    if (JoinsLater(joined, lives) || FindsNoRoomYet(joined)) return;
    if (!joined.ok()) return Problem(absl::StrCat("reconnect: ", joined.ToString()));
    --connects_owed_;
    ++result_.reconnects;
    SpawnClients(*servers_.back());
  }
}

bool SimRun::JoinsLater(const absl::Status& joined, uint64_t lives_before) {
  if (joined.ok() || Lives() == lives_before) return false;
  servers_.back()->Close();
  join_not_before_ns_ = NowNs() + kConnectAgainNs;
  return true;
}

// Its tree had been dropped, or all clients have gone, and there is no room for a root yet.
bool SimRun::FindsNoRoomYet(const absl::Status& joined) {
  const bool is_little = options_.main_bytes < SimRunOptions::kLittleBytes;
  if (!absl::IsResourceExhausted(joined) || !is_little) return false;
  servers_.back()->Close();
  connect_not_before_ns_ = NowNs() + kConnectAgainNs;
  return true;
}

bool SimRun::SomebodyWorks() const {
  return std::any_of(open_.begin(), open_.end(), [this](const ComputeServer* server) {
    return server->running() > 0 && !world_.IsKilled(*server->fabric);
  });
}

bool SimRun::SomebodyComes() const {
  if (workload_.is_over() || (!CanConnect() && restarts_due_ == 0)) return false;
  if (connects_owed_ > 0) return true;
  return std::any_of(open_.begin(), open_.end(), [this](const ComputeServer* server) {
    return IsAlive(*server) && (server->gave_up || server->reopening.has_value());
  });
}

bool SimRun::Unfinished() {
  if (SomebodyWorks()) {
    worked_ns_ = NowNs();
    return true;
  }
  if (!SomebodyComes()) return false;
  const int64_t cut_max_ns = options_.owner_faults.member_cuts > 0 ? 4 * options_.lease_ns : 0;
  if (NowNs() - worked_ns_ <= options_.pause_max_ns + options_.partition_max_ns +
                                  options_.server_pause_max_ns + options_.server_restart_max_ns +
                                  options_.take_up_max_ns + cut_max_ns + kComesByNs) {
    return true;
  }
  if (IsFullForGood()) return false;
  Problem(absl::StrCat("nobody works any more after ", begun_, " operations had begun"));
  return false;
}

bool SimRun::IsFullForGood() const {
  if (connects_owed_ > 0 && connect_not_before_ns_ > 0) return true;
  return std::any_of(open_.begin(), open_.end(), [](const ComputeServer* server) {
    return server->reopening.has_value() && server->reopening->is_full;
  });
}

void SimRun::Drive() {
  PlanCrashes();
  for (auto& server : servers_) SpawnClients(*server);
  const uint64_t events_max = options_.events_max > 0
                                  ? options_.events_max
                                  : kEventsAtLeast + kEventsAnOperation * options_.operations *
                                                         (options_.stretches > 0 ? kStretched : 1);
  size_t come = servers_.size();
  while (Unfinished() && result_.problems.empty()) {
    if (servers_.size() != come) {
      come = servers_.size();
      std::erase_if(open_, [](const ComputeServer* server) { return server->closed; });
    }
    if (!world_.Step()) {
      Problem(
          absl::StrCat("deadlock: nothing is under way after ", begun_, " operations had begun"));
    } else if (world_.stats().events > events_max) {
      Problem(absl::StrCat("endless: too many events after ", begun_, " operations had begun"));
    }
    MaybeCrash();
    LookAtDying();
    MaybePause();
    MaybeKillServer();
    MaybeTakeUp();
    MaybeDropLost();
    MaybePauseServer();
    MaybePauseThread();
    MaybePartition();
    MaybeCutPeers();
    MaybeCutMember();
    MaybeReplace();
    MaybeKillOwnerAndLog();
    MaybeAcceptLoss();
    MaybeSweep();
    MaybeReopen();
    MaybeDrop();
    StepReopenings();
    Reconnect();
  }
  CheckGiversUp();
  if (result_.problems.empty() && CanConnect() && !workload_.is_over() && !IsFullForGood() &&
      std::any_of(open_.begin(), open_.end(), [this](const auto* one) { return IsAlive(*one); })) {
    Problem(absl::StrCat("the run ended after ", begun_, " operations had begun"));
  }
  EndRestarts();
  if (result_.problems.empty()) return;
  // Something broke: the coroutines are run to their end as those of dead processes.
  for (auto& server : servers_) {
    if (server->fabric != nullptr) world_.KillFabric(*server->fabric);
  }
}

void SimRun::CollectStats() {
  for (const auto& server : servers_) {
    if (server->client == nullptr) continue;  // its set-up failed, or it was counted
    AddStats(server->client->Stats(), &result_.stats);
  }
  for (const auto* const servers : {&memory_servers_, &ended_lives_}) {
    for (const auto& server : *servers) {
      for (const auto& [name, value] : server->Counters()) {
        if (name == "chunks_again") result_.chunks_again += value;
      }
    }
  }
}

SimRunResult SimRun::Run() {
  const absl::Status set_up = SetUp();
  if (!set_up.ok()) {
    Problem(absl::StrCat("set-up: ", set_up.ToString()));
  } else {
    Drive();
  }
  CollectStats();
  const bool has_dead = options_.crashes > 0 || options_.lease_ns > 0 ||
                        options_.break_probability > 0 || options_.reopens > 0 ||
                        options_.drops > 0 || result_.owner_and_log_deaths > 0 ||
                        result_.server_deaths > 0;
  if (set_up.ok() && result_.problems.empty()) {
    if (!IsWhole()) {
      ReadAfterServerDeath();
    } else if (has_dead) {
      SweepAfterDeaths();
    }
  }
  TearDown();
  SayLatest();
  if (set_up.ok() && result_.problems.empty()) CheckAfterwards();
  result_.trace_hash = world_.trace_hash();
  result_.virtual_ns = NowNs();
  result_.sim = world_.stats();
  result_.operations = begun_;
  for (size_t i = 0; i < lives_.size(); ++i) {
    const std::vector<history::Operation>& operations = lives_[i]->operations;
    for (const history::Operation& o : operations) result_.unknown += o.unknown() ? 1 : 0;
    if (options_.history_path.empty()) continue;
    const std::string path = options_.history_path + (i == 0 ? "" : absl::StrCat(".", i));
    const absl::Status written = history::WriteHistory(operations, path);
    if (!written.ok()) Problem(written.ToString());
  }
  result_.unknown -= result_.refused;
  return std::move(result_);
}

}  // namespace pando::sim_run

namespace pando {

SimRunResult RunSim(const SimRunOptions& options) { return sim_run::SimRun(options).Run(); }

}  // namespace pando
