// One compute server of pando-ycsb: a client with its threads, told by the coordinator what to do.
// A process of its own, or a thread of the coordinator; the same code.
//
// Commands, one at a time, each answered with {"ok":true,...} or {"error":"..."}:
//   open {create, drop}    connects, opens or creates the tree
//   load                   the whole tree by bulk load, or this compute server's share by puts
//   dump {file}            the whole state of the tree as JSON lines
//   prepare {skip_values}  threads with sessions, ready to go; values begin behind so many
//   start {at_ns, repetition, file}   runs; the statistics go into `file`. {"finished":n} every now
//   and then quit
// When the channel closes, work stops and Serve() returns.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/host/channel.h"
#include "bench/ycsb/own_keys.h"
#include "bench/ycsb/plan.h"
#include "bench/ycsb/session_runner.h"
#include "bench/ycsb/thread_team.h"
#include "common/metrics/endpoint.h"
#include "pando/client.h"

namespace pando::bench {

class ComputeServer {
 public:
  // `index`: among the compute servers of the plan.
  ComputeServer(Plan plan, int index, Channel channel);
  ~ComputeServer();

  // Until "quit" or the end of the channel.
  void Serve();

 private:
  absl::StatusOr<nlohmann::json> Execute(const nlohmann::json& command);
  absl::Status Open(bool create, bool drop);
  absl::Status StartMetrics();
  absl::StatusOr<nlohmann::json> Load();
  absl::Status BulkLoad();
  absl::Status Dump(const std::string& file);
  absl::Status Prepare(uint64_t skip_values);
  absl::Status Start(int64_t at_ns, int repetition, const std::string& file);
  // A team whose threads open their sessions and then do `work`.
  std::unique_ptr<ThreadTeam> MakeTeam(ThreadTeam::Step work);
  // Reports progress until the team has finished.
  absl::Status Await(ThreadTeam* team);
  void PinThread(int thread) const;
  // With --route=owner: which keys are this compute server's now.
  void LearnOwnKeys();
  // Tells the coordinator; notices when it is gone.
  void ReportProgress();
  ClientOptions MakeClientOptions() const;

  const Plan plan_;
  const int index_;
  Channel channel_;
  std::unique_ptr<Keys> keys_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<MetricsEndpoint> metrics_;  // after its client
  std::unique_ptr<Tree> tree_;
  OwnKeys own_keys_;  // outlives the runners
  std::vector<std::unique_ptr<SessionRunner>> runners_;
  std::unique_ptr<ThreadTeam> team_;  // prepared, not yet started
  std::vector<PhaseStats> results_;   // by thread
  int64_t start_ns_ = 0;
  int repetition_ = 0;
  bool stop_ = false;                  // nobody is there to serve
  std::atomic<bool> end_work_{false};  // threads end what they are at
};

// The main function of a compute-server process: reads the plan from `plan_file`. Returns the exit
// code.
int RunComputeServerProcess(const std::string& plan_file, int index);

}  // namespace pando::bench
