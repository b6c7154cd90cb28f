// What the clients of a run do: operations, bulk loads, sweeps.
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/history/history_io.h"
#include "bench/perform/perform.h"
#include "bench/sim/ending.h"
#include "bench/sim/erase_ranges.h"
#include "bench/sim/perform_by.h"
#include "bench/sim/perform_runs.h"
#include "bench/sim/sim_run_state.h"
#include "bench/sim/walk.h"
#include "common/base/check.h"
#include "common/fabric/recoverable.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"

namespace pando::sim_run {
namespace {

using history::Operation;

constexpr int64_t kRefusedPauseNs = 50 * kMicrosecondNs;  // before somebody tries again
constexpr int64_t kClosedPauseNs = 20 * kMicrosecondNs;   // before a handle is looked for again
// From the begin of a sweep until somebody else is stopped.
constexpr uint64_t kPauseWithinNs = 200 * kMicrosecondNs;
constexpr size_t kLoadedKeysMax = 200;
constexpr size_t kRunMax = 40;
constexpr size_t kStretchMax = 400;
// Some of its writes and calls follow each other: a new leaf, a chunk of cells of one more size.
constexpr int kStretchWaits = 10;
// Where an owner has died with its log each of a run's keys waits for a recovery that finds that.
constexpr int kLostRunWaits = 2;
constexpr int64_t kStretchTimeoutMs = 120'000;
// Of a range that is erased, but for those that may have all keys.
constexpr size_t kErasedKeysMax = 30;
constexpr double kEraseAllShare = 0.2;
// The longest of short deadlines.
constexpr int64_t kShortChains = 20;

class AtWork {
 public:
  explicit AtWork(int* count) : count_(count) { ++*count_; }
  ~AtWork() { --*count_; }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

 private:
  int* const count_;
};

void SleepFor(Session& session, int64_t ns) {
  session.SleepUntil(ImplOf(session).context().NowNs() + ns);
}

}  // namespace

void SimRun::SpawnClients(ComputeServer& server) {
  world_.SetBreakProbability(*server.fabric, options_.break_probability);
  for (auto& session : server.sessions) SpawnClients(server, *session);
}

void SimRun::SpawnClients(ComputeServer& server, SimSession& place) {
  for (int i = 0; i < options_.coroutines; ++i) {
    ++place.running;
    server.clients.push_back(next_client_);
    // The session by itself: what is run to its end while it is destroyed still uses it.
    place.session->Spawn(
        [this, &server, &place, &session = *place.session, client = next_client_++] {
          ClientLoop(server, place, session, client);
          --place.running;
        });
  }
  ImplOf(*place.session).scheduler().endpoint().Wake();
}

size_t SimRun::ChooseSlot() {
  return options_.trees == 1 ? 0 : tree_random_.Uniform(static_cast<uint64_t>(options_.trees));
}

void SimRun::ClientLoop(ComputeServer& server, const SimSession& place, Session& session,
                        int32_t client) {
  Operation next;
  while (!place.halting && !world_.IsKilled(*server.fabric) && !workload_.is_over()) {
    if (lost_.has_value() && lost_->is_quiet) {
      SleepFor(session, kClosedPauseNs);
      continue;
    }
    const AtWork at_work(&server.at_work);
    const size_t slot = ChooseSlot();
    const TreeHandle handle = server.handles[slot];
    if (handle.tree == nullptr) {
      SleepFor(session, kClosedPauseNs);
      continue;
    }
    if (std::exchange(handle.life->load_pending, false)) {
      if (!BulkLoad(server, session, handle, client)) return;
      continue;
    }
    if (options_.moves > 0 && move_random_.Chance(options_.moves)) {
      MoveSomething(server, session, handle);
      continue;
    }
    if (options_.flushes > 0 && move_random_.Chance(options_.flushes)) {
      // It may fail as others do: nothing is said of any key.
      const int64_t began_ns = NowNs();
      if (session.Flush(*handle.tree).ok()) {
        ++result_.flushes;
        int64_t& last_ns = server.flushed_ns[slot];
        last_ns = std::max(last_ns, began_ns);
      }
      if (world_.IsKilled(*server.fabric)) return;
      continue;
    }
    if (options_.runs > 0 && run_random_.Chance(options_.runs)) {
      if (!WriteInRuns(server, session, handle, slot, client)) return;
      continue;
    }
    if (options_.erases > 0 && erase_random_.Chance(options_.erases)) {
      if (!EraseRange(server, session, handle, client)) return;
      continue;
    }
    PANDO_CHECK(workload_.Next(&next, slot));
    next.client = client;
    next.call_ns = Stamp();
    ++begun_;
    std::vector<Operation>& operations = handle.life->operations;
    const size_t place = operations.size();
    operations.push_back(next);
    result_.upserts += next.kind == history::OperationKind::kUpsert ? 1 : 0;
    const bool go_on = Execute(server, session, handle, &next);
    if (!next.unknown()) workload_.Learn(next, slot);
    operations[place] = std::move(next);
    if (!go_on) return;
  }
}

Circumstances SimRun::CircumstancesOf(const TreeLife& life, int64_t call_ns, bool dropped) const {
  const int64_t settled_ns = SettledNs();
  return {
      .leases = options_.lease_ns > 0,
      .breaks = options_.break_probability > 0 || options_.partitions > 0 ||
                options_.owner_faults.member_cuts > 0,
      .server_death = result_.server_deaths > 0 && call_ns <= settled_ns,
      .lost = result_.servers_restarted > 0 && life.opened_ns <= settled_ns,
      .dropped = dropped,
      .little_memory = options_.main_bytes < SimRunOptions::kLittleBytes,
      .owners_end = options_.tree.mode == TreeOptions::Mode::kOwned &&
                    (options_.crashes > 0 || options_.peer_break_probability > 0 ||
                     options_.owner_faults.peer_cuts > 0 || options_.owner_faults.log_deaths > 0 ||
                     options_.reopens > 0 || options_.pauses > 0 || options_.lease_ns > 0)};
}

bool SimRun::Execute(ComputeServer& server, Session& session, const TreeHandle& handle,
                     Operation* o) {
  const bool is_short = o->kind != history::OperationKind::kScan && options_.short_deadlines > 0 &&
                        deadline_random_.Chance(options_.short_deadlines);
  if (is_short) return ExecuteBy(server, session, handle, o);
  std::optional<Operation> back;
  const bool walks = o->kind == history::OperationKind::kScan && options_.cursor > 0 &&
                     walk_random_.Chance(options_.cursor);
  absl::Status status;
  if (walks) {
    const Walk walk = RandomWalk(workload_.AnyKey(&walk_random_), &walk_random_);
    status = PerformWalk(session, *handle.tree, walk, o, &back);
  } else {
    status = Perform(session, *handle.tree, o);
  }
  // A dead client heard nothing: the outcome stays unknown.
  if (world_.IsKilled(*server.fabric)) return false;
  const Ending ending = Settle(server, session, handle, status, o);
  if (ending == Ending::kConcluded && back.has_value()) {
    back->return_ns = o->return_ns;
    handle.life->operations.push_back(*std::move(back));
  }
  if (ending == Ending::kConcluded && walks) ++result_.walks;
  return ending != Ending::kCutOff;
}

bool SimRun::ExecuteBy(ComputeServer& server, Session& session, const TreeHandle& handle,
                       Operation* o) {
  const int64_t chain_ns = 2 * options_.sim.delay_ns + options_.sim.jitter_ns;
  const auto timeout_ns = static_cast<int64_t>(
      deadline_random_.Uniform(static_cast<uint64_t>(kShortChains * chain_ns)));
  const absl::Status status = PerformBy(session, *handle.tree, timeout_ns, o);
  if (world_.IsKilled(*server.fabric)) return false;
  if (absl::IsDeadlineExceeded(status)) {
    ++result_.too_late;
    ++result_.refused;
    ForgetAll(o);
    return true;
  }
  if (IsOutcomeUnknown(status)) {  // by the deadline, or for another reason: the next one is told
    ++result_.perhaps_too_late;
    ForgetReads(o);
    return true;
  }
  return Settle(server, session, handle, status, o) != Ending::kCutOff;
}

Ending SimRun::Settle(ComputeServer& server, Session& session, const TreeHandle& handle,
                      const absl::Status& status, Operation* o, int waits) {
  CheckWait(status, *o, waits);
  const Circumstances circumstances =
      CircumstancesOf(*handle.life, o->call_ns, handle.life->dropped && !server.client->fenced());
  const Ending ending = Explain(status, circumstances, o);
  if (absl::IsDataLoss(status) && ending == Ending::kRefused) server.lost_slot = handle.life->slot;
  if (ending == Ending::kConcluded) {
    o->return_ns = Stamp();
    if (result_.server_deaths > 0) ++result_.after_server_death;
  }
  if (ending == Ending::kRefused) {
    ++result_.refused;
    if (IsRecoverable(status) && options_.reopen_refused > 0 &&
        reopens_.random().Chance(options_.reopen_refused)) {
      server.refused_slot = handle.life->slot;
    }
    SleepFor(session, kRefusedPauseNs);
  }
  if (ending == Ending::kProblem) Fail(status, o);
  if (ending == Ending::kCutOff) {
    server.gave_up = true;
    server.refusal.Update(status);
  }
  return ending;
}

bool SimRun::WriteInRuns(ComputeServer& server, Session& session, const TreeHandle& handle,
                         size_t slot, int32_t client) {
  const bool stretch = options_.stretches > 0 && stretch_random_.Chance(options_.stretches);
  std::vector<Operation> writes = stretch ? workload_.NextStretch(&stretch_random_, kStretchMax)
                                          : workload_.NextRun(&run_random_, kRunMax, slot);
  std::vector<Operation*> all;
  const int64_t call_ns = Stamp();
  for (Operation& write : writes) {
    write.client = client;
    write.call_ns = call_ns;
    all.push_back(&write);
  }
  begun_ += writes.size();
  std::vector<Operation>& operations = handle.life->operations;
  const size_t place = operations.size();
  operations.insert(operations.end(), writes.begin(), writes.end());
  bool go_on = true;
  const auto settle = [&](Operation* o, const absl::Status& status) {
    if (world_.IsKilled(*server.fabric)) return go_on = false;
    const int run_waits = result_.owner_and_log_deaths > 0 ? kLostRunWaits : 1;
    const int waits = stretch ? kStretchWaits : run_waits;
    go_on = Settle(server, session, handle, status, o, waits) != Ending::kCutOff;
    ++result_.written_in_runs;
    if (!o->unknown()) workload_.Learn(*o, slot);
    operations[place + static_cast<size_t>(o - writes.data())] = *o;
    return go_on;
  };
  if (stretch || (options_.many > 0 && many_random_.Chance(options_.many))) {
    OperationOptions options;
    if (stretch) options.timeout_ms = kStretchTimeoutMs;
    const std::vector<absl::Status> statuses = PerformMany(session, *handle.tree, writes, options);
    for (size_t i = 0; i < writes.size() && go_on; ++i) {
      settle(&writes[i], statuses[i]);
      ++result_.written_by_call;
    }
    if (stretch && go_on) ++result_.stretches;
  } else {
    PerformRuns(session, *handle.tree, all, settle);
  }
  return go_on;
}

bool SimRun::EraseRange(ComputeServer& server, Session& session, const TreeHandle& handle,
                        int32_t client) {
  const size_t keys_max = erase_random_.Chance(kEraseAllShare) ? SIZE_MAX : kErasedKeysMax;
  const std::vector<std::string> keys = workload_.Neighbours(&erase_random_, keys_max);
  std::vector<Operation> erases = EraseOperations(keys, client, Stamp());
  ++begun_;
  std::vector<Operation>& operations = handle.life->operations;
  const size_t place = operations.size();
  operations.insert(operations.end(), erases.begin(), erases.end());
  handle.life->shared_ends.emplace_back(place, operations.size());
  const RangeErasing erasing = PerformEraseRange(session, *handle.tree, keys.front(), keys.back());
  if (world_.IsKilled(*server.fabric)) return false;
  Operation whole = erases.front();
  const Ending ending = Settle(server, session, handle, erasing.status, &whole);
  SettleErases(erasing, Stamp(), &erases);
  std::move(erases.begin(), erases.end(), operations.begin() + static_cast<ptrdiff_t>(place));
  if (erasing.status.ok()) ++result_.ranges_erased;
  return ending != Ending::kCutOff;
}

void SimRun::Fail(const absl::Status& status, Operation* o) {
  if (absl::IsDeadlineExceeded(status)) ++result_.deadlines;
  // Nothing may take that long, crashes or not, unless it has to wait for what follows them.
  if (absl::IsDeadlineExceeded(status) && MayStillWait(*o)) return ForgetAll(o);
  Problem(absl::StrCat("client ", o->client, ": ", history::OperationKindName(o->kind), " ",
                       history::ToHex(o->key), " ended in ", status.ToString()));
  // A deadline that passed before anything was written, and a failed read, have no effect.
  absl::IsDeadlineExceeded(status) ? ForgetAll(o) : ForgetReads(o);
}

bool SimRun::BulkLoad(ComputeServer& server, Session& session, const TreeHandle& handle,
                      int32_t client) {
  std::vector<Operation> loads;
  for (std::string& key : workload_.KeysToLoad(kLoadedKeysMax)) {
    Operation& o = loads.emplace_back();
    o.client = client;
    o.kind = history::OperationKind::kPut;
    o.key = std::move(key);
    o.value = workload_.NewValue();
  }
  const int64_t call_ns = Stamp();
  for (Operation& o : loads) o.call_ns = call_ns;
  // In the history from now on: others may read what a load of unknown end has stored.
  std::vector<Operation>& operations = handle.life->operations;
  const size_t place = operations.size();
  operations.insert(operations.end(), loads.begin(), loads.end());
  handle.life->shared_ends.emplace_back(place, operations.size());
  size_t next = 0;
  const absl::Status status = session.BulkLoad(*handle.tree, [&](KeyValue* entry) {
    if (next == loads.size()) return false;
    entry->key = loads[next].key;
    entry->value = loads[next++].value;
    return true;
  });
  if (world_.IsKilled(*server.fabric)) return false;
  Ending ending = Ending::kConcluded;
  if (!status.ok()) {
    // Somebody has put something before; or the tree was dropped, which may not grow then.
    const bool may_refuse = absl::IsFailedPrecondition(status) && !server.client->fenced();
    const Circumstances circumstances = CircumstancesOf(*handle.life, call_ns, may_refuse);
    Operation whole = loads.front();
    // Of a tree that was dropped nobody can say where it has nodes; one that has lost some may have
    // had all that was loaded before.
    const bool cannot_say = (handle.life->dropped && IsOutcomeUnknown(status)) ||
                            (circumstances.lost && absl::IsDataLoss(status));
    ending = cannot_say ? Ending::kUnknown : Explain(status, circumstances, &whole);
    if (ending == Ending::kProblem) Fail(status, &whole);
    const bool may_have_loaded = ending == Ending::kUnknown || IsOutcomeUnknown(status);
    for (size_t i = 0; i < loads.size() && !may_have_loaded; ++i) ForgetAll(&operations[place + i]);
    if (!may_have_loaded) result_.refused += loads.size();
  } else {
    ++result_.bulk_loads;
    for (size_t i = 0; i < loads.size(); ++i) operations[place + i].return_ns = Stamp();
  }
  if (ending == Ending::kCutOff) {
    server.gave_up = true;
    server.refusal.Update(status);
  }
  return ending != Ending::kCutOff;
}

void SimRun::MaybeSweep() {
  if (NowNs() >= sweep_at_ns_) {
    sweep_at_ns_ = kNeverNs;
    SweepSomewhere();
  }
  if (sweeps_.Take(begun_)) SweepSomewhere();
}

void SimRun::SweepSomewhere() {
  if (options_.pauses > 0) {
    // A compute server in the middle of something. (At() is no event: it may stop somebody.)
    world_.At(NowNs() + 1 + static_cast<int64_t>(sweeps_.random().Uniform(kPauseWithinNs)), [this] {
      ComputeServer* const server = Choose(&sweeps_.random());
      const auto longest_ns = static_cast<uint64_t>(options_.pause_max_ns);
      const auto pause_ns = static_cast<int64_t>(sweeps_.random().Uniform(longest_ns));
      if (server != nullptr) Pause(*server, 1 + pause_ns);
    });
  }
  // Now and then several at once, of one compute server or of several.
  const uint64_t at_once = 1 + sweeps_.random().Uniform(3);
  for (uint64_t i = 0; i < at_once; ++i) {
    ComputeServer* const server = Choose(&sweeps_.random());
    if (server == nullptr) return;
    SimSession& place = *server->sessions[sweeps_.random().Uniform(server->sessions.size())];
    const TreeHandle handle = server->handles[sweeps_.random().Uniform(server->handles.size())];
    if (handle.tree == nullptr || place.running == 0) continue;
    ++place.running;
    place.session->Spawn([this, server, &place, &session = *place.session, handle] {
      SweepUnderLoad(*server, session, handle);
      --place.running;
    });
    ImplOf(*place.session).scheduler().endpoint().Wake();
  }
}

void SimRun::SweepUnderLoad(ComputeServer& server, Session& session, const TreeHandle& handle) {
  SweepResult swept;
  const absl::Status status = session.Sweep(*handle.tree, &swept);
  if (world_.IsKilled(*server.fabric)) return;
  if (status.ok()) {
    ++result_.sweeps;
    return;
  }
  const bool may_fail = options_.lease_ns > 0 || options_.break_probability > 0 ||
                        options_.partitions > 0 || handle.life->dropped ||
                        result_.server_deaths > 0;
  if (absl::IsDeadlineExceeded(status) || !may_fail) {
    Problem(absl::StrCat("a sweep ended in ", status.ToString()));
  }
}

}  // namespace pando::sim_run
