#include "bench/chaos/compute_server.h"

#include <sys/prctl.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "bench/chaos/operation_log.h"
#include "bench/chaos/plan.h"
#include "bench/chaos/upserts.h"
#include "bench/host/channel.h"
#include "bench/host/json_file.h"
#include "bench/host/process.h"
#include "bench/perform/perform.h"
#include "bench/workload/distribution.h"
#include "bench/workload/keys.h"
#include "bench/workload/values.h"
#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "pando/client.h"

namespace pando::chaos {
namespace {

using history::Operation;
using history::OperationKind;

constexpr size_t kScanLimitMax = 20;
// This share of a client's turns is a call of many writes, of up to so many.
constexpr double kManyShare = 0.05;
constexpr uint64_t kManyMax = 8;
// It goes back to its rate after this long: it was stopped, not killed.
constexpr int64_t kHurryNs = 50 * kMillisecondNs;
constexpr std::chrono::milliseconds kAfterLeaving(100);
// Keys beyond those loaded, so that inserts find free ones and leaves split.
constexpr uint64_t kKeysARecord = 2;

// What the coordinator wants; written by the main thread.
struct Orders {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  std::atomic<int64_t> hurry_until_ns{0};
  std::atomic<bool> stop{false};
};

// One thread with a session; every coroutine is a client of its own in the history.
class Worker {
 public:
  Worker(const Plan& plan, const bench::Keys& keys, int life, int thread)
      : plan_(plan),
        keys_(keys),
        first_client_((life * plan.threads + thread) * plan.coroutines),
        random_(DeriveSeed(plan.seed, static_cast<uint64_t>(first_client_) + 1)),
        distribution_(bench::Distribution::Create({.name = "zipfian", .theta = 0.9},
                                                  plan.records * kKeysARecord)),
        spread_(plan.records * kKeysARecord) {}

  absl::Status Prepare(Client* client, const Tree* tree, const std::string& log_file) {
    tree_ = tree;
    prctl(PR_SET_TIMERSLACK, 1);
    PANDO_ASSIGN_OR_RETURN(session_, client->NewSession());
    PANDO_ASSIGN_OR_RETURN(log_, OperationLog::Create(log_file));
    return absl::OkStatus();
  }

  absl::Status Run(const Orders& orders) {
    next_ns_ = orders.start_ns + NextGap();
    for (int i = 0; i < plan_.coroutines; ++i) {
      session_->Spawn([this, i, &orders] { RunClient(first_client_ + i, orders); });
    }
    session_->Run();
    session_.reset();
    return status_;
  }

 private:
  // Arrivals are a Poisson process.
  int64_t NextGap() {
    const double mean_ns = kSecondNs / plan_.rate * plan_.compute_servers * plan_.threads;
    return static_cast<int64_t>(-std::log(1 - random_.NextDouble()) * mean_ns);
  }
  void RunClient(int client, const Orders& orders);
  Operation Choose(int client, bool write, bench::Values* values);
  // Of an operation that has ended, and what was read filled in.
  void Learn(const absl::Status& status, Operation* operation);
  void RunOne(int client, bool write, bench::Values* values);
  void RunMany(int client, bench::Values* values);

  const Plan& plan_;
  const bench::Keys& keys_;
  const int first_client_;
  Random random_;
  const std::unique_ptr<bench::Distribution> distribution_;
  const bench::Scramble spread_;
  const Tree* tree_ = nullptr;
  std::unique_ptr<Session> session_;
  std::unique_ptr<OperationLog> log_;
  std::map<std::string, std::string> seen_;  // what keys held, as far as this worker knows
  int64_t next_ns_ = 0;
  uint64_t operations_ = 0;
  absl::Status status_;
};

void Worker::RunClient(int client, const Orders& orders) {
  bench::Values values(plan_.value_bytes, static_cast<uint64_t>(client), plan_.writers());
  while (!orders.stop && status_.ok()) {
    const bool hurry = RealClock().NowNs() < orders.hurry_until_ns;
    if (!hurry) {
      const int64_t due_ns = next_ns_;
      if (due_ns >= orders.end_ns) return;
      next_ns_ += NextGap();
      if (due_ns > RealClock().NowNs()) session_->SleepUntil(due_ns);
    }
    if (orders.stop || RealClock().NowNs() >= orders.end_ns) return;
    if (random_.Chance(kManyShare)) {
      RunMany(client, &values);
    } else {
      RunOne(client, hurry, &values);
    }
  }
}

Operation Worker::Choose(int client, bool write, bench::Values* values) {
  struct Share {
    OperationKind kind;
    uint64_t percent;
  };
  constexpr uint64_t kReadPercent = 45;
  constexpr Share kShares[] = {
      {OperationKind::kGet, 40},    {OperationKind::kScan, 5},    {OperationKind::kPut, 14},
      {OperationKind::kInsert, 10}, {OperationKind::kDelete, 11}, {OperationKind::kUpdate, 5},
      {OperationKind::kReplace, 5}, {OperationKind::kEraseIf, 2}, {OperationKind::kUpsert, 8}};
  Operation operation;
  operation.client = client;
  uint64_t dice = write ? kReadPercent + random_.Uniform(100 - kReadPercent) : random_.Uniform(100);
  for (const Share& share : kShares) {
    operation.kind = share.kind;
    if (dice < share.percent) break;
    dice -= share.percent;
  }
  keys_.Make(spread_(distribution_->Next(&random_)), &operation.key);
  if (operation.kind == OperationKind::kScan) {
    operation.limit = 1 + random_.Uniform(kScanLimitMax);
  } else if (operation.kind != OperationKind::kGet && operation.kind != OperationKind::kDelete &&
             operation.kind != OperationKind::kEraseIf) {
    const bool is_upsert = operation.kind == OperationKind::kUpsert;
    values->Next(is_upsert ? &operation.operand : &operation.value);
    // The end is what differs.
    if (is_upsert) operation.operand.erase(0, operation.operand.size() - kNumberBytes);
  }
  if (operation.kind == OperationKind::kReplace || operation.kind == OperationKind::kEraseIf) {
    // Right, unless somebody else was quicker.
    operation.expected = seen_[operation.key];
  }
  return operation;
}

void Worker::Learn(const absl::Status& status, Operation* operation) {
  operation->found =
      operation->kind == OperationKind::kInsert ? absl::IsAlreadyExists(status) : status.ok();
  const std::string& last = operation->actual.has_value() ? *operation->actual : operation->value;
  if (!last.empty() && operation->kind != OperationKind::kScan) seen_[operation->key] = last;
}

void Worker::RunOne(int client, bool write, bench::Values* values) {
  Operation operation = Choose(client, write, values);
  const uint64_t number = operations_++;
  operation.call_ns = RealClock().NowNs();
  absl::Status logged = log_->Called(number, operation);
  if (logged.ok()) {
    const absl::Status status = Perform(*session_, *tree_, &operation);
    Learn(status, &operation);
    logged = log_->Returned(number, status, RealClock().NowNs(), std::move(operation));
  }
  if (!logged.ok()) status_ = logged;
}

void Worker::RunMany(int client, bench::Values* values) {
  std::vector<Operation> operations(1 + random_.Uniform(kManyMax));
  const uint64_t first = operations_;
  operations_ += operations.size();
  for (size_t i = 0; i < operations.size() && status_.ok(); ++i) {
    operations[i] = Choose(client, /*write=*/true, values);
    operations[i].call_ns = RealClock().NowNs();
    status_ = log_->Called(first + i, operations[i]);
  }
  if (!status_.ok()) return;
  const std::vector<absl::Status> results = PerformMany(*session_, *tree_, operations);
  const int64_t now_ns = RealClock().NowNs();
  for (size_t i = 0; i < operations.size() && status_.ok(); ++i) {
    Learn(results[i], &operations[i]);
    status_ = log_->Returned(first + i, results[i], now_ns, std::move(operations[i]));
  }
}

// Whoever was to get a range may be killed or stopped: again then.
void LeaveUnderLoad(Client* client, const Orders& orders, bench::Channel* channel) {
  while (RealClock().NowNs() < orders.end_ns) {
    const absl::Status left = client->Leave(kLeaveMs);
    if (left.ok()) {
      (void)channel->Send({{"left", true}});
      // Its operations are others' to execute now.
      std::this_thread::sleep_for(kAfterLeaving);
      break;
    }
    std::fprintf(stderr, "leaving: %s\n", left.ToString().c_str());
  }
}

absl::Status Serve(const Plan& plan, int life, bench::Channel* channel) {
  PANDO_ASSIGN_OR_RETURN(const auto keys,
                         bench::Keys::Create({.key_bytes = kKeyBytes}, plan.records));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client,
                         Client::Connect(plan.client_options()));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Tree> tree, client->OpenTree(kTreeName));
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < plan.threads; ++i) {
    workers.push_back(std::make_unique<Worker>(plan, *keys, life, i));
    PANDO_RETURN_IF_ERROR(
        workers.back()->Prepare(client.get(), tree.get(), plan.log_file(life, i)));
  }
  // The load may be over before it has come: nobody wants it any more then.
  if (!channel->Send({{"ready", true}}).ok()) return absl::OkStatus();
  auto command = channel->Receive(-1);
  if (!command.ok() || !command->has_value()) return absl::OkStatus();
  Orders orders;
  orders.start_ns = (**command).value("start_ns", int64_t{0});
  orders.end_ns = (**command).value("end_ns", int64_t{0});

  std::atomic<int> running{plan.threads};
  std::vector<absl::Status> statuses(workers.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] {
      statuses[i] = workers[i]->Run(orders);
      --running;
    });
  }
  while (running > 0 && !orders.stop) {
    const auto message = channel->Receive(100);
    if (!message.ok()) orders.stop = true;  // the coordinator is gone
    if (!message.ok() || !message->has_value()) continue;
    if ((**message).value("leave", false)) {
      LeaveUnderLoad(client.get(), orders, channel);
      orders.stop = true;
    } else {
      orders.hurry_until_ns = RealClock().NowNs() + kHurryNs;
    }
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) PANDO_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace

int RunComputeServerProcess(const std::string& plan_file, int life) {
  const absl::StatusOr<nlohmann::json> json = bench::ReadJsonFile(plan_file);
  const absl::StatusOr<Plan> plan = json.ok() ? PlanFromJson(*json) : json.status();
  bench::Channel channel(bench::Process::kChannelFd);
  const absl::Status status = !plan.ok()          ? plan.status()
                              : plan->upserts > 0 ? ServeUpserts(*plan, life)
                                                  : Serve(*plan, life, &channel);
  if (status.ok()) return 0;
  std::fprintf(stderr, "life %d: %s\n", life, status.ToString().c_str());
  return 1;
}

}  // namespace pando::chaos
