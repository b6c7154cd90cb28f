#include "bench/chaos/coordinator.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/chaos/operation_log.h"
#include "bench/host/json_file.h"
#include "bench/host/memory_servers.h"
#include "bench/host/paths.h"
#include "bench/workload/keys.h"
#include "bench/workload/values.h"
#include "bench/ycsb/plan.h"
#include "bench/ycsb/tree_data.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace pando::chaos {
namespace {

using bench::Process;

constexpr int kGraceMs = 5'000;
constexpr int64_t kReadyTimeoutNs = 30 * kSecondNs;
// From the command to the common start: every compute server has it by then.
constexpr int64_t kStartDelayNs = 50 * kMillisecondNs;
// Longer than its sleeping clients need to notice, shorter than it hurries.
constexpr int64_t kHurryGoesAheadNs = 20 * kMillisecondNs;
constexpr int64_t kLookAgainNs = 50 * kMillisecondNs;

}  // namespace

Coordinator::~Coordinator() {
  client_.reset();
  servers_.clear();  // kills what is left, also what is stopped
  bench::Stop(&memory_servers_, kGraceMs);
}

absl::StatusOr<Outcome> Coordinator::Run() {
  PANDO_RETURN_IF_ERROR(StartMemoryServers(plan_, &memory_servers_, options_.stop_fd));
  PANDO_RETURN_IF_ERROR(Load());
  PANDO_RETURN_IF_ERROR(Dump(".initial"));
  PANDO_RETURN_IF_ERROR(bench::WriteJsonFile(plan_.folder + "/plan.json", PlanToJson(plan_)));
  servers_.resize(static_cast<size_t>(plan_.compute_servers));
  for (int i = 0; i < plan_.compute_servers; ++i) PANDO_RETURN_IF_ERROR(StartLife(i));
  for (int i = 0; i < plan_.compute_servers; ++i) PANDO_RETURN_IF_ERROR(AwaitReady(i));
  start_ns_ = RealClock().NowNs() + kStartDelayNs;
  end_ns_ = start_ns_ + static_cast<int64_t>(plan_.duration_s * kSecondNs);
  for (Server& server : servers_) {
    outcome_.lives[static_cast<size_t>(server.life)].start_ns = start_ns_;
    server.begun = true;
    PANDO_RETURN_IF_ERROR(server.channel->Send({{"start_ns", start_ns_}, {"end_ns", end_ns_}}));
  }
  leavings_ = MakeLeavings(plan_);
  std::reverse(leavings_.begin(), leavings_.end());
  PANDO_RETURN_IF_ERROR(PlayEvents(MakeSchedule(plan_)));
  PANDO_RETURN_IF_ERROR(SleepUntil(end_ns_));
  if (!leavings_.empty()) {
    outcome_.failures.push_back(absl::StrCat(leavings_.size(), " of ", plan_.leaves,
                                             " leaves did not come before the end of the load: "
                                             "take a longer --duration"));
    leavings_.clear();
  }
  PANDO_RETURN_IF_ERROR(FinishLives());
  PANDO_RETURN_IF_ERROR(CollectLogs());
  // Before the check: reading everything repairs what a killed process left half written.
  const absl::Status dumped = Dump(".final");
  if (absl::IsCancelled(dumped)) return dumped;
  outcome_.final_state_known = dumped.ok();
  if (!dumped.ok()) outcome_.failures.push_back(dumped.ToString());
  PANDO_RETURN_IF_ERROR(CheckTree());
  PANDO_RETURN_IF_ERROR(CheckLogs());
  return std::move(outcome_);
}

// --- Starting and stopping.

absl::Status StartMemoryServers(const Plan& plan, std::vector<Process>* servers, int stop_fd) {
  std::error_code error;
  std::filesystem::create_directory(plan.registry(), error);
  for (int i = 1; i <= plan.memory_servers; ++i) {
    Process::Options options;
    options.arguments = {
        bench::ProgramFolder() / "pando-memory", absl::StrCat("--registry=", plan.registry()),
        absl::StrCat("--server_id=", i),         absl::StrCat("--memory=", plan.region_bytes()),
        absl::StrCat("--fabric=", plan.fabric),  "--exit_with_parent"};
    for (std::string& flag : bench::RdmaFlags(plan.rdma)) {
      options.arguments.push_back(std::move(flag));
    }
    options.log_file = absl::StrCat(plan.folder, "/memory-", i, ".log");
    options.death_signal = SIGTERM;
    PANDO_ASSIGN_OR_RETURN(Process process, Process::Spawn(options));
    servers->push_back(std::move(process));
  }
  return bench::AwaitMemoryServers(servers, plan.registry(), stop_fd);
}

absl::Status Coordinator::Load() {
  PANDO_ASSIGN_OR_RETURN(client_, Client::Connect(plan_.client_options()));
  PANDO_ASSIGN_OR_RETURN(
      const std::unique_ptr<Tree> tree,
      client_->CreateTree(kTreeName, {.key_bytes_max = kKeyBytes,
                                      .value_bytes_max = plan_.value_bytes,
                                      .mode = plan_.owned() ? TreeOptions::Mode::kOwned
                                                            : TreeOptions::Mode::kShared,
                                      .narrow_reads = plan_.narrow_reads,
                                      .inline_value_bytes_max = plan_.inline_value_bytes}));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, client_->NewSession());
  PANDO_ASSIGN_OR_RETURN(const auto keys,
                         bench::Keys::Create({.key_bytes = kKeyBytes}, plan_.records));
  std::vector<std::string> sorted(plan_.records);
  for (uint64_t i = 0; i < plan_.records; ++i) keys->Make(i, &sorted[i]);
  std::sort(sorted.begin(), sorted.end());
  bench::Values values(plan_.value_bytes, plan_.writers() - 1, plan_.writers());
  size_t next = 0;
  return session->BulkLoad(*tree, [&](KeyValue* entry) {
    if (next == sorted.size()) return false;
    entry->key = std::move(sorted[next++]);
    values.Next(&entry->value);
    return true;
  });
}

absl::Status Coordinator::StartLife(int server) {
  Server& handle = servers_[static_cast<size_t>(server)];
  handle.life = static_cast<int>(outcome_.lives.size());
  handle.begun = false;
  outcome_.lives.push_back({.server = server});
  PANDO_ASSIGN_OR_RETURN(auto ends, bench::Channel::CreatePair());
  Process::Options options;
  options.arguments = {bench::ProgramFile(),
                       absl::StrCat("--plan_file=", plan_.folder, "/plan.json"),
                       absl::StrCat("--life=", handle.life)};
  options.channel_fd = ends.second.fd();
  options.log_file = absl::StrCat(plan_.folder, "/compute-", handle.life, ".log");
  PANDO_ASSIGN_OR_RETURN(handle.process, Process::Spawn(options));
  handle.channel.emplace(std::move(ends.first));
  return absl::OkStatus();
}

absl::Status Coordinator::AwaitReady(int server) {
  Server& handle = servers_[static_cast<size_t>(server)];
  const int64_t deadline_ns = RealClock().NowNs() + kReadyTimeoutNs;
  while (RealClock().NowNs() < deadline_ns) {
    PANDO_RETURN_IF_ERROR(SleepUntil(RealClock().NowNs() + kMillisecondNs));
    const auto message = handle.channel->Receive(0);
    if (message.ok() && message->has_value()) return absl::OkStatus();
  }
  return absl::DeadlineExceededError(
      absl::StrCat("compute server ", server, " does not get ready"));
}

absl::Status Coordinator::FinishLives() {
  const int64_t deadline_ns =
      end_ns_ + plan_.timeout_ms * kMillisecondNs + kGraceMs * kMillisecondNs;
  for (int i = 0; i < static_cast<int>(servers_.size()); ++i) {
    Server& server = servers_[static_cast<size_t>(i)];
    Life& life = outcome_.lives[static_cast<size_t>(server.life)];
    if (life.end_ns == 0) life.end_ns = end_ns_;
    if (server.coming) {  // it ends: nobody wants it any more
      server.channel.reset();
      server.coming = false;
    }
    while (!server.process->HasEnded() && RealClock().NowNs() < deadline_ns) {
      PANDO_RETURN_IF_ERROR(SleepUntil(RealClock().NowNs() + 5 * kMillisecondNs));
    }
    PANDO_RETURN_IF_ERROR(StepLeave(i));  // it may have left just before
    if (server.process->HasEnded() && server.process->ended_well()) continue;
    outcome_.failures.push_back(
        absl::StrCat("compute server life ", server.life, " ",
                     server.process->ending().value_or("did not end in time"), ": ",
                     bench::Tail(server.process->log_file())));
  }
  servers_.clear();
  return absl::OkStatus();
}

// --- Events.

absl::Status Coordinator::PlayEvents(const std::vector<Event>& events) {
  for (size_t i = 0; i < events.size(); ++i) {
    // Compute servers leave by themselves at the end: nobody is there to be killed.
    if (RealClock().NowNs() + kHurryGoesAheadNs >= end_ns_) {
      outcome_.failures.push_back(absl::StrCat(
          "restarts took so long that only ", i, " of ", events.size(),
          " kills and stops came before the end of the load: take a longer --duration"));
      return absl::OkStatus();
    }
    PANDO_RETURN_IF_ERROR(PlayEvent(events[i]));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::PlayEvent(const Event& event) {
  PANDO_RETURN_IF_ERROR(SleepUntil(start_ns_ + event.at_ns));
  if (event.kind != Event::Kind::kMemoryStop) {
    // One that comes is not there yet to be killed; one that leaves is.
    const Server& server = servers_[static_cast<size_t>(event.server)];
    while (!server.process.has_value() || server.coming) {
      PANDO_RETURN_IF_ERROR(SleepUntil(RealClock().NowNs() + kMillisecondNs));
    }
  }
  if (event.kind == Event::Kind::kKill) return PlayKill(event);
  if (event.kind == Event::Kind::kMemoryStop) {
    return PlayStop(event, &memory_servers_[static_cast<size_t>(event.server)]);
  }
  Server& server = servers_[static_cast<size_t>(event.server)];
  PANDO_RETURN_IF_ERROR(Hurry(&server));
  return PlayStop(event, &*server.process);
}

absl::Status Coordinator::Hurry(Server* server) {
  if (!server->at_work()) return absl::OkStatus();
  PANDO_RETURN_IF_ERROR(server->channel->Send({{"hurry", true}}));
  return SleepUntil(RealClock().NowNs() + kHurryGoesAheadNs);
}

absl::Status Coordinator::PlayKill(const Event& event) {
  Server& server = servers_[static_cast<size_t>(event.server)];
  Kill kill = {.server = event.server, .life = server.life, .used_bytes_before = UsedBytes()};
  PANDO_RETURN_IF_ERROR(Hurry(&server));
  kill.at_ns = RealClock().NowNs();
  server.process->Signal(SIGKILL);
  if (!server.process->WaitFor(kGraceMs)) return absl::InternalError("a killed process lives on");
  kill.dead_ns = RealClock().NowNs();
  Say(absl::StrFormat("killed compute server %d (life %d)", event.server, server.life));
  Life& life = outcome_.lives[static_cast<size_t>(server.life)];
  life.end_ns = server.leaving.has_value() ? life.end_ns : kill.at_ns;
  if (server.leaving.has_value()) outcome_.leaves[*server.leaving].ended_ns = kill.at_ns;
  server.leaving.reset();
  server.begun = server.coming = false;
  server.process.reset();
  PANDO_RETURN_IF_ERROR(SleepUntil(start_ns_ + event.end_ns));
  kill.used_bytes_after = UsedBytes();
  outcome_.kills.push_back(kill);
  PANDO_RETURN_IF_ERROR(StartLife(event.server));
  PANDO_RETURN_IF_ERROR(AwaitReady(event.server));
  return Begin(&server);
}

absl::Status Coordinator::Begin(Server* server) {
  const int64_t now_ns = RealClock().NowNs();
  outcome_.lives[static_cast<size_t>(server->life)].start_ns = now_ns;
  server->begun = true;
  return server->channel->Send({{"start_ns", now_ns}, {"end_ns", end_ns_}});
}

absl::Status Coordinator::StepLeaves() {
  const int64_t now_ns = RealClock().NowNs();
  if (!leavings_.empty() && now_ns >= start_ns_ + leavings_.back().at_ns &&
      now_ns + kHurryGoesAheadNs < end_ns_) {
    Server& server = servers_[static_cast<size_t>(leavings_.back().server)];
    const auto at_work = std::count_if(servers_.begin(), servers_.end(),
                                       [](const Server& other) { return other.at_work(); });
    if (server.at_work() && at_work > 1) {  // else in a moment
      PANDO_RETURN_IF_ERROR(server.channel->Send({{"leave", true}}));
      server.leaving = outcome_.leaves.size();
      outcome_.leaves.push_back(
          {.server = leavings_.back().server, .life = server.life, .at_ns = now_ns});
      outcome_.lives[static_cast<size_t>(server.life)].end_ns = now_ns;
      Say(absl::StrFormat("compute server %d leaves (life %d)", leavings_.back().server,
                          server.life));
      leavings_.pop_back();
    }
  }
  for (int i = 0; i < static_cast<int>(servers_.size()); ++i) {
    PANDO_RETURN_IF_ERROR(StepLeave(i));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::StepLeave(int number) {
  Server& server = servers_[static_cast<size_t>(number)];
  if (server.coming) {
    const auto ready = server.channel->Receive(0);
    if (!ready.ok() || !ready->has_value()) return absl::OkStatus();
    server.coming = false;
    return Begin(&server);
  }
  if (!server.leaving.has_value() || !server.process.has_value()) return absl::OkStatus();
  Leave& leave = outcome_.leaves[*server.leaving];
  const bool ended = server.process->HasEnded();  // before its last message is looked for
  if (leave.left_ns == 0) {
    const auto left = server.channel->Receive(0);
    if (left.ok() && left->has_value()) leave.left_ns = RealClock().NowNs();
  }
  if (!ended) return absl::OkStatus();
  leave.ended_ns = RealClock().NowNs();
  server.leaving.reset();
  server.begun = false;
  if (leave.ended_ns + kHurryGoesAheadNs >= end_ns_) return absl::OkStatus();
  server.process.reset();
  PANDO_RETURN_IF_ERROR(StartLife(number));
  server.coming = true;
  return absl::OkStatus();
}

absl::Status Coordinator::PlayStop(const Event& event, Process* process) {
  const bool memory = event.kind == Event::Kind::kMemoryStop;
  Stop stop = {.server = event.server, .memory = memory, .at_ns = RealClock().NowNs()};
  process->Signal(SIGSTOP);
  Say(absl::StrFormat("stopped %s server %d for %.1f s", memory ? "memory" : "compute",
                      event.server, static_cast<double>(event.end_ns - event.at_ns) / kSecondNs));
  const absl::Status slept = SleepUntil(start_ns_ + event.end_ns);
  process->Signal(SIGCONT);
  stop.end_ns = RealClock().NowNs();
  outcome_.stops.push_back(stop);
  return slept;
}

absl::Status Coordinator::SleepUntil(int64_t time_ns) {
  while (true) {
    PANDO_RETURN_IF_ERROR(LookAtProcesses());
    if (start_ns_ > 0 && !servers_.empty()) PANDO_RETURN_IF_ERROR(StepLeaves());
    const int64_t left_ns = time_ns - RealClock().NowNs();
    if (left_ns <= 0) return absl::OkStatus();
    pollfd stop = {options_.stop_fd, POLLIN, 0};
    const int64_t step_max_ms = plan_.leaves > 0 ? 5 : 100;
    const int64_t step_ms = std::clamp<int64_t>(left_ns / kMillisecondNs, 1, step_max_ms);
    if (poll(&stop, 1, static_cast<int>(step_ms)) > 0) {
      return absl::CancelledError("stopped by a signal");
    }
  }
}

absl::Status Coordinator::LookAtProcesses() {
  for (Server& server : servers_) {
    if (!server.process.has_value() || !server.process->HasEnded()) continue;
    if (server.process->ended_well()) continue;
    return absl::UnavailableError(
        absl::StrCat("a compute server ", bench::WhyEnded(*server.process)));
  }
  return bench::CheckMemoryServers(&memory_servers_);
}

uint64_t Coordinator::UsedBytes() {
  uint64_t bytes = 0;
  for (const ServerStatus& server : client_->Servers()) bytes += server.used_bytes;
  return bytes;
}

void Coordinator::Say(const std::string& what) const {
  if (!options_.progress) return;
  const double seconds = static_cast<double>(RealClock().NowNs() - start_ns_) / kSecondNs;
  std::fprintf(stderr, "%7.1f s  %s\n", seconds, what.c_str());
}

// --- Afterwards.

absl::Status Coordinator::Dump(const std::string& suffix) {
  PANDO_RETURN_IF_ERROR(SleepUntil(0));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Tree> tree, client_->OpenTree(kTreeName));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, client_->NewSession());
  return bench::DumpTree(session.get(), *tree, options_.history_file + suffix);
}

absl::Status Coordinator::CheckTree() {
  Say("checking the tree");
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Tree> tree, client_->OpenTree(kTreeName));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, client_->NewSession());
  // What the killed have left goes back now, not when the tree grows next.
  SweepResult swept;
  PANDO_RETURN_IF_ERROR(session->Sweep(*tree, &swept));
  PANDO_ASSIGN_OR_RETURN(tree_report_, session->Check(*tree, {.quiet_tree = true}));
  if (tree_report_.nodes.orphans > 0) {
    tree_report_.problems.push_back(
        absl::StrCat(tree_report_.nodes.orphans, " nodes are left behind a sweep"));
  }
  if (tree_report_.cells_unused > 0) {
    tree_report_.problems.push_back(
        absl::StrCat(tree_report_.cells_unused, " cells are left behind a sweep"));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::CheckLogs() {
  if (!plan_.owned()) return absl::OkStatus();
  const auto count_logs = [this] {
    uint64_t logs = 0;
    for (const ServerStatus& server : client_->Servers()) {
      for (const auto& [name, value] : server.counters) logs += name == "extents" ? value : 0;
    }
    return logs;
  };
  // Members look once a second; this process has the tree open meanwhile, and a log.
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Tree> tree, client_->OpenTree(kTreeName));
  const int64_t deadline_ns = RealClock().NowNs() + kGraceMs * kMillisecondNs;
  while (count_logs() > 1 && RealClock().NowNs() < deadline_ns) {
    PANDO_RETURN_IF_ERROR(SleepUntil(RealClock().NowNs() + kLookAgainNs));
  }
  if (const uint64_t logs = count_logs(); logs > 1) {
    outcome_.failures.push_back(
        absl::StrCat(logs - 1, " logs of compute servers that have ended are left"));
  }
  return absl::OkStatus();
}

absl::Status Coordinator::CollectLogs() {
  std::ofstream history(options_.history_file, std::ios::binary | std::ios::trunc);
  for (int life = 0; life < static_cast<int>(outcome_.lives.size()); ++life) {
    for (int thread = 0; thread < plan_.threads; ++thread) {
      const absl::Status read =
          ReadOperationLog(plan_.log_file(life, thread), [&](const LoggedOperation& operation) {
            if (operation.returned) {
              outcome_.operations.push_back(
                  {life, operation.call_ns, operation.return_ns, operation.status});
            } else {
              ++outcome_.lost;
            }
            if (!operation.operation.empty()) history << operation.operation << '\n';
          });
      // One that was still coming at the end of the load may not have come as far as its logs.
      const bool began = outcome_.lives[static_cast<size_t>(life)].start_ns != 0;
      if (began || !absl::IsNotFound(read)) PANDO_RETURN_IF_ERROR(read);
    }
  }
  history.close();
  return history ? absl::OkStatus()
                 : absl::UnavailableError(absl::StrCat("cannot write ", options_.history_file));
}

}  // namespace pando::chaos
