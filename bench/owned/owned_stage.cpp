#include "bench/owned/owned_stage.h"

#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "bench/history/checker.h"
#include "bench/perform/perform.h"
#include "bench/sim/erase_ranges.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "compute/check/tree_check.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/owner/cluster_entries.h"
#include "compute/owner/member.h"

namespace pando {

using history::Operation;
using history::OperationKind;

namespace {

constexpr int64_t kWatchNs = 3 * kMicrosecondNs;
// Members look around once a second, and the dead are heard of in far less.
constexpr int64_t kLookedAroundNs = 3500 * kMillisecondNs;
// For one move.
constexpr int64_t kMoveNs = kSecondNs;

}  // namespace

OwnedStage::OwnedStage(const OwnedStageOptions& options)
    : options_(options),
      cluster_(options.cluster),
      random_(options.cluster.sim.seed),
      histories_(options.trees),
      dropped_(options.trees, false),
      entries_(options.trees) {}

OwnedStage::~OwnedStage() {
  for (const bool dead : {true, false}) {
    for (auto& actor : actors_) {
      if (actor->dead == dead) Leave(actor.get());
    }
  }
}

ClientOptions OwnedStage::SmallOwner() {
  ClientOptions options;
  options.index_cache_bytes = 1 << 20;
  options.hot_bytes = 64 << 10;
  options.log_bytes = 64 << 10;
  return options;
}

OwnedActor* OwnedStage::Join(const ClientOptions& options, size_t sessions) {
  OwnedActor* const actor = actors_.emplace_back(std::make_unique<OwnedActor>()).get();
  actor->fabric = world().NewFabric();
  ClientOptions seeded = options;
  seeded.seed = options_.cluster.sim.seed * 1000 + ++seeds_;
  TimeConstants times;
  times.read_lease_ns = options_.read_lease_ns;
  auto client = ConnectOverFabric(seeded, actor->fabric, times);
  PANDO_CHECK_OK(client.status());
  actor->client = *std::move(client);
  actor->trees.resize(options_.trees);
  for (size_t i = 0; i < sessions; ++i) {
    auto session = actor->client->NewSession();
    PANDO_CHECK_OK(session.status());
    actor->sessions.push_back(*std::move(session));
  }
  return actor;
}

bool OwnedStage::Open(OwnedActor* actor, size_t tree) {
  auto opened = actor->client->CreateTree(TreeName(tree), options_.tree);
  if (actor->dead) return false;
  if (!opened.ok()) {
    const bool is_full = absl::IsResourceExhausted(opened.status());
    if (is_full && options_.circumstances.little_memory) return false;
    if (absl::IsUnavailable(opened.status()) && options_.circumstances.breaks) return false;
    if (absl::IsDeadlineExceeded(opened.status()) && options_.circumstances.breaks) return false;
    if (IsOutcomeUnknown(opened.status()) && options_.circumstances.breaks) return false;
    Problem(absl::StrCat("open: ", opened.status().ToString()));
    return false;
  }
  actor->trees[tree] = *std::move(opened);
  entries_[tree] = ImplOf(*actor->trees[tree]).context().entry;
  return true;
}

void OwnedStage::Kill(OwnedActor* actor) {
  if (actor->dead || actor->closed) return;
  actor->dead = true;
  world().KillFabric(*actor->fabric);
}

void OwnedStage::KillAfter(OwnedActor* actor, uint64_t packets) {
  world().LimitPackets(*actor->fabric, packets);
  Watch(actor, Spent::kKill);
}

void OwnedStage::BreakAfter(OwnedActor* actor, uint64_t packets, bool late) {
  world().LimitPackets(*actor->fabric, packets);
  Watch(actor, late ? Spent::kBreakLate : Spent::kBreak);
}

void OwnedStage::Watch(OwnedActor* actor, Spent ending) {
  world().At(NowNs() + kWatchNs, [this, actor, ending] {
    if (actor->dead || actor->closed) return;
    if (!world().PacketsSpent(*actor->fabric)) return Watch(actor, ending);
    actor->spent = true;
    if (ending == Spent::kKill) return Kill(actor);
    Break(actor, ending == Spent::kBreakLate);
  });
}

void OwnedStage::Break(OwnedActor* actor, bool late) {
  if (late) world().LimitPackets(*actor->fabric, kNoPacketLimit);
  for (int id = 1; id <= cluster_.memory_servers(); ++id) {
    world().BreakQueuePairs(*actor->fabric, static_cast<ServerId>(id));
  }
  world().LimitPackets(*actor->fabric, kNoPacketLimit);
}

void OwnedStage::Pause(OwnedActor* actor, int64_t at_ns, int64_t for_ns) {
  world().At(at_ns, [this, actor, for_ns] {
    if (actor->dead || actor->closed) return;
    world().PauseFabric(*actor->fabric);
    world().At(NowNs() + for_ns, [this, actor] {
      if (!actor->dead && actor->fabric != nullptr) world().ResumeFabric(*actor->fabric);
    });
  });
}

void OwnedStage::Leave(OwnedActor* actor) {
  if (actor->client == nullptr) return;
  if (!actor->dead) adopted_ += actor->client->Stats().owned.adopted_messages;
  actor->sessions.clear();
  actor->trees.clear();
  actor->client.reset();
  actor->closed = true;
  if (!actor->dead) world().LimitPackets(*actor->fabric, kNoPacketLimit);
  actor->fabric.reset();
}

Operation OwnedStage::Make(OperationKind kind, std::string key, std::string value) {
  Operation operation;
  operation.kind = kind;
  operation.key = std::move(key);
  operation.value = std::move(value);
  return operation;
}

bool OwnedStage::Do(OwnedActor* actor, size_t session, size_t tree, Operation operation) {
  operation.call_ns = Stamp();
  const size_t place = histories_[tree].size();
  histories_[tree].push_back(operation);
  ForgetReads(&histories_[tree][place]);
  const absl::Status status = Perform(*actor->sessions[session], *actor->trees[tree], &operation);
  if (actor->dead) return false;
  if (dropped_[tree]) return true;
  const Ending ending = Conclude(status, &operation);
  if (ending == Ending::kProblem) return false;
  if (ending == Ending::kConcluded) operation.return_ns = Stamp();
  histories_[tree][place] = std::move(operation);
  if (ending != Ending::kCutOff) return true;
  actor->cut_off = actor->cut_off || actor->client->fenced();
  return !actor->client->fenced();
}

Ending OwnedStage::Conclude(const absl::Status& status, Operation* operation) {
  // A deadline before the message is in the log is without effect (rule T6); after it, Unknown.
  Ending ending;
  if (absl::IsDeadlineExceeded(status)) {
    ForgetAll(operation);
    ending = Ending::kRefused;
  } else if (IsOutcomeUnknown(status)) {
    ForgetReads(operation);
    ending = Ending::kUnknown;
  } else {
    ending = Explain(status, options_.circumstances, operation);
  }
  if (ending == Ending::kProblem) {
    Problem(
        absl::StrCat(history::OperationKindName(operation->kind), " ended in ", status.ToString()));
  }
  concluded_ += ending == Ending::kConcluded;
  unknown_ += ending == Ending::kUnknown;
  refused_ += ending == Ending::kRefused;
  return ending;
}

bool OwnedStage::EraseRange(OwnedActor* actor, size_t session, size_t tree,
                            const std::vector<std::string>& keys) {
  std::vector<Operation> erases = EraseOperations(keys, /*client=*/0, Stamp());
  std::vector<Operation>& history = histories_[tree];
  const size_t place = history.size();
  history.insert(history.end(), erases.begin(), erases.end());
  const RangeErasing erasing =
      PerformEraseRange(*actor->sessions[session], *actor->trees[tree], keys.front(), keys.back());
  if (actor->dead) return false;
  if (dropped_[tree]) return true;
  Operation whole = erases.front();
  const Ending ending = Conclude(erasing.status, &whole);
  if (ending == Ending::kProblem) return false;
  SettleErases(erasing, Stamp(), &erases);
  std::move(erases.begin(), erases.end(), history.begin() + static_cast<ptrdiff_t>(place));
  if (ending != Ending::kCutOff) return true;
  actor->cut_off = actor->cut_off || actor->client->fenced();
  return !actor->client->fenced();
}

void OwnedStage::Spawn(OwnedActor* actor, size_t session, std::function<void()> task) {
  actor->sessions[session]->Spawn(std::move(task));
  ImplOf(*actor->sessions[session]).scheduler().endpoint().Wake();
}

bool OwnedStage::BulkLoad(OwnedActor* actor, size_t tree, const std::vector<KeyValue>& entries) {
  const size_t place = histories_[tree].size();
  const int64_t call_ns = Stamp();
  for (const KeyValue& entry : entries) {
    histories_[tree].push_back(Make(OperationKind::kPut, entry.key, entry.value));
    histories_[tree].back().call_ns = call_ns;
  }
  size_t next = 0;
  const absl::Status loaded =
      actor->sessions[0]->BulkLoad(*actor->trees[tree], [&](KeyValue* entry) {
        if (next == entries.size()) return false;
        *entry = entries[next++];
        return true;
      });
  if (actor->dead) return false;
  if (!loaded.ok()) {
    // Of unknown outcome, each of them.
    if (!options_.circumstances.breaks) Problem(absl::StrCat("bulk load: ", loaded.ToString()));
    return options_.circumstances.breaks;
  }
  const int64_t return_ns = Stamp();
  for (size_t i = 0; i < entries.size(); ++i) histories_[tree][place + i].return_ns = return_ns;
  return true;
}

bool OwnedStage::Flush(OwnedActor* actor, size_t tree) {
  const absl::Status flushed = actor->sessions[0]->Flush(*actor->trees[tree]);
  if (actor->dead) return false;
  if (!flushed.ok() && !options_.circumstances.breaks) {
    Problem(absl::StrCat("flush: ", flushed.ToString()));
  }
  return flushed.ok() || options_.circumstances.breaks;
}

// --- Ranges that move.

absl::Status OwnedStage::InTask(OwnedActor* actor, size_t session,
                                const std::function<absl::Status(OperationContext&)>& job) {
  SessionContext* const context = &ImplOf(*actor->sessions[session]).context();
  absl::Status status;
  const auto run = [&, context] {
    OperationContext operation(context, context->NowNs() + kMoveNs);
    status = job(operation);
  };
  if (Scheduler::Current() != nullptr) {
    run();
  } else {
    actor->sessions[session]->Spawn(run);
    actor->sessions[session]->Run();
  }
  return actor->dead ? absl::CancelledError("it has died") : status;
}

absl::Status OwnedStage::Split(OwnedActor* actor, size_t session, size_t tree,
                               const std::string& border) {
  OwnedTree* const owned = ImplOf(*actor->trees[tree]).routed().owned();
  return InTask(actor, session, [&](OperationContext& context) {
    return ImplOf(*actor->client).member()->Split(context, owned, border);
  });
}

absl::Status OwnedStage::Give(OwnedActor* actor, size_t session, size_t tree,
                              const std::string& key, OwnedActor* to) {
  const Member* const taker = to->client == nullptr ? nullptr : ImplOf(*to->client).member();
  if (taker == nullptr) return absl::FailedPreconditionError("it has no owned tree open");
  OwnedTree* const owned = ImplOf(*actor->trees[tree]).routed().owned();
  return InTask(actor, session, [&](OperationContext& context) {
    return ImplOf(*actor->client).member()->Give(context, owned, key, taker->self());
  });
}

void OwnedStage::MoveAny(OwnedActor* actor, size_t session, size_t tree,
                         const std::string& border) {
  const std::vector<OwnRange*> own = ImplOf(*actor->trees[tree]).routed().owned()->OwnRanges();
  if (own.empty()) return;
  if (random_.Chance(0.3)) return (void)Split(actor, session, tree, border);
  const std::string key = own[random_.Uniform(own.size())]->low;
  OwnedActor* const to = actors_[random_.Uniform(actors_.size())].get();
  if (to != actor && !to->dead) moves_ += Give(actor, session, tree, key, to).ok() ? 1 : 0;
}

absl::Status OwnedStage::Retire(OwnedActor* actor, int64_t timeout_ms) {
  const absl::Status left = actor->client->Leave(timeout_ms);
  return actor->dead ? absl::CancelledError("it has died") : left;
}

// --- The end.

void OwnedStage::LookAtTheEnd() {
  for (const bool dead : {true, false}) {
    for (auto& actor : actors_) {
      if (actor->dead == dead) Leave(actor.get());
    }
  }
  if (!problems_.empty()) return;
  OwnedActor* const janitor = Join(SmallOwner());
  bool any = false;
  for (size_t tree = 0; tree < options_.trees; ++tree) {
    if (dropped_[tree]) continue;
    any = true;
    if (!Open(janitor, tree)) return;
    Operation scan = Make(OperationKind::kScan, std::string(1, '\0'));
    scan.limit = SIZE_MAX;
    if (!Do(janitor, 0, tree, std::move(scan))) return;
    if (!Do(janitor, 0, tree, Make(OperationKind::kPut, KeyOf(1), NewValue()))) return;
    if (!Do(janitor, 0, tree, Make(OperationKind::kGet, KeyOf(1)))) return;
  }
  if (!any) return;
  Quiet(kLookedAroundNs);
  for (size_t tree = 0; tree < options_.trees; ++tree) {
    if (!dropped_[tree]) CheckTree(tree);
  }
  auto cluster_tree = ImplOf(*janitor->client).OpenTree(kClusterTreeName);
  PANDO_CHECK_OK(cluster_tree.status());
  cluster_entry_ = (*cluster_tree)->context().entry;
  cluster_tree->reset();
  Leave(janitor);
  Quiet(kLookedAroundNs);
  if (!problems_.empty()) return;
  for (size_t tree = 0; tree < options_.trees; ++tree) {
    if (dropped_[tree]) continue;
    const history::State leaves = ReadLeaves(tree);
    const history::CheckResult checked =
        history::CheckHistory(histories_[tree], nullptr, problems_.empty() ? &leaves : nullptr);
    for (const std::string& violation : checked.violations) Problem(violation);
    for (const std::string& key : checked.undecided) Problem(absl::StrCat("undecided: ", key));
  }
  CheckClusterTree();
  if (const uint64_t extents = cluster_.Counter("extents"); extents > 0) {
    Problem(absl::StrCat(extents, " extents are left"));
  }
  for (int i = 1; i <= cluster_.memory_servers(); ++i) {
    const auto id = static_cast<ServerId>(i);
    for (std::string& problem : CheckLocksFree(id, world().Memory(id).locks)) {
      Problem(std::move(problem));
    }
  }
}

void OwnedStage::CheckTree(size_t tree) {
  OwnedActor* const actor = actors_.back().get();
  Session& session = *actor->sessions[0];
  SweepResult swept;
  const absl::Status sweep = session.Sweep(*actor->trees[tree], &swept);
  if (!sweep.ok() || swept.left > 0) {
    Problem(absl::StrCat("sweep: ", sweep.ToString(), ", ", swept.left, " left"));
  }
  const auto report = session.Check(*actor->trees[tree], {.quiet_tree = true});
  if (!report.ok()) return Problem(absl::StrCat("check: ", report.status().ToString()));
  for (const std::string& what : report->problems) Problem(absl::StrCat("check: ", what));
  if (report->nodes.orphans > 0) {
    Problem(absl::StrCat(report->nodes.orphans, " nodes nobody looks after"));
  }
  if (report->cells_unused > 0) {
    Problem(absl::StrCat(report->cells_unused, " cells nobody looks after"));
  }
}

history::State OwnedStage::ReadLeaves(const CatalogEntry& entry, std::string_view name) {
  const TreeCheckResult tree = pando::CheckTree(
      entry, {.crc = options_.cluster.sim.mode == sim::DeliveryMode::kWords, .keep_entries = true},
      [this](RemoteAddress from, std::span<std::byte> into) {
        const std::span<std::byte> main = world().Memory(from.server()).main;
        if (from.offset() + into.size() > main.size()) {
          return absl::OutOfRangeError("beyond the region");
        }
        std::memcpy(into.data(), main.data() + from.offset(), into.size());
        return absl::OkStatus();
      });
  for (const std::string& problem : tree.problems)
    Problem(absl::StrCat(std::string(name), ": ", problem));
  return tree.entries;
}

void OwnedStage::CheckClusterTree() {
  for (const auto& [key, value] : ReadLeaves(cluster_entry_, kClusterTreeName)) {
    const absl::StatusOr<ClusterKey> parsed = ParseClusterKey(key);
    if (!parsed.ok()) {
      Problem(absl::StrCat("cluster tree: ", parsed.status().ToString()));
      continue;
    }
    RangeEntry range;
    bool is_of_dropped = false;
    for (size_t tree = 0; tree < options_.trees; ++tree) {
      is_of_dropped =
          is_of_dropped || (dropped_[tree] && entries_[tree].tree_id == parsed->tree_id);
    }
    const bool is_range = key[0] == RangeEntry::kKind;
    if (is_range && !is_of_dropped && Parse(value, &range).ok() && range.owner.nobody()) continue;
    RecoveryEntry recovery;
    const bool is_recovery = key[0] == RecoveryEntry::kKind && Parse(value, &recovery).ok();
    Problem(absl::StrCat("the cluster tree still has ", DescribeKey(key),
                         is_recovery ? ", claimed by " + ToText(recovery.claimant) : ""));
  }
}

}  // namespace pando
