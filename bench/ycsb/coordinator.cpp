#include "bench/ycsb/coordinator.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/host/json_file.h"
#include "bench/host/memory_servers.h"
#include "bench/host/paths.h"
#include "bench/ycsb/compute_server.h"
#include "bench/ycsb/history_file.h"
#include "common/base/clock.h"
#include "common/base/progress_text.h"
#include "common/base/status.h"
#include "common/base/units.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

constexpr int kGraceMs = 5'000;
// From the command to the common start: every compute server has it by then.
constexpr int64_t kStartDelayNs = 50 * kMillisecondNs;
// Before an agreed start: the compute servers, whose sleep nothing ends, are told only then.
constexpr int64_t kStartNearNs = 500 * kMillisecondNs;
// What is waited for, as progress is shown.
constexpr char kConnect[] = "connect", kLoad[] = "load";

}  // namespace

Coordinator::Coordinator(Plan plan, Options options)
    : plan_(std::move(plan)), options_(std::move(options)) {}

Coordinator::~Coordinator() { Shutdown(/*orderly=*/false); }

absl::StatusOr<YcsbResult> Coordinator::Run() {
  YcsbResult result;
  PANDO_RETURN_IF_ERROR(StartMemoryServers());
  PANDO_RETURN_IF_ERROR(StartComputeServers());
  PANDO_RETURN_IF_ERROR(OpenTree());
  PANDO_ASSIGN_OR_RETURN(result.load, Load());
  if (plan_.history) {
    PANDO_RETURN_IF_ERROR(WriteState(".initial"));
    PANDO_RETURN_IF_ERROR(SkipValues());
  }
  const int repetitions = options_.load_only ? 0 : plan_.repeat;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    PANDO_ASSIGN_OR_RETURN(PhaseStats stats, RunOnce(repetition));
    result.runs.push_back(std::move(stats));
    if (result.runs.back().gave_up || stopped_) break;
  }
  if (plan_.history) {
    PANDO_RETURN_IF_ERROR(JoinHistory());
    // After a run with dead memory servers there may be none; what was measured is still worth
    // having.
    result.final_state = WriteState(".final");
    if (absl::IsCancelled(result.final_state)) return result.final_state;
  }
  result.stopped = stopped_;
  Shutdown(/*orderly=*/true);
  return result;
}

// --- Starting and stopping.

absl::Status Coordinator::StartMemoryServers() {
  const std::string own_registry = absl::StrCat(plan_.folder, "/registry");
  if (plan_.registry != own_registry) return absl::OkStatus();  // somebody else's servers
  std::error_code error;
  std::filesystem::create_directory(own_registry, error);
  const std::string program = ProgramFolder() / "pando-memory";
  for (int i = 1; i <= plan_.memory_servers; ++i) {
    Process::Options options;
    options.arguments = {program,
                         absl::StrCat("--registry=", plan_.registry),
                         absl::StrCat("--server_id=", i),
                         absl::StrCat("--memory=", plan_.region_bytes()),
                         absl::StrCat("--locks=", plan_.lock_words),
                         absl::StrCat("--fabric=", plan_.fabric),
                         absl::StrCat("--secret_file=", plan_.secret_file),
                         "--exit_with_parent"};
    for (std::string& flag : RdmaFlags(plan_.rdma)) options.arguments.push_back(std::move(flag));
    options.log_file = absl::StrCat(plan_.folder, "/memory-", i, ".log");
    options.death_signal = SIGTERM;
    PANDO_ASSIGN_OR_RETURN(Process process, Process::Spawn(options));
    memory_servers_.push_back(std::move(process));
  }
  return AwaitMemoryServers(&memory_servers_, plan_.registry, options_.stop_fd);
}

absl::Status Coordinator::StartComputeServers() {
  const std::string plan_file = absl::StrCat(plan_.folder, "/plan.json");
  PANDO_RETURN_IF_ERROR(WriteJsonFile(plan_file, PlanToJson(plan_)));
  for (int i = 0; i < plan_.compute_servers; ++i) {
    const int index = plan_.compute_server_first + i;
    PANDO_ASSIGN_OR_RETURN(auto ends, Channel::CreatePair());
    ComputeServerHandle& server = compute_servers_.emplace_back(std::move(ends.first));
    if (plan_.in_process) {
      server.thread = std::thread([this, index, channel = std::move(ends.second)]() mutable {
        ComputeServer(plan_, index, std::move(channel)).Serve();
      });
      continue;
    }
    Process::Options options;
    options.arguments = {ProgramFile(), absl::StrCat("--plan_file=", plan_file),
                         absl::StrCat("--compute_server=", index)};
    options.channel_fd = ends.second.fd();
    options.log_file = absl::StrCat(plan_.folder, "/compute-", i, ".log");
    PANDO_ASSIGN_OR_RETURN(server.process, Process::Spawn(options));
  }
  return absl::OkStatus();
}

void Coordinator::Shutdown(bool orderly) {
  if (orderly) (void)CommandAll({{"do", "quit"}});
  // The end of the channel makes those that still work stop and leave in order.
  for (ComputeServerHandle& server : compute_servers_) server.channel.Close();
  const int64_t deadline_ns = RealClock().NowNs() + kGraceMs * kMillisecondNs;
  for (ComputeServerHandle& server : compute_servers_) {
    const int64_t left_ms = (deadline_ns - RealClock().NowNs()) / kMillisecondNs;
    if (server.process.has_value()) server.process->WaitFor(std::max<int>(0, left_ms));
    if (server.thread.joinable()) server.thread.join();
  }
  compute_servers_.clear();  // kills what is left
  Stop(&memory_servers_, kGraceMs);
}

// --- Commands.

absl::Status Coordinator::Command(int server, const Json& command, const std::string& what) {
  auto handle = std::next(compute_servers_.begin(), server);
  handle->busy = true;
  if (!handle->channel.Send(command).ok()) return WhyGone(&*handle, server);
  return AwaitAnswers(what);
}

absl::Status Coordinator::CommandAll(const Json& command, const std::string& what) {
  int index = 0;
  for (ComputeServerHandle& server : compute_servers_) {
    server.busy = true;
    if (!server.channel.Send(command).ok()) return WhyGone(&server, index);
    ++index;
  }
  return AwaitAnswers(what);
}

absl::Status Coordinator::AwaitAnswers(const std::string& what,
                                       const std::function<absl::Status()>& on_stop) {
  const int64_t start_ns = RealClock().NowNs();
  int64_t next_line_ns = start_ns + kSecondNs;
  uint64_t finished_before = 0;
  for (ComputeServerHandle& server : compute_servers_) finished_before += server.finished;
  const uint64_t finished_at_start = finished_before;
  while (std::any_of(compute_servers_.begin(), compute_servers_.end(),
                     [](const ComputeServerHandle& server) { return server.busy; })) {
    std::vector<pollfd> ready = {{stopped_ ? -1 : options_.stop_fd, POLLIN, 0}};
    for (ComputeServerHandle& server : compute_servers_) {
      ready.push_back({server.channel.fd(), static_cast<short>(server.busy ? POLLIN : 0), 0});
    }
    const int64_t left_ms = (next_line_ns - RealClock().NowNs()) / kMillisecondNs;
    poll(ready.data(), ready.size(), std::clamp<int>(left_ms, 0, 1'000));
    if (ready[0].revents != 0 && !stopped_) {
      if (on_stop == nullptr) return absl::CancelledError("stopped by a signal");
      stopped_ = true;
      PANDO_RETURN_IF_ERROR(on_stop());
    }
    PANDO_RETURN_IF_ERROR(TakeMessages());
    // Later a run may go on without one. Who connects would wait for it.
    if (what == kConnect) PANDO_RETURN_IF_ERROR(CheckMemoryServers(&memory_servers_));
    if (RealClock().NowNs() < next_line_ns) continue;
    next_line_ns += kSecondNs;
    uint64_t finished = 0;
    for (ComputeServerHandle& server : compute_servers_) finished += server.finished;
    ShowProgress(what, start_ns, finished - finished_at_start, finished_before - finished_at_start);
    finished_before = finished;
  }
  if (what == kLoad) {
    uint64_t finished = 0;
    for (ComputeServerHandle& server : compute_servers_) finished += server.finished;
    ShowProgress(what, start_ns, finished - finished_at_start, 0);
    // A load counts its own records; runs begin at 0.
    for (ComputeServerHandle& server : compute_servers_) server.finished = 0;
  }
  return absl::OkStatus();
}

absl::Status Coordinator::TakeMessages() {
  int index = -1;
  for (ComputeServerHandle& server : compute_servers_) {
    ++index;
    while (server.busy) {
      auto message = server.channel.Receive(0);
      if (!message.ok()) return WhyGone(&server, index);
      if (!message->has_value()) break;
      Json& json = **message;
      if (json.contains("finished")) {
        server.finished = json["finished"].get<uint64_t>();
      } else if (json.contains("error")) {
        PANDO_RETURN_IF_ERROR(CheckMemoryServers(&memory_servers_));
        return absl::UnavailableError(
            absl::StrCat("compute server ", index, ": ", json["error"].get<std::string>()));
      } else {
        server.busy = false;
        server.answer = std::move(json);
      }
    }
  }
  return absl::OkStatus();
}

absl::Status Coordinator::WhyGone(ComputeServerHandle* server, int index) const {
  std::string why = "its thread has ended";
  if (server->process.has_value()) {
    why = server->process->WaitFor(1'000)
              ? WhyEnded(*server->process)
              : absl::StrCat("closed its channel\n", Tail(server->process->log_file()));
  }
  return absl::UnavailableError(absl::StrCat("compute server ", index, " ", why));
}

void Coordinator::ShowProgress(const std::string& what, int64_t start_ns, uint64_t finished,
                               uint64_t finished_before) const {
  if (!options_.progress || what.empty()) return;
  const double seconds = static_cast<double>(RealClock().NowNs() - start_ns) / kSecondNs;
  if (what == kLoad && finished > 0) {  // who loads wants to know when it ends
    const std::string text =
        ProgressText("loaded", finished, finished, plan_.initial_records(), seconds);
    std::fprintf(stderr, "%s\n", text.c_str());
    return;
  }
  const std::string line =
      finished == 0 ? absl::StrFormat("%-8s %5.0f s\n", what, seconds)
                    : absl::StrFormat("%-8s %5.0f s  %9s operations  %9s/s\n", what, seconds,
                                      FormatCount(static_cast<double>(finished)),
                                      FormatCount(static_cast<double>(finished - finished_before)));
  std::fputs(line.c_str(), stderr);
}

// --- The phases.

absl::Status Coordinator::OpenTree() {
  // A process that takes a share of a run finds the tree made.
  const bool create = plan_.load != "none" || (!plan_.workload.preload && !plan_.is_share());
  PANDO_RETURN_IF_ERROR(
      Command(0, {{"do", "open"}, {"create", create}, {"drop", plan_.drop}}, kConnect));
  for (int i = 1; i < plan_.compute_servers; ++i) {
    PANDO_RETURN_IF_ERROR(Command(i, {{"do", "open"}}, kConnect));
  }
  return absl::OkStatus();
}

absl::StatusOr<LoadResult> Coordinator::Load() {
  LoadResult result = {.method = plan_.load};
  if (plan_.load == "none" || plan_.initial_records() == 0) {
    result.method = "none";
    return result;
  }
  PANDO_RETURN_IF_ERROR(plan_.load == "bulk" ? Command(0, {{"do", "load"}}, kLoad)
                                             : CommandAll({{"do", "load"}}, kLoad));
  int64_t start_ns = INT64_MAX, end_ns = 0;
  for (const ComputeServerHandle& server : compute_servers_) {
    if (!server.answer.contains("start_ns")) continue;
    start_ns = std::min(start_ns, server.answer["start_ns"].get<int64_t>());
    end_ns = std::max(end_ns, server.answer["end_ns"].get<int64_t>());
  }
  result.records = plan_.initial_records();
  result.seconds = static_cast<double>(end_ns - start_ns) / kSecondNs;
  return result;
}

absl::StatusOr<int64_t> Coordinator::AwaitStart() const {
  if (options_.start_at_s == 0) return RealClock().NowNs() + kStartDelayNs;
  const auto start_unix_ns = static_cast<int64_t>(options_.start_at_s * kSecondNs);
  for (;;) {
    const int64_t left_ns = start_unix_ns - absl::GetCurrentTimeNanos();
    if (left_ns < kStartDelayNs) {
      return absl::DeadlineExceededError(
          absl::StrFormat("ready %.1f s after --start_at: give a later one",
                          static_cast<double>(kStartDelayNs - left_ns) / kSecondNs));
    }
    if (left_ns <= kStartNearNs) return RealClock().NowNs() + left_ns;
    pollfd stop = {options_.stop_fd, POLLIN, 0};
    poll(&stop, 1,
         static_cast<int>(std::min((left_ns - kStartNearNs) / kMillisecondNs + 1, int64_t{1'000})));
    if (stop.revents != 0) return absl::CancelledError("stopped by a signal");
  }
}

absl::StatusOr<PhaseStats> Coordinator::RunOnce(int repetition) {
  const std::string what =
      plan_.repeat == 1 ? "run" : absl::StrCat("run ", repetition + 1, "/", plan_.repeat);
  PANDO_RETURN_IF_ERROR(CommandAll({{"do", "prepare"}, {"skip_values", skip_values_}}));
  PANDO_ASSIGN_OR_RETURN(const int64_t at_ns, AwaitStart());
  std::vector<std::string> files;
  int index = 0;
  for (ComputeServerHandle& server : compute_servers_) {
    files.push_back(absl::StrCat(plan_.folder, "/result-", repetition, "-", index, ".json"));
    server.busy = true;
    const Json command = {
        {"do", "start"}, {"at_ns", at_ns}, {"repetition", repetition}, {"file", files.back()}};
    if (!server.channel.Send(command).ok()) return WhyGone(&server, index);
    ++index;
  }
  PANDO_RETURN_IF_ERROR(AwaitAnswers(what, [this] { return StopRun(); }));
  PhaseStats sum;
  for (const std::string& file : files) {
    std::ifstream stream(file);
    PANDO_ASSIGN_OR_RETURN(
        const PhaseStats stats,
        StatsFromRawJson(Json::parse(stream, nullptr, /*allow_exceptions=*/false)));
    sum.Merge(stats);
  }
  return sum;
}

absl::Status Coordinator::StopRun() {
  int index = 0;
  for (ComputeServerHandle& server : compute_servers_) {
    if (server.busy && !server.channel.Send({{"do", "stop"}}).ok()) return WhyGone(&server, index);
    ++index;
  }
  return absl::OkStatus();
}

absl::Status Coordinator::WriteState(const std::string& suffix) {
  const std::string file = std::filesystem::absolute(options_.history_file + suffix);
  return Command(0, {{"do", "dump"}, {"file", file}}, suffix.substr(1));
}

absl::Status Coordinator::SkipValues() {
  if (plan_.fresh_tree()) return absl::OkStatus();  // the load has values of its own
  PANDO_ASSIGN_OR_RETURN(skip_values_,
                         ValuesUsed(options_.history_file + ".initial", plan_.value_bytes));
  return CheckValues(plan_, skip_values_);
}

absl::Status Coordinator::JoinHistory() {
  std::vector<std::string> parts;
  for (int thread = 0; thread < plan_.total_threads(); ++thread) {  // a history has no shares
    parts.push_back(absl::StrCat(plan_.folder, "/history-", thread));
  }
  return JoinFiles(parts, options_.history_file);
}

}  // namespace pando::bench
