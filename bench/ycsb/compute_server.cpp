#include "bench/ycsb/compute_server.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/host/json_file.h"
#include "bench/host/process.h"
#include "bench/ycsb/tree_data.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/metrics/client_metrics.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

constexpr auto kProgressEvery = std::chrono::milliseconds(200);

Json Answer(const absl::StatusOr<Json>& result) {
  if (!result.ok()) return {{"error", result.status().ToString()}};
  Json answer = *result;
  answer["ok"] = true;
  return answer;
}

}  // namespace

ComputeServer::ComputeServer(Plan plan, int index, Channel channel)
    : plan_(std::move(plan)), index_(index), channel_(std::move(channel)) {}

ComputeServer::~ComputeServer() {
  end_work_ = stop_ = true;
  team_.reset();
  runners_.clear();
  tree_.reset();  // before its client
}

void ComputeServer::Serve() {
  while (!stop_) {
    const auto command = channel_.Receive(-1);
    if (!command.ok()) return;
    if (!command->has_value()) continue;
    if ((**command).value("do", "") == "stop") continue;  // of a run that has ended by itself
    if (!channel_.Send(Answer(Execute(**command))).ok()) return;
    if ((**command).value("do", "") == "quit") return;
  }
}

absl::StatusOr<Json> ComputeServer::Execute(const Json& command) {
  const std::string name = command.value("do", "");
  absl::Status status;
  if (name == "open") {
    status = Open(command.value("create", false), command.value("drop", false));
  } else if (name == "load") {
    return Load();
  } else if (name == "dump") {
    status = Dump(command.value("file", ""));
  } else if (name == "prepare") {
    status = Prepare(command.value("skip_values", uint64_t{0}));
  } else if (name == "start") {
    status = Start(command.value("at_ns", int64_t{0}), command.value("repetition", 0),
                   command.value("file", ""));
  } else if (name != "quit") {
    status = absl::InvalidArgumentError(absl::StrCat("unknown command '", name, "'"));
  }
  PANDO_RETURN_IF_ERROR(status);
  return Json::object();
}

ClientOptions ComputeServer::MakeClientOptions() const {
  ClientOptions options;
  options.registry = plan_.registry;
  options.fabric = plan_.fabric;
  options.rdma = plan_.rdma;
  options.secret_file = plan_.secret_file;
  options.memory_servers_min = plan_.memory_servers;
  options.connect_timeout_ms = 20'000;
  options.techniques = plan_.techniques;
  options.index_cache_bytes = plan_.index_cache_bytes;
  options.value_places_bytes = plan_.value_places_bytes;
  // Repairs need coroutines too; those of the workload never end.
  options.coroutines_per_session = plan_.coroutines + 16;
  options.handover_max = plan_.handover_max;
  options.combine_max = plan_.combine_max;
  options.operation_timeout_ms = plan_.timeout_ms;
  options.owner = plan_.routed();  // it gets a share of the keys
  options.hot_bytes = plan_.hot_bytes;
  options.log_bytes = plan_.log_bytes;
  options.service_threads = plan_.service_threads;
  options.flush_threads = plan_.flush_threads;
  options.ranges_min = plan_.ranges_min;
  options.dirty_percent = plan_.dirty_percent;
  options.lend_after_ms = plan_.lend_after_ms;
  options.seed = DeriveSeed(plan_.seed, 1'000'000 + static_cast<uint64_t>(index_));
  return options;
}

absl::Status ComputeServer::Open(bool create, bool drop) {
  PANDO_ASSIGN_OR_RETURN(keys_, Keys::Create(plan_.keys, plan_.records));
  if (client_ == nullptr) {
    PANDO_ASSIGN_OR_RETURN(client_, Client::Connect(MakeClientOptions()));
    PANDO_RETURN_IF_ERROR(StartMetrics());
  }
  if (drop) {
    const absl::Status dropped = client_->DropTree(plan_.tree);
    if (!dropped.ok() && !absl::IsNotFound(dropped)) return dropped;
  }
  if (create) {
    const TreeOptions options = {.key_bytes_max = plan_.keys.key_bytes,
                                 .value_bytes_max = plan_.value_bytes,
                                 .mode = plan_.tree_mode(),
                                 .narrow_reads = plan_.narrow_reads};
    PANDO_ASSIGN_OR_RETURN(tree_, client_->CreateTree(plan_.tree, options));
  } else {
    PANDO_ASSIGN_OR_RETURN(tree_, client_->OpenTree(plan_.tree));
    if (tree_->mode() != plan_.tree_mode()) {
      return absl::FailedPreconditionError(
          absl::StrCat("tree '", plan_.tree, "' is not ", plan_.mode, ": use the other --mode"));
    }
  }
  for (int i = 0; i < plan_.threads; ++i) {
    runners_.push_back(std::make_unique<SessionRunner>(plan_, *keys_, index_ * plan_.threads + i,
                                                       plan_.routed() ? &own_keys_ : nullptr));
  }
  return absl::OkStatus();
}

absl::Status ComputeServer::StartMetrics() {
  if (plan_.metrics_address.empty()) return absl::OkStatus();
  PANDO_ASSIGN_OR_RETURN(
      const std::string address,
      AddressWithOffset(plan_.metrics_address, index_ - plan_.compute_server_first));
  PANDO_ASSIGN_OR_RETURN(
      metrics_, MetricsEndpoint::Start(address, {"compute_server", absl::StrCat(index_)},
                                       [this] { return ClientMetrics(client_->Stats()); }));
  return absl::OkStatus();
}

absl::Status ComputeServer::BulkLoad() {
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, client_->NewSession());
  const absl::Status status =
      BulkLoadRecords(plan_, *keys_, session.get(), *tree_, [this](uint64_t loaded) {
        (void)channel_.Send({{"finished", loaded}});
      });
  if (!absl::IsFailedPrecondition(status)) return status;
  return Annotate(status, absl::StrCat("load tree '", plan_.tree,
                                       "' (is there data already? use --load=none to keep it, "
                                       "--load=put to add to it, --drop to start over, or another "
                                       "--tree)"));
}

absl::StatusOr<Json> ComputeServer::Load() {
  const int64_t start_ns = RealClock().NowNs();
  if (plan_.load == "bulk") {
    PANDO_RETURN_IF_ERROR(BulkLoad());
  } else {
    const auto team = MakeTeam([this](int thread) { return runners_[thread]->Load(end_work_); });
    PANDO_RETURN_IF_ERROR(team->WaitPrepared());
    team->Start();
    PANDO_RETURN_IF_ERROR(Await(team.get()));
  }
  PANDO_RETURN_IF_ERROR(client_->TreeStatus(*tree_));
  return Json{{"start_ns", start_ns}, {"end_ns", RealClock().NowNs()}};
}

absl::Status ComputeServer::Dump(const std::string& file) {
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Session> session, client_->NewSession());
  return DumpTree(session.get(), *tree_, file);
}

std::unique_ptr<ThreadTeam> ComputeServer::MakeTeam(ThreadTeam::Step work) {
  return std::make_unique<ThreadTeam>(
      plan_.threads,
      ThreadTeam::Steps{.prepare =
                            [this](int thread) {
                              PinThread(thread);
                              return runners_[thread]->Prepare(client_.get(), tree_.get());
                            },
                        .work = std::move(work),
                        .finish = [this](int thread) { return runners_[thread]->Finish(); }});
}

absl::Status ComputeServer::Await(ThreadTeam* team) {
  while (!team->WaitFinished(kProgressEvery)) ReportProgress();
  ReportProgress();
  return team->status();
}

absl::Status ComputeServer::Prepare(uint64_t skip_values) {
  if (tree_ == nullptr) return absl::FailedPreconditionError("no tree is open");
  LearnOwnKeys();
  for (const auto& runner : runners_) runner->SkipValues(skip_values);
  results_.assign(static_cast<size_t>(plan_.threads), PhaseStats());
  team_ = MakeTeam([this](int thread) {
    results_[thread] = runners_[thread]->Run(start_ns_, repetition_, end_work_);
    return absl::OkStatus();
  });
  return team_->WaitPrepared();
}

absl::Status ComputeServer::Start(int64_t at_ns, int repetition, const std::string& file) {
  if (team_ == nullptr) return absl::FailedPreconditionError("start without prepare");
  start_ns_ = at_ns;
  repetition_ = repetition;
  ClientStats before = client_->Stats();
  team_->Start();
  if (plan_.warmup_s > 0) {
    const auto warmup_end_ns = at_ns + static_cast<int64_t>(plan_.warmup_s * kSecondNs);
    const auto left = [&] { return std::chrono::nanoseconds(warmup_end_ns - RealClock().NowNs()); };
    // Until then and not longer: what comes later is counted.
    while (left().count() > 0 &&
           !team_->WaitFinished(std::min<std::chrono::nanoseconds>(kProgressEvery, left()))) {
      if (left().count() > 0) ReportProgress();
    }
    before = client_->Stats();
  }
  PANDO_RETURN_IF_ERROR(Await(team_.get()));
  team_.reset();
  const ClientStats after = client_->Stats();
  PhaseStats sum;
  for (const PhaseStats& result : results_) sum.Merge(result);
  sum.fabric = Difference(before.fabric, after.fabric);
  sum.tree = Difference(before.tree, after.tree);
  sum.owned = Difference(before.owned, after.owned);
  if (const absl::Status whole = client_->TreeStatus(*tree_); !whole.ok()) {
    sum.tree_error = std::string(whole.message());
  }
  return WriteJsonFile(file, StatsToRawJson(sum));
}

void ComputeServer::PinThread(int thread) const {
  if (!plan_.pin) return;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  int rank = (index_ * plan_.threads + thread) % std::max(1, CPU_COUNT(&allowed));
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed) || rank-- > 0) continue;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
    return;
  }
}

void ComputeServer::LearnOwnKeys() {
  if (!plan_.routed()) return;
  // A process that does not hear of it goes on with what it knew: others execute what is theirs.
  const auto ranges = client_->ListRanges(*tree_);
  if (ranges.ok()) own_keys_.Learn(*ranges, client_->compute_server_id());
}

void ComputeServer::ReportProgress() {
  LearnOwnKeys();
  uint64_t finished = 0;
  for (const auto& runner : runners_) finished += runner->finished();
  const auto message = channel_.Receive(0);  // an end of the work, or of the channel
  if (message.ok() && message->has_value()) end_work_ = true;
  if (!channel_.Send({{"finished", finished}}).ok() || !message.ok()) end_work_ = stop_ = true;
}

int RunComputeServerProcess(const std::string& plan_file, int index) {
  const absl::StatusOr<Json> json = ReadJsonFile(plan_file);
  absl::StatusOr<Plan> plan = json.ok() ? PlanFromJson(*json) : json.status();
  if (!plan.ok()) {
    std::fprintf(stderr, "compute server %d: %s: %s\n", index, plan_file.c_str(),
                 plan.status().ToString().c_str());
    return 1;
  }
  ComputeServer(*std::move(plan), index, Channel(Process::kChannelFd)).Serve();
  return 0;
}

}  // namespace pando::bench
