// One thread of a compute server: a session whose coroutines run the workload.
//
// Lives through all repetitions of a run, so that keys of inserts and values never repeat. Used by
// one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/history/history.h"
#include "bench/workload/distribution.h"
#include "bench/workload/keys.h"
#include "bench/workload/values.h"
#include "bench/ycsb/history_file.h"
#include "bench/ycsb/operation_stats.h"
#include "bench/ycsb/own_keys.h"
#include "bench/ycsb/plan.h"
#include "common/base/random.h"
#include "common/base/ticks.h"
#include "pando/client.h"

namespace pando::bench {

class SessionRunner {
 public:
  // `thread`: number among the threads of all compute servers.
  // `own`: with --route=owner, what this compute server owns; else nullptr.
  SessionRunner(const Plan& plan, const Keys& keys, int thread, const OwnKeys* own);

  // Before any is written (values.h).
  void SkipValues(uint64_t count) {
    for (Worker& worker : workers_) worker.values.Skip(count);
  }
  // Opens a session and the history. To be called by the thread that runs it.
  absl::Status Prepare(Client* client, const Tree* tree);
  // Runs from `start_ns` on and measures after the warm-up. `stop` ends it early.
  PhaseStats Run(int64_t start_ns, int repetition, const std::atomic<bool>& stop);
  // Loads this thread's share of the records by puts.
  absl::Status Load(const std::atomic<bool>& stop);
  absl::Status Finish();

  // Operations finished, for the progress line. Any thread.
  uint64_t finished() const { return finished_.load(std::memory_order_relaxed); }

 private:
  // One coroutine, one client of the history.
  struct Worker {
    int client = 0;
    Values values;
    std::string key, value, read;
    std::vector<KeyValue> rows;
    uint64_t pending_insert = UINT64_MAX;
  };
  // An operation as it comes out of the index.
  struct Outcome {
    absl::Status status;
    int64_t call_ns = 0;
    int64_t return_ns = 0;
  };
  // CLOCK_MONOTONIC; from cheap ticks where nothing depends on a comparison with other processes.
  int64_t NowNs() const;

  void RunWorker(Worker* worker);
  // False: the run is over. Sleeps until the operation is due. `intended_ns`: when it should begin
  // (open loop) or begins.
  bool TakeSlot(int64_t* intended_ns);
  void RunOperation(Worker* worker, int64_t intended_ns);
  Outcome Execute(Worker* worker, OperationKind kind, OperationCost* cost);
  Outcome ExecuteOne(Worker* worker, history::OperationKind kind, size_t limit,
                     OperationCost* cost);
  void Note(const Worker& worker, history::OperationKind kind, size_t limit,
            const Outcome& outcome);
  void ChooseKey(Worker* worker, OperationKind kind);
  uint64_t DrawNumber();
  uint64_t NextInsert(Worker* worker);
  size_t NextScanLength();
  // Inserts of this thread that are certainly there.
  uint64_t InsertsDone() const;
  // The number of this thread's `n`-th insert.
  uint64_t InsertNumber(uint64_t n) const {
    return plan_.initial_records() + n * static_cast<uint64_t>(plan_.total_threads()) +
           static_cast<uint64_t>(thread_);
  }
  int64_t NextGap();

  const Plan& plan_;
  const Keys& keys_;
  const int thread_;
  Random random_;
  std::unique_ptr<Distribution> distribution_;
  std::optional<ZipfianRank> scan_rank_;  // of lengths that are not uniform
  std::optional<OwnKeysView> own_;
  std::vector<Worker> workers_;
  uint64_t inserts_ = 0;  // begun
  std::unique_ptr<Session> session_;
  const Tree* tree_ = nullptr;
  std::unique_ptr<HistoryFile> history_;
  std::atomic<uint64_t> finished_{0};

  // Of the present Run().
  PhaseStats stats_;
  const std::atomic<bool>* stop_ = nullptr;
  int64_t measure_ns_ = 0;    // the warm-up is over
  int64_t end_ns_ = 0;        // of the measured part; INT64_MAX: operations decide
  int64_t next_slot_ns_ = 0;  // open loop
  int64_t now_ns_ = 0;        // when an operation last ended
  TickClock clock_;
  uint64_t slots_left_ = 0;  // measured operations not yet begun
  int errors_in_row_ = 0;
};

}  // namespace pando::bench
