// What must hold once everybody has done what there was to do.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/history/checker.h"
#include "bench/perform/perform.h"
#include "bench/sim/sim_run_state.h"
#include "common/base/status.h"
#include "compute/check/tree_check.h"
#include "compute/client/session_impl.h"

namespace pando::sim_run {
namespace {

// By then the memory servers have freed the locks of the dead, however slowly they are told to.
constexpr int64_t kFencedByNs = 100 * kMillisecondNs;
// A client that loses a tenth of its calls, with a lease of a few chain times, may not live as long
// as a sweep takes, however often it comes back: the last attempts are made in a network that is
// well.
constexpr int kLossySweepsMax = 4;
constexpr int kSweepsMax = 8;

}  // namespace

// Nobody but the fenced may have been refused anything; or those whom a memory server had cut off
// that died before it said so: to all others they live.
void SimRun::CheckGiversUp() {
  if (options_.lease_ns == 0) return;
  const int64_t cut_max_ns = options_.owner_faults.member_cuts > 0 ? 4 * options_.lease_ns : 0;
  world_.RunUntil(NowNs() + options_.pause_max_ns + options_.partition_max_ns +
                  options_.server_pause_max_ns + cut_max_ns + 2 * options_.lease_ns);
  for (const auto& server : servers_) {
    if (!server->gave_up || server->cutter_died || !IsAlive(*server)) continue;
    if (server->client->fenced()) continue;
    Problem(absl::StrCat("a client that is not fenced was refused something: ",
                         server->refusal.ToString()));
  }
}

void SimRun::SweepAfterDeaths() {
  // The living give back what they hold; the dead are run to their end, and fenced.
  CloseServers();
  world_.RunUntil(NowNs() + kFencedByNs);
  absl::Status status;
  for (int attempt = 1; attempt <= kSweepsMax; ++attempt) {
    if (attempt > kLossySweepsMax) world_.LoseNoMoreCalls();
    status = SweepAndCheck();
    // Where calls are lost, its own lease may run out meanwhile: a server that has cut it off is
    // Unavailable to it, and soon it hears why.
    if (status.ok() || options_.lease_ns == 0) break;
    world_.RunUntil(NowNs() + kFencedByNs);
    const Client* const client = servers_.back()->client.get();
    if (client != nullptr && !client->fenced()) break;
    CloseServers();
    world_.RunUntil(NowNs() + kFencedByNs);
  }
  if (!status.ok()) Problem(absl::StrCat("afterwards: ", status.ToString()));
}

void SimRun::ReadAfterServerDeath() {
  ComputeServer* last = nullptr;
  NoteTrouble(NowNs());
  for (const auto& server : servers_) {
    if (server->closed || server->client == nullptr || !IsFree(*server)) continue;
    if (server->client->fenced() || server->sessions.empty()) continue;
    // What has its leaf on the dead server stays in a log, for whoever comes.
    for (const TreeHandle& handle : server->handles) {
      if (handle.tree != nullptr) (void)server->sessions.front()->session->Flush(*handle.tree);
    }
    last = server.get();
  }
  if (last == nullptr) return;
  CloseServers(last);
  NoteTrouble(NowNs());
  Session& session = *last->sessions.front()->session;
  session.Spawn([&] {
    for (const TreeHandle& handle : last->handles) {
      if (handle.tree != nullptr) ReadAll(*last, session, handle);
    }
  });
  session.Run();
}

void SimRun::ReadAll(ComputeServer& server, Session& session, const TreeHandle& handle) {
  std::vector<history::Operation>& operations = handle.life->operations;
  std::set<std::string> keys;
  for (const history::Operation& o : operations) {
    // A scan that failed has become a get, perhaps of no key.
    if (o.kind != history::OperationKind::kScan && !o.key.empty()) keys.insert(o.key);
  }
  for (const std::string& key : keys) {
    history::Operation get;
    get.key = key;
    get.call_ns = Stamp();
    const absl::Status status = Perform(session, *handle.tree, &get);
    CheckWait(status, get, /*waits=*/1);
    Circumstances circumstances = CircumstancesOf(*handle.life, get.call_ns, handle.life->dropped);
    // The others' logs may have more for the dead server's leaves than one client may keep.
    circumstances.little_memory |= options_.tree.mode == TreeOptions::Mode::kOwned;
    const Ending ending = Explain(status, circumstances, &get);
    if (ending == Ending::kProblem) return Fail(status, &get);
    if (ending == Ending::kCutOff || server.client->fenced()) return;
    // Else it is out of reach, and nothing is said of it.
    if (ending != Ending::kConcluded) continue;
    get.return_ns = Stamp();
    operations.push_back(std::move(get));
    ++result_.read_after_server_death;
  }
}

absl::Status SimRun::SweepAndCheck() {
  PANDO_RETURN_IF_ERROR(AddComputeServer());
  ComputeServer& server = *servers_.back();
  result_.swept = {};
  for (const TreeHandle& handle : server.handles) {
    PANDO_RETURN_IF_ERROR(SweepAndCheck(server, *handle.tree));
  }
  return absl::OkStatus();
}

absl::Status SimRun::SweepAndCheck(ComputeServer& server, const Tree& tree) {
  Session& session = *server.sessions.front()->session;
  std::vector<KeyValue> rows;
  PANDO_RETURN_IF_ERROR(session.Scan(tree, "", 2 * begun_ + 1, &rows, {.timeout_ms = 60'000}));
  session.Run();  // merges that the scan was the reason of: the sweep sends what they have freed
  SweepResult swept;
  PANDO_RETURN_IF_ERROR(session.Sweep(tree, &swept, {.timeout_ms = 60'000}));
  PANDO_ASSIGN_OR_RETURN(const CheckReport report,
                         session.Check(tree, {.quiet_tree = true, .timeout_ms = 60'000}));
  if (swept.left > 0) Problem("a sweep after everybody has left leaves nodes");
  result_.swept.freed += swept.freed;
  result_.swept.settled += swept.settled;
  for (const std::string& what : report.problems) Problem(absl::StrCat("afterwards: ", what));
  if (report.cells_unused > 0) {
    Problem(absl::StrCat("afterwards: ", report.cells_unused, " cells nobody looks after"));
  }
  if (report.nodes.orphans > 0) {
    Problem(absl::StrCat("afterwards: ", report.nodes.orphans, " nodes nobody looks after"));
  }
  return absl::OkStatus();
}

void SimRun::TearDown() {
  CloseServers();
  servers_.clear();
  world_.RunUntil(NowNs() + kSecondNs);  // what is still in the network
}

void SimRun::CloseServers(const ComputeServer* but) {
  // The dead first: their coroutines give up what only this process knows they hold.
  for (const bool killed : {true, false}) {
    for (auto& server : servers_) {
      if (server.get() == but || server->fabric == nullptr) continue;
      if (world_.IsKilled(*server->fabric) != killed) continue;
      server->Close();
      server->fabric.reset();
    }
  }
}

void SimRun::CheckLife(const TreeLife& life) {
  const auto check = [&](const history::State* final) {
    const history::CheckResult checked =
        history::CheckHistory(life.operations, nullptr, final, {}, life.untold);
    for (const std::string& violation : checked.violations) Problem(violation);
    for (const std::string& key : checked.undecided) Problem(absl::StrCat("undecided: ", key));
  };
  // Of what was dropped, or lay on a server that died, only the history is left.
  if (life.dropped || !IsWhole()) return check(nullptr);
  const TreeCheckResult tree =
      CheckTree(life.entry, {.crc = crc_, .keep_entries = true},
                [this](RemoteAddress from, std::span<std::byte> into) {
                  const std::span<std::byte> main = world_.Memory(from.server()).main;
                  if (from.offset() + into.size() > main.size())
                    return absl::OutOfRangeError("beyond the region");
                  std::memcpy(into.data(), main.data() + from.offset(), into.size());
                  return absl::OkStatus();
                });
  if (life.slot == 0) result_.nodes_per_level = tree.nodes_per_level;
  result_.missing_separators += tree.missing_separators;
  for (const std::string& problem : tree.problems) Problem(problem);
  check(tree.ok() ? &tree.entries : nullptr);
}

void SimRun::CheckAfterwards() {
  for (size_t i = 0; i < memory_servers_.size(); ++i) {
    const auto id = static_cast<ServerId>(i + 1);
    if (server_dead_[i]) continue;
    for (std::string& problem : CheckLocksFree(id, world_.Memory(id).locks))
      Problem(std::move(problem));
  }
  for (const auto& life : lives_) CheckLife(*life);
}

}  // namespace pando::sim_run
