#include "bench/ycsb/session_runner.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

using HistoryKind = history::OperationKind;

// Records that a thread puts in one call to load them, and how long such a call may take at least.
constexpr size_t kLoadBatch = 1024;
constexpr int64_t kLoadTimeoutMs = 60'000;
// To find a key of its own among those of all compute servers; then any will do.
constexpr int kDrawsAServer = 16;
constexpr double kScanTheta = 0.99;  // of lengths, as YCSB has it

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(seconds * kSecondNs); }

bool IsError(const absl::Status& status) {
  return !status.ok() && !absl::IsNotFound(status) && !absl::IsAlreadyExists(status);
}

void SleepOutside(int64_t until_ns) {
  timespec until = {until_ns / kSecondNs, until_ns % kSecondNs};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr) != 0) {
  }
}

}  // namespace

SessionRunner::SessionRunner(const Plan& plan, const Keys& keys, int thread, const OwnKeys* own)
    : plan_(plan),
      keys_(keys),
      thread_(thread),
      random_(DeriveSeed(plan.seed, static_cast<uint64_t>(thread))),
      distribution_(
          Distribution::Create(plan.distribution, std::max<uint64_t>(1, plan.initial_records()))) {
  if (own != nullptr) own_.emplace(own);
  const Workload& workload = plan.workload;
  if (workload.scan_lengths == "zipfian") {
    scan_rank_.emplace(workload.scan_length_max - workload.scan_length_min + 1, kScanTheta);
  }
  for (int i = 0; i < plan.coroutines; ++i) {
    const int client = thread * plan.coroutines + i;
    workers_.push_back(
        {.client = client,
         .values = Values(plan.value_bytes, static_cast<uint64_t>(client), plan.writers())});
  }
}

absl::Status SessionRunner::Prepare(Client* client, const Tree* tree) {
  tree_ = tree;
  // An open loop sleeps until the next operation is due; the kernel may add this much.
  if (plan_.rate > 0) prctl(PR_SET_TIMERSLACK, 1);
  PANDO_ASSIGN_OR_RETURN(session_, client->NewSession());
  if (plan_.history) {
    PANDO_ASSIGN_OR_RETURN(history_,
                           HistoryFile::Open(absl::StrCat(plan_.folder, "/history-", thread_)));
  }
  return absl::OkStatus();
}

absl::Status SessionRunner::Finish() {
  session_.reset();
  if (history_ == nullptr) return absl::OkStatus();
  const absl::Status status = history_->Close();
  history_.reset();
  return status;
}

absl::Status SessionRunner::Load(const std::atomic<bool>& stop) {
  const Values values(plan_.value_bytes, plan_.writers() - 1, plan_.writers());
  const auto threads = static_cast<uint64_t>(plan_.total_threads());
  const OperationOptions options = {.timeout_ms = std::max(plan_.timeout_ms, kLoadTimeoutMs)};
  std::vector<KeyValue> batch;
  uint64_t next = static_cast<uint64_t>(thread_);
  while (next < plan_.records && !stop.load(std::memory_order_relaxed)) {
    batch.clear();
    for (; next < plan_.records && batch.size() < kLoadBatch; next += threads) {
      KeyValue& entry = batch.emplace_back();
      keys_.Make(next, &entry.key);
      values.Make(next, &entry.value);
    }
    for (const absl::Status& put : session_->MultiPut(*tree_, batch, options)) {
      PANDO_RETURN_IF_ERROR(put);
    }
    finished_.fetch_add(batch.size(), std::memory_order_relaxed);
  }
  return absl::OkStatus();
}

PhaseStats SessionRunner::Run(int64_t start_ns, int repetition, const std::atomic<bool>& stop) {
  stats_ = PhaseStats();
  stop_ = &stop;
  errors_in_row_ = 0;
  measure_ns_ = start_ns + Nanoseconds(plan_.warmup_s);
  end_ns_ = plan_.duration_s == 0 ? INT64_MAX : measure_ns_ + Nanoseconds(plan_.duration_s);
  const auto threads = static_cast<uint64_t>(plan_.total_threads());
  slots_left_ = plan_.operations == 0
                    ? UINT64_MAX
                    : plan_.operations / threads +
                          (static_cast<uint64_t>(thread_) < plan_.operations % threads ? 1 : 0);
  random_ = Random(
      DeriveSeed(plan_.seed + static_cast<uint64_t>(repetition), static_cast<uint64_t>(thread_)));
  next_slot_ns_ = plan_.rate == 0 ? 0 : start_ns + NextGap();
  stats_.start_ns = stats_.end_ns = measure_ns_;
  SleepOutside(start_ns);
  now_ns_ = clock_.Anchor();
  for (Worker& worker : workers_) {
    session_->Spawn([this, &worker] { RunWorker(&worker); });
  }
  session_->Run();
  if (stats_.cpu_ns != 0) stats_.cpu_ns += ThreadCpuNs();
  if (plan_.rate > 0 && end_ns_ != INT64_MAX && !stats_.gave_up && !stop) {
    for (; slots_left_ > 0 && next_slot_ns_ < end_ns_; next_slot_ns_ += NextGap(), --slots_left_) {
      ++stats_.backlog;
    }
  }
  return std::move(stats_);
}

void SessionRunner::RunWorker(Worker* worker) {
  int64_t intended_ns;
  while (TakeSlot(&intended_ns)) RunOperation(worker, intended_ns);
}

int64_t SessionRunner::NowNs() const {
  if (plan_.history) return RealClock().NowNs();
  return clock_.NowNs();
}

// Arrivals of an open loop are a Poisson process.
int64_t SessionRunner::NextGap() {
  const double mean_ns = kSecondNs / plan_.rate * plan_.total_threads();
  return static_cast<int64_t>(-std::log(1 - random_.NextDouble()) * mean_ns);
}

bool SessionRunner::TakeSlot(int64_t* intended_ns) {
  if (slots_left_ == 0 || stats_.gave_up || stop_->load(std::memory_order_relaxed)) return false;
  // A closed loop saves a look at the clock: the last operation has just ended.
  const int64_t now_ns = plan_.rate == 0 ? now_ns_ : NowNs();
  *intended_ns = plan_.rate == 0 ? now_ns : next_slot_ns_;
  if (now_ns >= end_ns_ || *intended_ns >= end_ns_) return false;
  if (plan_.rate > 0) next_slot_ns_ += NextGap();
  if (*intended_ns >= measure_ns_) {
    --slots_left_;
    if (stats_.cpu_ns == 0) stats_.cpu_ns = -ThreadCpuNs();  // completed at the end of Run()
  }
  if (*intended_ns > now_ns) session_->SleepUntil(*intended_ns);
  return true;
}

void SessionRunner::RunOperation(Worker* worker, int64_t intended_ns) {
  const OperationKind kind = plan_.workload.Choose(&random_);
  ChooseKey(worker, kind);
  OperationCost cost;
  const Outcome outcome = Execute(worker, kind, &cost);
  worker->pending_insert = UINT64_MAX;
  // Nobody else counts here.
  finished_.store(finished_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (IsError(outcome.status)) {
    if (stats_.first_error.empty()) {
      stats_.first_error =
          absl::StrCat(std::string(OperationName(kind)), ": ", outcome.status.ToString());
    }
    if (++errors_in_row_ >= plan_.errors_max) stats_.gave_up = true;
  } else {
    errors_in_row_ = 0;
  }
  if (intended_ns < measure_ns_) return;
  OperationStats& stats = stats_.of(kind);
  const int64_t begin_ns = plan_.rate == 0 ? outcome.call_ns : intended_ns;
  stats.Record(outcome.return_ns - begin_ns, cost);
  stats.errors += IsError(outcome.status) ? 1 : 0;
  stats.not_found += !outcome.status.ok() && !IsError(outcome.status) ? 1 : 0;
  stats_.CountFinished(outcome.return_ns);
}

// --- Keys.

uint64_t SessionRunner::NextInsert(Worker* worker) {
  worker->pending_insert = inserts_;
  return InsertNumber(inserts_++);
}

size_t SessionRunner::NextScanLength() {
  const uint32_t least = plan_.workload.scan_length_min;
  if (scan_rank_.has_value()) return least + scan_rank_->Next(&random_);
  return least + random_.Uniform(plan_.workload.scan_length_max - least + 1);
}

uint64_t SessionRunner::InsertsDone() const {
  uint64_t done = inserts_;
  if (done == 0) return 0;
  for (const Worker& worker : workers_) done = std::min(done, worker.pending_insert);
  return done;
}

void SessionRunner::ChooseKey(Worker* worker, OperationKind kind) {
  if (kind == OperationKind::kInsert) {
    keys_.Make(NextInsert(worker), &worker->key);
    return;
  }
  keys_.Make(DrawNumber(), &worker->key);
  if (!own_.has_value() || own_->empty()) return;
  const int draws_max = kDrawsAServer * plan_.total_compute_servers();
  for (int i = 0; i < draws_max && !own_->Has(worker->key); ++i) {
    keys_.Make(DrawNumber(), &worker->key);
  }
}

uint64_t SessionRunner::DrawNumber() {
  const uint64_t initial = plan_.initial_records();
  const uint64_t done = InsertsDone();
  const auto threads = static_cast<uint64_t>(plan_.total_threads());
  if (done > 0) distribution_->Grow(std::max<uint64_t>(1, initial + done * threads));
  uint64_t number = distribution_->Next(&random_);
  // Of the records inserted in this run a thread asks for its own: what others have inserted it
  // does not know.
  if (number >= initial && done > 0) {
    number = InsertNumber(std::min(done - 1, (number - initial) / threads));
  }
  return number;
}

// --- Operations.

SessionRunner::Outcome SessionRunner::Execute(Worker* worker, OperationKind kind,
                                              OperationCost* cost) {
  const HistoryKind write = plan_.workload.upsert ? HistoryKind::kPut : HistoryKind::kUpdate;
  switch (kind) {
    case OperationKind::kRead:
      return ExecuteOne(worker, HistoryKind::kGet, 0, cost);
    case OperationKind::kUpdate:
      return ExecuteOne(worker, write, 0, cost);
    case OperationKind::kInsert:
      return ExecuteOne(worker, HistoryKind::kInsert, 0, cost);
    case OperationKind::kDelete:
      return ExecuteOne(worker, HistoryKind::kDelete, 0, cost);
    case OperationKind::kScan:
      return ExecuteOne(worker, HistoryKind::kScan, NextScanLength(), cost);
    case OperationKind::kRmw:
      break;
  }
  Outcome read = ExecuteOne(worker, HistoryKind::kGet, 0, cost);
  if (IsError(read.status)) return read;
  Outcome both = ExecuteOne(worker, write, 0, cost);
  both.call_ns = read.call_ns;
  return both;
}

SessionRunner::Outcome SessionRunner::ExecuteOne(Worker* worker, HistoryKind kind, size_t limit,
                                                 OperationCost* cost) {
  const OperationOptions options = {.timeout_ms = plan_.timeout_ms, .cost = cost};
  const bool writes =
      kind == HistoryKind::kPut || kind == HistoryKind::kInsert || kind == HistoryKind::kUpdate;
  if (writes) worker->values.Next(&worker->value);
  Outcome outcome;
  // The operation before has just ended, where time is not compared with other processes'.
  outcome.call_ns = plan_.rate == 0 && !plan_.history ? now_ns_ : NowNs();
  switch (kind) {
    case HistoryKind::kGet:
      outcome.status = session_->GetTo(*tree_, worker->key, &worker->read, options);
      break;
    case HistoryKind::kPut:
      outcome.status = session_->Put(*tree_, worker->key, worker->value, options);
      break;
    case HistoryKind::kInsert:
      outcome.status = session_->Insert(*tree_, worker->key, worker->value, options);
      break;
    case HistoryKind::kUpdate:
      outcome.status = session_->Update(*tree_, worker->key, worker->value, options);
      break;
    case HistoryKind::kDelete:
      outcome.status = session_->Erase(*tree_, worker->key, options);
      break;
    case HistoryKind::kScan:
      outcome.status = session_->Scan(*tree_, worker->key, limit, &worker->rows, options);
      break;
    case HistoryKind::kClear:
    case HistoryKind::kReplace:
    case HistoryKind::kEraseIf:
    case HistoryKind::kUpsert:
      PANDO_CHECK(false) << "no workload has conditional operations, or erases ranges";
  }
  outcome.return_ns = now_ns_ = NowNs();
  if (history_ != nullptr) Note(*worker, kind, limit, outcome);
  return outcome;
}

// What certainly had no effect, and reads that failed, say nothing and are left out.
void SessionRunner::Note(const Worker& worker, HistoryKind kind, size_t limit,
                         const Outcome& outcome) {
  const absl::Status& status = outcome.status;
  const bool unknown = IsOutcomeUnknown(status);
  if (IsError(status) && (!unknown || kind == HistoryKind::kGet || kind == HistoryKind::kScan)) {
    return;
  }
  history::Operation operation;
  operation.client = worker.client;
  operation.kind = kind;
  operation.key = worker.key;
  operation.call_ns = outcome.call_ns;
  operation.return_ns = unknown ? history::kNeverReturned : outcome.return_ns;
  operation.found = kind == HistoryKind::kInsert ? absl::IsAlreadyExists(status) : status.ok();
  operation.limit = limit;
  if (kind == HistoryKind::kGet) {
    operation.value = worker.read;
  } else if (kind == HistoryKind::kScan) {
    for (const KeyValue& row : worker.rows) operation.rows.emplace_back(row.key, row.value);
  } else {
    operation.value = worker.value;
  }
  history_->Add(operation);
}

}  // namespace pando::bench
