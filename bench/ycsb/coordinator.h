// The coordinator of pando-ycsb: starts memory servers and compute servers, leads them through load
// and run, and takes everything down again, whatever happens. Used by the main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/host/channel.h"
#include "bench/host/process.h"
#include "bench/ycsb/operation_stats.h"
#include "bench/ycsb/plan.h"

namespace pando::bench {

struct LoadResult {
  std::string method;
  uint64_t records = 0;
  double seconds = 0;
};

struct YcsbResult {
  LoadResult load;
  std::vector<PhaseStats> runs;  // one a repetition; none with load_only
  absl::Status final_state;      // whether it could be written (--history)
  bool stopped = false;          // a signal ended the last run before its time
};

class Coordinator {
 public:
  struct Options {
    int stop_fd = -1;          // readable: stop (stop_signals.h)
    bool progress = true;      // a line a second on standard error
    std::string history_file;  // empty: none
    double start_at_s = 0;     // UNIX time at which the (only) run starts; 0: when all are ready
    bool load_only = false;    // no run
  };
  // `plan` is checked and names a folder of its own.
  Coordinator(Plan plan, Options options);
  // Leaves no process behind.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Cancelled: somebody wants to stop, and no run has begun or all are over.
  absl::StatusOr<YcsbResult> Run();

 private:
  struct ComputeServerHandle {
    explicit ComputeServerHandle(Channel channel_end) : channel(std::move(channel_end)) {}
    Channel channel;
    std::optional<Process> process;
    std::thread thread;  // --in_process
    bool busy = false;
    uint64_t finished = 0;  // as of its last progress report
    nlohmann::json answer;
  };

  absl::Status StartMemoryServers();
  absl::Status StartComputeServers();
  absl::Status OpenTree();
  absl::StatusOr<LoadResult> Load();
  // One that is stopped ends early, with what it has measured; stopped_ says so.
  absl::StatusOr<PhaseStats> RunOnce(int repetition);
  absl::Status StopRun();
  // The common start by CLOCK_MONOTONIC, when it is near.
  absl::StatusOr<int64_t> AwaitStart() const;
  absl::Status WriteState(const std::string& suffix);
  // Values that an earlier run has left in the tree are not written again.
  absl::Status SkipValues();
  absl::Status JoinHistory();

  // Gives commands and waits for all answers; `what` is shown in progress lines, empty: none.
  absl::Status Command(int server, const nlohmann::json& command, const std::string& what = "");
  absl::Status CommandAll(const nlohmann::json& command, const std::string& what = "");
  // `on_stop`: what a signal leads to, once.
  absl::Status AwaitAnswers(const std::string& what,
                            const std::function<absl::Status()>& on_stop = nullptr);
  absl::Status TakeMessages();
  absl::Status WhyGone(ComputeServerHandle* server, int index) const;
  void ShowProgress(const std::string& what, int64_t start_ns, uint64_t finished,
                    uint64_t finished_before) const;
  void Shutdown(bool orderly);

  const Plan plan_;
  const Options options_;
  std::vector<Process> memory_servers_;
  std::list<ComputeServerHandle> compute_servers_;
  uint64_t skip_values_ = 0;
  bool stopped_ = false;
};

}  // namespace pando::bench
