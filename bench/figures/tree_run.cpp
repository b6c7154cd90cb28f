#include "bench/figures/tree_run.h"

#include <algorithm>
#include <ctime>
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/figures/busy_meter.h"
#include "bench/figures/owned_servers.h"
#include "bench/workload/values.h"
#include "bench/ycsb/operation_stats.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/wire/node_layout.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"

namespace pando::bench {
namespace {

constexpr int64_t kOperationTimeoutMs = 60'000;  // virtual: nobody gives up
constexpr int kSpareCoroutines = 4;              // for repairs
constexpr uint64_t kErrorsMax = 100;
constexpr uint64_t kClientSeeds = 1'000'000;  // apart from those of the workers
constexpr uint64_t kWarmSeed = 2'000'000;
constexpr size_t kHotBytesMin = 64 << 10;
constexpr int64_t kLooksInTime = 64;  // at tombstones, while one may be there

class TreeRun {
 public:
  TreeRun(const TreeCase& tree_case, Snapshot* snapshot)
      : case_(tree_case),
        snapshot_(*snapshot),
        world_(snapshot->cluster().world()),
        distribution_(Distribution::Create(tree_case.distribution, Numbers())),
        busy_meter_(&world_) {}

  absl::StatusOr<CaseResult> Run();

 private:
  enum class Phase { kWarmUp, kMeasured, kDone };
  struct ComputeServer {
    std::unique_ptr<Client> client;
    std::unique_ptr<Tree> tree;
    std::vector<std::unique_ptr<Session>> sessions;
  };
  // One coroutine.
  struct Worker {
    Worker(Session* of, const Tree* in, const SessionCounters* counting, uint64_t seed, Values made)
        : session(*of), tree(*in), counters(*counting), random(seed), values(made) {}
    int server = 0;
    int64_t due_ns = 0;  // its next operation, where they come in time
    Session& session;
    const Tree& tree;
    const SessionCounters& counters;
    Random random;
    Values values;
    std::string key, value;
    std::vector<KeyValue> rows;
  };
  // Keys that are not there, in scattered order: the i-th has the number 3 * i + 2.
  struct NewKeys {
    uint64_t first = 0, count = 0, step = 1, used = 0;
  };
  // What an operation cost, by its session's counters.
  struct Reading {
    explicit Reading(const SessionCounters& counters);
    uint64_t retries, failures, bytes, atomics;
  };

  // How many numbers keys are drawn from.
  uint64_t Numbers() const {
    return case_.mix.keys == Mix::Keys::kAny ? snapshot_.key_space() : snapshot_.options().records;
  }
  uint64_t DrawNumber(Random* random) const;
  absl::Status Connect();
  size_t HotBytes() const;
  std::vector<OwnedServer> OwnedServers() const;
  absl::Status ShareKeys();
  void CountNewKeys();
  uint64_t NextNewNumber(const Worker& worker);
  uint64_t NextNumber(Worker* worker);
  // Whoever else is ready, or due, comes first: what the thread has spent counts.
  void AwaitTurn(Worker* worker);
  void LookAtTombstones(int64_t now_ns);
  void Spawn();
  absl::Status Drive();
  void Work(Worker& worker);
  // The status, and in `trips` the round trips of a write; -1: it is none.
  absl::Status Operate(Worker& worker, int64_t* trips);
  void Record(const Worker& worker, const Reading& before, int64_t trips, int64_t latency_ns);
  void NoteError(const absl::Status& status);
  // Goes on to the next phase when this one has lasted long enough.
  void Advance(int64_t now_ns);
  void EnterPhase(Phase phase, int64_t now_ns);
  PhaseStats Sum() const;

  const TreeCase& case_;
  Snapshot& snapshot_;
  sim::SimWorld& world_;
  const std::unique_ptr<Distribution> distribution_;
  std::vector<ComputeServer> servers_;
  std::deque<Worker> workers_;
  Phase phase_ = Phase::kWarmUp;
  uint64_t in_phase_ = 0;  // operations finished
  int64_t phase_ns_ = 0;   // when it began
  int active_ = 0;
  PhaseStats before_;
  BusyMeter busy_meter_;
  std::vector<NewKeys> new_keys_;  // of all, or of each server where operations are routed
  uint64_t messages_before_ = 0;
  int64_t next_look_ns_ = 0;
  CaseResult result_;
};

TreeRun::Reading::Reading(const SessionCounters& counters)
    : retries(counters.torn_retries.value() + counters.stale_retries.value()),
      failures(counters.lock_failures.value()),
      bytes(counters.bytes_written.value()),
      atomics(counters.cas.value() + counters.faa.value()) {}

absl::StatusOr<CaseResult> TreeRun::Run() {
  world_.SetLocksOnChip(case_.system.techniques.on_chip_locks);
  PANDO_RETURN_IF_ERROR(Connect());
  if (case_.owners.has_value()) PANDO_RETURN_IF_ERROR(ShareKeys());
  if (case_.mix.keys == Mix::Keys::kNew) CountNewKeys();
  Spawn();
  const sim::SimStats start = world_.stats();
  const std::clock_t cpu_start = std::clock();
  PANDO_RETURN_IF_ERROR(Drive());
  result_.cpu_seconds = static_cast<double>(std::clock() - cpu_start) / CLOCKS_PER_SEC;
  result_.events = world_.stats().events - start.events;
  result_.verbs = world_.stats().verbs - start.verbs;
  result_.doorbells = world_.stats().doorbells - start.doorbells;
  workers_.clear();
  servers_.clear();
  return std::move(result_);
}

absl::Status TreeRun::Connect() {
  const auto all = static_cast<double>(snapshot_.parent_bytes());
  ClientOptions options;
  options.techniques = case_.system.techniques;
  options.handover_max = case_.system.handover_max;
  options.coroutines_per_session = case_.coroutines + kSpareCoroutines;
  options.operation_timeout_ms = kOperationTimeoutMs;
  options.index_cache_bytes = static_cast<size_t>(all * case_.cache_share);
  if (case_.owners.has_value()) {
    options.owner = true;
    options.hot_bytes = HotBytes();
    options.service_threads = case_.owners->service_threads;
    options.flush_threads = case_.owners->flush_threads;
    options.dirty_percent = case_.owners->dirty_percent;
    options.lend_after_ms = case_.owners->lends ? 0 : -1;
    // The ring holds what may be dirty several times.
    options.log_bytes = options.hot_bytes * static_cast<size_t>(case_.owners->dirty_percent) / 25;
  }
  for (int c = 0; c < case_.compute_servers; ++c) {
    options.seed = DeriveSeed(case_.seed, kClientSeeds + static_cast<uint64_t>(c));
    ComputeServer& server = servers_.emplace_back();
    const int host = case_.apart ? snapshot_.options().memory_servers + c : c;
    server.client = NewComputeServer(options, host, &snapshot_.cluster());
    PANDO_ASSIGN_OR_RETURN(server.tree, server.client->OpenTree(Snapshot::kTree));
    snapshot_.FillCache(*server.tree);
    for (int t = 0; t < case_.threads; ++t) {
      PANDO_ASSIGN_OR_RETURN(auto session, server.client->NewSession());
      server.sessions.push_back(std::move(session));
    }
  }
  return absl::OkStatus();
}

size_t TreeRun::HotBytes() const {
  if (case_.owners->hot_bytes > 0) return std::max(kHotBytesMin, case_.owners->hot_bytes);
  const double all = static_cast<double>(snapshot_.leaf_bytes()) * case_.owners->hot_share;
  return std::max(kHotBytesMin, static_cast<size_t>(all / case_.compute_servers));
}

std::vector<OwnedServer> TreeRun::OwnedServers() const {
  std::vector<OwnedServer> owners;
  if (!case_.owners.has_value()) return owners;
  for (const ComputeServer& server : servers_) {
    owners.push_back({server.client.get(), server.tree.get(), server.sessions.front().get()});
  }
  return owners;
}

absl::Status TreeRun::ShareKeys() {
  const std::vector<OwnedServer> owners = OwnedServers();
  PANDO_RETURN_IF_ERROR(DivideKeys(snapshot_, owners));
  WarmRecords(
      snapshot_, owners, HotBytes(), [this](Random* random) { return DrawNumber(random); },
      DeriveSeed(case_.seed, kWarmSeed));
  return absl::OkStatus();
}

void TreeRun::Spawn() {
  const auto count = static_cast<uint64_t>(case_.clients());
  for (ComputeServer& server : servers_) {
    for (const auto& session : server.sessions) {
      for (int i = 0; i < case_.coroutines; ++i) {
        const uint64_t index = workers_.size();
        workers_.emplace_back(session.get(), server.tree.get(),
                              &ImplOf(*session).context().counters(), DeriveSeed(case_.seed, index),
                              Values(snapshot_.options().value_bytes, index, count));
        Worker* const worker = &workers_.back();
        worker->server = static_cast<int>(&server - servers_.data());
        if (case_.operations_per_s > 0) {
          worker->due_ns =
              world_.clock().NowNs() +
              static_cast<int64_t>(static_cast<double>(index) * 1e9 / case_.operations_per_s);
        }
        session->Spawn([this, worker] { Work(*worker); });
      }
    }
  }
  active_ = static_cast<int>(workers_.size());
  EnterPhase(Phase::kWarmUp, world_.clock().NowNs());
}

absl::Status TreeRun::Drive() {
  // Of the events at most a quarter goes into the warm-up.
  uint64_t left[] = {case_.span.events_max / 4, case_.span.events_max / 4 * 3};
  while (active_ > 0) {
    if (!world_.Step()) return absl::InternalError("the simulated world stands still");
    if (phase_ == Phase::kDone || --left[static_cast<size_t>(phase_)] > 0) continue;
    result_.cut_short = true;
    EnterPhase(phase_ == Phase::kWarmUp ? Phase::kMeasured : Phase::kDone, world_.clock().NowNs());
  }
  return absl::OkStatus();
}

void TreeRun::Work(Worker& worker) {
  const Clock& clock = world_.clock();
  while (phase_ != Phase::kDone) {
    const int64_t begin_ns = clock.NowNs();
    const Reading before(worker.counters);
    world_.SpendCpu(case_.operation_cpu_ns);
    int64_t trips = -1;
    const absl::Status status = Operate(worker, &trips);
    const int64_t end_ns = clock.NowNs();
    if (!status.ok() && !absl::IsNotFound(status)) NoteError(status);
    if (phase_ == Phase::kMeasured) Record(worker, before, trips, end_ns - begin_ns);
    ++in_phase_;
    if (case_.tombstone_ns > 0) LookAtTombstones(end_ns);
    Advance(end_ns);
    if (case_.owners.has_value() || case_.operations_per_s > 0) AwaitTurn(&worker);
  }
  --active_;
}

uint64_t TreeRun::DrawNumber(Random* random) const {
  const uint64_t drawn = distribution_->Next(random);
  return case_.mix.keys == Mix::Keys::kAny ? drawn : Snapshot::LoadedNumber(drawn);
}

void TreeRun::CountNewKeys() {
  const bool routed = case_.owners.has_value() && case_.owners->routed;
  new_keys_.resize(routed ? servers_.size() : 1);
  const uint64_t all = snapshot_.options().records / 2;
  for (uint64_t i = 0; i < all; ++i) {
    NewKeys& of = new_keys_[routed ? static_cast<size_t>(OwnerOf(3 * i + 2, snapshot_.key_space(),
                                                                 case_.compute_servers))
                                   : 0];
    if (of.count++ == 0) of.first = i;
  }
  // Scattered: the step and the count have no divisor in common.
  for (NewKeys& of : new_keys_) {
    of.step = of.count / 8 * 5 + 1;
    while (of.count > 0 && std::gcd(of.step, of.count) != 1) ++of.step;
  }
}

uint64_t TreeRun::NextNewNumber(const Worker& worker) {
  NewKeys& of = new_keys_[new_keys_.size() == 1 ? 0 : static_cast<size_t>(worker.server)];
  if (of.used >= of.count) NoteError(absl::OutOfRangeError("every new key has been inserted"));
  return (of.first + of.used++ * of.step % std::max<uint64_t>(of.count, 1)) * 3 + 2;
}

void TreeRun::AwaitTurn(Worker* worker) {
  Scheduler& scheduler = ImplOf(worker->session).context().scheduler();
  // Who has found everything in memory has not waited for anything.
  int64_t until_ns = world_.clock().NowNs() + 1;
  if (case_.operations_per_s > 0) {
    worker->due_ns += static_cast<int64_t>(case_.clients() * 1e9 / case_.operations_per_s);
    until_ns = std::max(until_ns, worker->due_ns);
  }
  scheduler.SleepUntil(until_ns);
}

uint64_t TreeRun::NextNumber(Worker* worker) {
  // What is dirty when owners have flushed for a while, any writes have made so: that takes more of
  // them than there are new keys.
  const bool settles = case_.owners.has_value() && phase_ == Phase::kWarmUp;
  if (case_.mix.keys == Mix::Keys::kNew && !settles) return NextNewNumber(*worker);
  while (true) {
    const uint64_t number = DrawNumber(&worker->random);
    if (!case_.owners.has_value() || !case_.owners->routed) return number;
    if (OwnerOf(number, snapshot_.key_space(), case_.compute_servers) == worker->server) {
      return number;
    }
  }
}

void TreeRun::LookAtTombstones(int64_t now_ns) {
  if (phase_ != Phase::kMeasured || now_ns < next_look_ns_) return;
  next_look_ns_ = now_ns + case_.tombstone_ns / kLooksInTime;
  uint64_t oldest_ms = 0;
  for (const ComputeServer& server : servers_) {
    oldest_ms = std::max(oldest_ms, server.client->Stats().owned.oldest_tombstone_ms);
  }
  ++result_.looks;
  result_.oldest_tombstone_ms = std::max(result_.oldest_tombstone_ms, oldest_ms);
  if (static_cast<int64_t>(oldest_ms) * kMillisecondNs > case_.tombstone_ns) ++result_.late_looks;
}

absl::Status TreeRun::Operate(Worker& worker, int64_t* trips) {
  snapshot_.keys().Make(NextNumber(&worker), &worker.key);
  const double kind = worker.random.NextDouble();
  if (kind < case_.mix.writes) {
    OperationCost cost;
    worker.values.Next(&worker.value);
    const absl::Status status =
        worker.session.Put(worker.tree, worker.key, worker.value, {.cost = &cost});
    *trips = cost.round_trips;
    return status;
  }
  if (kind < case_.mix.writes + case_.mix.scans) {
    return worker.session.Scan(worker.tree, worker.key, case_.mix.scan_rows, &worker.rows);
  }
  if (kind < case_.mix.writes + case_.mix.scans + case_.mix.erases) {
    return worker.session.Erase(worker.tree, worker.key);
  }
  return worker.session.GetTo(worker.tree, worker.key, &worker.value);
}

void TreeRun::Record(const Worker& worker, const Reading& before, int64_t trips,
                     int64_t latency_ns) {
  ++result_.operations;
  result_.latency_ns.Add(latency_ns);
  const Reading after(worker.counters);
  if (trips < 0) {
    result_.read_retries.Add(static_cast<int64_t>(after.retries - before.retries));
    return;
  }
  result_.write_trips.Add(trips);
  result_.write_retries.Add(static_cast<int64_t>(after.failures - before.failures));
  // Lines and nodes are multiples of 64 bytes; the release of a lock is eight, and so is an atomic.
  const uint64_t payload = after.bytes - before.bytes - 8 * (after.atomics - before.atomics);
  result_.write_bytes.Add(static_cast<int64_t>(payload / kLineBytes * kLineBytes));
}

void TreeRun::NoteError(const absl::Status& status) {
  if (result_.first_error.empty()) result_.first_error = status.ToString();
  if (++result_.errors == kErrorsMax) EnterPhase(Phase::kDone, world_.clock().NowNs());
}

void TreeRun::Advance(int64_t now_ns) {
  const Span& span = case_.span;
  if (phase_ == Phase::kWarmUp) {
    if (in_phase_ < span.warmup_operations || now_ns - phase_ns_ < span.warmup_ns) return;
    EnterPhase(Phase::kMeasured, now_ns);
  } else if (phase_ == Phase::kMeasured) {
    if (in_phase_ < span.operations || now_ns - phase_ns_ < span.measured_ns) return;
    EnterPhase(Phase::kDone, now_ns);
  }
}

void TreeRun::EnterPhase(Phase phase, int64_t now_ns) {
  if (phase == Phase::kMeasured) {
    before_ = Sum();
    std::vector<const SessionContext*> users;
    for (const ComputeServer& server : servers_) {
      for (const auto& session : server.sessions) users.push_back(&ImplOf(*session).context());
    }
    busy_meter_.Begin(std::move(users), OwnedServers());
    messages_before_ = world_.stats().peer_messages;
  }
  if (phase == Phase::kDone) {
    const PhaseStats after = Sum();
    result_.fabric = Difference(before_.fabric, after.fabric);
    result_.tree = Difference(before_.tree, after.tree);
    result_.owned = Difference(before_.owned, after.owned);
    if (case_.owners.has_value()) result_.hot_bytes_max = HotBytes() * servers_.size();
    result_.peer_messages = world_.stats().peer_messages - messages_before_;
    result_.span_ns = now_ns - phase_ns_;
    result_.busy = busy_meter_.End(result_.span_ns);
  }
  phase_ = phase;
  in_phase_ = 0;
  phase_ns_ = now_ns;
}

PhaseStats TreeRun::Sum() const {
  PhaseStats sum;
  for (const ComputeServer& server : servers_) {
    const ClientStats stats = server.client->Stats();
    PhaseStats one;
    one.fabric = stats.fabric;
    one.tree = stats.tree;
    one.owned = stats.owned;
    sum.Merge(one);
  }
  return sum;
}

}  // namespace

absl::StatusOr<CaseResult> RunTreeCase(const TreeCase& tree_case, Snapshot* snapshot) {
  PANDO_RETURN_IF_ERROR(Distribution::Validate(tree_case.distribution));
  return TreeRun(tree_case, snapshot).Run();
}

}  // namespace pando::bench
