// Leads a run of pando-chaos: starts memory servers and compute servers, loads, kills and stops by
// the schedule, and checks what is left. Used by the main thread; leaves no process behind.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/chaos/outcome.h"
#include "bench/chaos/plan.h"
#include "bench/chaos/schedule.h"
#include "bench/host/channel.h"
#include "bench/host/process.h"
#include "pando/client.h"

namespace pando::chaos {

// Those of the plan, announced in its registry; what AwaitMemoryServers() says (bench/host).
absl::Status StartMemoryServers(const Plan& plan, std::vector<bench::Process>* servers,
                                int stop_fd);

class Coordinator {
 public:
  struct Options {
    int stop_fd = -1;  // readable: stop (stop_signals.h)
    bool progress = true;
    std::string history_file;  // also FILE.initial, FILE.final
  };
  // `plan` is checked and names a folder of its own.
  Coordinator(Plan plan, Options options) : plan_(std::move(plan)), options_(std::move(options)) {}
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // What happened, not yet evaluated. Cancelled: somebody wants to stop. Other errors: the run
  // could not be made.
  absl::StatusOr<Outcome> Run();
  // The tree as it was left. After Run().
  const CheckReport& tree_report() const { return tree_report_; }

 private:
  // A compute server: its present process, if it runs.
  struct Server {
    std::optional<bench::Process> process;
    std::optional<bench::Channel> channel;
    int life = -1;
    // It was told to leave: its place in Outcome::leaves.
    std::optional<size_t> leaving;
    bool coming = false;  // another process comes for it, which is not ready yet
    bool begun = false;   // it works, or is about to
    bool at_work() const { return begun && !leaving.has_value(); }
  };

  absl::Status Load();
  absl::Status StartLife(int server);
  absl::Status AwaitReady(int server);
  absl::Status PlayEvents(const std::vector<Event>& events);
  absl::Status PlayEvent(const Event& event);
  absl::Status PlayKill(const Event& event);
  absl::Status PlayStop(const Event& event, bench::Process* process);
  // What is due of leaves, and of what follows from them; whatever else is going on.
  absl::Status StepLeaves();
  absl::Status StepLeave(int server);
  absl::Status Begin(Server* server);
  // Lets the server write at full speed for a moment.
  absl::Status Hurry(Server* server);
  absl::Status FinishLives();
  absl::Status Dump(const std::string& suffix);
  absl::Status CheckTree();
  // Of owned trees: nobody's log is left but this process's own.
  absl::Status CheckLogs();
  absl::Status CollectLogs();
  // Until then; Cancelled, or Unavailable if a process ended that should not have.
  absl::Status SleepUntil(int64_t time_ns);
  absl::Status LookAtProcesses();
  uint64_t UsedBytes();
  void Say(const std::string& what) const;

  const Plan plan_;
  const Options options_;
  std::vector<bench::Process> memory_servers_;
  std::vector<Server> servers_;
  std::unique_ptr<Client> client_;
  std::vector<Leaving> leavings_;  // that are to come, the next one last
  Outcome outcome_;
  CheckReport tree_report_;
  int64_t start_ns_ = 0;
  int64_t end_ns_ = 0;
};

}  // namespace pando::chaos
