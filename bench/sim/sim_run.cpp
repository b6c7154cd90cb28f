#include "bench/sim/sim_run.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/history/checker.h"
#include "bench/history/history_io.h"
#include "bench/sim/coverage.h"
#include "bench/sim/perform.h"
#include "bench/sim/workload.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/fabric/sim/sim_world.h"
#include "compute/check/tree_check.h"
#include "compute/client/connect.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "memory/memory_server.h"
#include "memory/sim_identity.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;

constexpr uint64_t kCrashSeed = 0x6372617368, kPauseSeed = 0x7061757365;
constexpr char kTreeName[] = "simulated";
// Nothing needs more events an operation than this, even in the slowest mode with everybody at one
// leaf.
constexpr uint64_t kEventsAnOperation = 20'000;
constexpr uint64_t kEventsAtLeast = 20'000'000;
// By then the memory servers have freed the locks of the dead, however slowly they are told to.
constexpr int64_t kFencedByNs = 100 * kMillisecondNs;
constexpr int kConnectsMax = 20;
constexpr int64_t kPauseMaxNs = 20 * kMillisecondNs;
constexpr int64_t kRefusedPauseNs = 50 * kMicrosecondNs;  // before somebody tries again

// A compute server of the run.
struct ComputeServer {
  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<Client> client;
  std::unique_ptr<Tree> tree;
  std::vector<std::unique_ptr<Session>> sessions;
  int running = 0;       // clients of the workload that go on
  bool gave_up = false;  // one of them stopped: it was cut off
  bool closed = false;   // and has come back as another compute server

  void Close() {
    sessions.clear();
    tree.reset();
    client.reset();
    closed = true;
  }
};

// Kills a compute server a few events after so many operations have begun.
struct Crash {
  size_t operations = 0;
  uint64_t event = 0;  // 0: not yet decided
};

class SimRun {
 public:
  explicit SimRun(const SimRunOptions& options)
      : options_(options),
        world_(options.sim),
        workload_(options),
        crash_random_(DeriveSeed(options.sim.seed, kCrashSeed)),
        pause_random_(DeriveSeed(options.sim.seed, kPauseSeed)),
        pauses_left_(options.pauses) {}

  SimRunResult Run();

 private:
  void Problem(std::string what) {
    if (result_.problems.size() < 10) result_.problems.push_back(std::move(what));
  }
  // Virtual time, but never the same twice: what happens one after the other is not concurrent in
  // the history.
  int64_t Stamp() { return last_stamp_ns_ = std::max(world_.clock().NowNs(), last_stamp_ns_ + 1); }
  absl::Status SetUp();
  absl::Status AddComputeServer();
  absl::Status TryAddComputeServer();
  void SpawnClients(ComputeServer& server);
  void ClientLoop(ComputeServer& server, Session& session, int32_t client);
  // The operation's outcome goes into its place in the history; false: the client stops.
  bool Execute(ComputeServer& server, Session& session, Operation* operation);
  void Fail(const absl::Status& status, Operation* operation);
  // Compute servers that were fenced close, and come back under new incarnations.
  void Reconnect();
  bool IsAlive(const ComputeServer& server) const {
    return !server.closed && !world_.IsKilled(*server.fabric);
  }
  void Drive();
  bool Unfinished() const;
  void PlanCrashes();
  void MaybeCrash();
  // Like SIGSTOP and, a while later, SIGCONT.
  void MaybePause();
  // After crashes: a client that comes later looks after what the dead have left, and at every
  // node.
  void LookAfterTheDead();
  absl::Status SweepAndCheck();
  void TearDown();
  void CloseServers();
  void CheckGiversUp();
  void CollectStats();
  void CheckAfterwards();
  CatalogEntry Entry() const { return servers_.back()->tree->impl().context().entry; }

  const SimRunOptions& options_;
  sim::SimWorld world_;
  std::vector<std::unique_ptr<memory::MemoryServer>> memory_servers_;
  std::vector<std::unique_ptr<ComputeServer>> servers_;
  SimWorkload workload_;
  Random crash_random_;
  int64_t last_stamp_ns_ = 0;
  int32_t next_client_ = 0;
  std::vector<Operation> operations_;
  std::vector<Crash> crashes_;  // the next one last
  Random pause_random_;
  int pauses_left_ = 0;
  size_t next_pause_ = 0;
  CatalogEntry entry_;
  bool crc_ = false;
  SimRunResult result_;
};

absl::Status SimRun::SetUp() {
  crc_ = options_.sim.mode == sim::DeliveryMode::kWords;
  for (int i = 1; i <= options_.memory_servers; ++i) {
    const auto id = static_cast<ServerId>(i);
    const ServerMemory memory = world_.AddServer(id, options_.main_bytes, options_.lock_words * 8);
    memory::MemoryServerOptions server;
    server.server_id = id;
    server.is_catalog = i == 1;
    server.chunk_bytes = options_.chunk_bytes;
    server.packet_bytes = options_.sim.packet_bytes;
    server.needs_crc = crc_;
    server.clock = &world_.clock();
    server.fence_words_per_step = options_.fence_words_per_step;
    server.lease_ns = options_.lease_ns;
    server.fence = world_.Fence(id);
    server.identity_key = memory::SimIdentityKey();
    PANDO_ASSIGN_OR_RETURN(auto memory_server, memory::MemoryServer::Create(memory, server));
    world_.SetHandler(id, memory_server.get());
    memory_servers_.push_back(std::move(memory_server));
  }
  for (int i = 0; i < options_.compute_servers; ++i) PANDO_RETURN_IF_ERROR(AddComputeServer());
  entry_ = Entry();
  return absl::OkStatus();
}

absl::Status SimRun::AddComputeServer() {
  // A lease may run out while calls of the set-up are lost and repeated: connect again.
  for (int attempt = 1;; ++attempt) {
    const absl::Status added = TryAddComputeServer();
    const bool fenced = options_.lease_ns > 0 && absl::IsFailedPrecondition(added);
    if (!fenced || attempt == kConnectsMax) return added;
    servers_.back()->Close();
  }
}

absl::Status SimRun::TryAddComputeServer() {
  servers_.push_back(std::make_unique<ComputeServer>());
  ComputeServer& server = *servers_.back();
  server.fabric = world_.NewFabric();
  PANDO_ASSIGN_OR_RETURN(server.client, ConnectOverFabric(options_.client, server.fabric));
  PANDO_ASSIGN_OR_RETURN(server.tree, server.client->CreateTree(kTreeName, options_.tree));
  for (int i = 0; i < options_.threads; ++i) {
    PANDO_ASSIGN_OR_RETURN(auto session, server.client->NewSession());
    server.sessions.push_back(std::move(session));
  }
  return absl::OkStatus();
}

void SimRun::SpawnClients(ComputeServer& server) {
  world_.SetBreakProbability(*server.fabric, options_.break_probability);
  for (auto& session : server.sessions) {
    for (int i = 0; i < options_.coroutines; ++i) {
      ++server.running;
      session->Spawn([this, &server, &session = *session, client = next_client_++] {
        ClientLoop(server, session, client);
        --server.running;
      });
    }
    session->impl().scheduler().endpoint().Wake();
  }
}

void SimRun::ClientLoop(ComputeServer& server, Session& session, int32_t client) {
  Operation next;
  while (!world_.IsKilled(*server.fabric) && workload_.Next(&next)) {
    next.client = client;
    next.call_ns = Stamp();
    const size_t place = operations_.size();
    operations_.push_back(next);
    const bool go_on = Execute(server, session, &next);
    operations_[place] = std::move(next);
    if (!go_on) return;
  }
}

bool SimRun::Execute(ComputeServer& server, Session& session, Operation* o) {
  const absl::Status status = Perform(session, *server.tree, o);
  // A dead client heard nothing: the outcome stays unknown.
  if (world_.IsKilled(*server.fabric)) return false;
  const Circumstances circumstances = {options_.lease_ns > 0, options_.break_probability > 0};
  const Ending ending = Explain(status, circumstances, o);
  if (ending == Ending::kConcluded) o->return_ns = Stamp();
  if (ending == Ending::kRefused) {
    ++result_.refused;
    session.impl().scheduler().SleepUntil(world_.clock().NowNs() + kRefusedPauseNs);
  }
  if (ending == Ending::kProblem) Fail(status, o);
  server.gave_up = server.gave_up || ending == Ending::kCutOff;
  return ending != Ending::kCutOff;
}

void SimRun::Fail(const absl::Status& status, Operation* o) {
  if (absl::IsDeadlineExceeded(status)) ++result_.deadlines;
  // Nothing may take that long, crashes or not.
  Problem(absl::StrCat("client ", o->client, ": ", history::OperationKindName(o->kind), " ",
                       history::ToHex(o->key), " ended in ", status.ToString()));
  // A deadline that passed before anything was written, and a failed read, have no effect.
  absl::IsDeadlineExceeded(status) ? ForgetAll(o) : ForgetReads(o);
}

void SimRun::PlanCrashes() {
  for (int i = 0; i < options_.crashes; ++i) {
    crashes_.push_back({.operations = crash_random_.Uniform(options_.operations + 1)});
  }
  std::sort(crashes_.begin(), crashes_.end(),
            [](const Crash& a, const Crash& b) { return a.operations > b.operations; });
}

void SimRun::MaybeCrash() {
  if (crashes_.empty() || operations_.size() < crashes_.back().operations) return;
  Crash& crash = crashes_.back();
  if (crash.event == 0) crash.event = world_.stats().events + 1 + crash_random_.Uniform(300);
  if (world_.stats().events < crash.event) return;
  crashes_.pop_back();
  std::vector<ComputeServer*> alive;
  for (auto& server : servers_) {
    if (IsAlive(*server)) alive.push_back(server.get());
  }
  if (alive.size() < 2) return;  // somebody has to go on
  world_.KillFabric(*alive[crash_random_.Uniform(alive.size())]->fabric);
}

void SimRun::MaybePause() {
  if (pauses_left_ == 0 || operations_.size() < next_pause_) return;
  --pauses_left_;
  next_pause_ = operations_.size() + 1 + pause_random_.Uniform(options_.operations / 4 + 1);
  const ComputeServer& server = *servers_[pause_random_.Uniform(servers_.size())];
  if (!IsAlive(server)) return;
  const std::shared_ptr<Fabric>& fabric = server.fabric;
  world_.PauseFabric(*fabric);
  world_.At(world_.clock().NowNs() + 1 + static_cast<int64_t>(pause_random_.Uniform(kPauseMaxNs)),
            [this, paused = std::weak_ptr<Fabric>(fabric)] {
              if (const auto there = paused.lock()) world_.ResumeFabric(*there);
            });
}

void SimRun::Reconnect() {
  for (size_t i = 0; i < servers_.size(); ++i) {
    ComputeServer& server = *servers_[i];
    if (!server.gave_up || server.running > 0 || !IsAlive(server)) continue;
    if (!server.client->fenced()) continue;  // it has only seen that its queue pairs are gone
    AddStats(server.client->Stats(), &result_.stats);
    server.Close();
    ++result_.reconnects;
    const absl::Status joined = AddComputeServer();
    if (!joined.ok()) return Problem(absl::StrCat("reconnect: ", joined.ToString()));
    SpawnClients(*servers_.back());
  }
}

bool SimRun::Unfinished() const {
  return std::any_of(servers_.begin(), servers_.end(), [this](const auto& server) {
    return server->running > 0 && !world_.IsKilled(*server->fabric);
  });
}

void SimRun::Drive() {
  PlanCrashes();
  for (auto& server : servers_) SpawnClients(*server);
  const uint64_t events_max = options_.events_max > 0
                                  ? options_.events_max
                                  : kEventsAtLeast + kEventsAnOperation * options_.operations;
  while (Unfinished() && result_.problems.empty()) {
    if (!world_.Step()) {
      Problem(absl::StrCat("deadlock: nothing is under way after ", operations_.size(),
                           " operations had begun"));
    } else if (world_.stats().events > events_max) {
      Problem(absl::StrCat("endless: too many events after ", operations_.size(),
                           " operations had begun"));
    }
    MaybeCrash();
    MaybePause();
    Reconnect();
  }
  CheckGiversUp();
  if (result_.problems.empty()) return;
  // Something broke: the coroutines are run to their end as those of dead processes.
  for (auto& server : servers_) world_.KillFabric(*server->fabric);
}

// Nobody but the fenced may have been refused anything.
void SimRun::CheckGiversUp() {
  if (options_.lease_ns == 0) return;
  world_.RunUntil(world_.clock().NowNs() + kPauseMaxNs + 2 * options_.lease_ns);
  for (const auto& server : servers_) {
    if (!server->gave_up || !IsAlive(*server)) continue;
    if (!server->client->fenced()) Problem("a client was refused something and is not fenced");
  }
}

void SimRun::CollectStats() {
  for (const auto& server : servers_) {
    if (server->client == nullptr) continue;  // its set-up failed
    AddStats(server->client->Stats(), &result_.stats);
  }
}

void SimRun::LookAfterTheDead() {
  // The living give back what they hold; the dead are run to their end, and fenced.
  CloseServers();
  world_.RunUntil(world_.clock().NowNs() + kFencedByNs);
  absl::Status status;
  for (int attempt = 1; attempt <= kConnectsMax; ++attempt) {
    status = SweepAndCheck();
    // Where calls are lost, its own lease may run out meanwhile: a server that has cut it off is
    // Unavailable to it, and soon it hears why.
    if (status.ok() || options_.lease_ns == 0) break;
    world_.RunUntil(world_.clock().NowNs() + kFencedByNs);
    const Client* const client = servers_.back()->client.get();
    if (client != nullptr && !client->fenced()) break;
    CloseServers();
    world_.RunUntil(world_.clock().NowNs() + kFencedByNs);
  }
  if (!status.ok()) Problem(absl::StrCat("afterwards: ", status.ToString()));
}

absl::Status SimRun::SweepAndCheck() {
  PANDO_RETURN_IF_ERROR(AddComputeServer());
  ComputeServer& server = *servers_.back();
  Session& session = *server.sessions.front();
  std::vector<KeyValue> rows;
  PANDO_RETURN_IF_ERROR(
      session.Scan(*server.tree, "", 2 * operations_.size() + 1, &rows, {.timeout_ms = 60'000}));
  SweepResult swept;
  PANDO_RETURN_IF_ERROR(session.Sweep(*server.tree, &swept, {.timeout_ms = 60'000}));
  PANDO_ASSIGN_OR_RETURN(const CheckReport report,
                         session.Check(*server.tree, {.quiet_tree = true, .timeout_ms = 60'000}));
  if (swept.left > 0) Problem("a sweep after everybody has left leaves nodes");
  result_.swept = swept;
  for (const std::string& what : report.problems) Problem(absl::StrCat("afterwards: ", what));
  if (report.nodes.orphans > 0) {
    Problem(absl::StrCat("afterwards: ", report.nodes.orphans, " nodes nobody looks after"));
  }
  return absl::OkStatus();
}

void SimRun::TearDown() {
  CloseServers();
  servers_.clear();
  world_.RunUntil(world_.clock().NowNs() + kSecondNs);  // what is still in the network
}

void SimRun::CloseServers() {
  // The dead first: their coroutines give up what only this process knows they hold.
  for (const bool killed : {true, false}) {
    for (auto& server : servers_) {
      if (server->fabric == nullptr || world_.IsKilled(*server->fabric) != killed) continue;
      server->Close();
      server->fabric.reset();
    }
  }
}

void SimRun::CheckAfterwards() {
  for (int i = 1; i <= options_.memory_servers; ++i) {
    const auto id = static_cast<ServerId>(i);
    for (std::string& problem : CheckLocksFree(id, world_.Memory(id).locks))
      Problem(std::move(problem));
  }
  const TreeCheckResult tree =
      CheckTree(entry_, {.crc = crc_, .keep_entries = true},
                [this](RemoteAddress from, std::span<std::byte> into) {
                  const std::span<std::byte> main = world_.Memory(from.server()).main;
                  if (from.offset() + into.size() > main.size())
                    return absl::OutOfRangeError("beyond the region");
                  std::memcpy(into.data(), main.data() + from.offset(), into.size());
                  return absl::OkStatus();
                });
  result_.nodes_per_level = tree.nodes_per_level;
  result_.missing_separators = tree.missing_separators;
  for (const std::string& problem : tree.problems) Problem(problem);
  const history::CheckResult checked =
      history::CheckHistory(operations_, nullptr, tree.ok() ? &tree.entries : nullptr);
  for (const std::string& violation : checked.violations) Problem(violation);
  for (const std::string& key : checked.undecided) Problem(absl::StrCat("undecided: ", key));
}

SimRunResult SimRun::Run() {
  const absl::Status set_up = SetUp();
  if (!set_up.ok()) {
    Problem(absl::StrCat("set-up: ", set_up.ToString()));
  } else {
    Drive();
  }
  CollectStats();
  const bool has_dead =
      options_.crashes > 0 || options_.lease_ns > 0 || options_.break_probability > 0;
  if (set_up.ok() && has_dead && result_.problems.empty()) LookAfterTheDead();
  TearDown();
  if (set_up.ok() && result_.problems.empty()) CheckAfterwards();
  result_.trace_hash = world_.trace_hash();
  result_.virtual_ns = world_.clock().NowNs();
  result_.sim = world_.stats();
  result_.operations = operations_.size();
  for (const Operation& o : operations_) result_.unknown += o.unknown() ? 1 : 0;
  result_.unknown -= result_.refused;
  if (!options_.history_path.empty()) {
    const absl::Status written = history::WriteHistory(operations_, options_.history_path);
    if (!written.ok()) Problem(written.ToString());
  }
  return std::move(result_);
}

}  // namespace

SimRunResult RunSim(const SimRunOptions& options) { return SimRun(options).Run(); }

}  // namespace pando
