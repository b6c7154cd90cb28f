#include "bench/sim/wrapped_slot.h"
#include "bench/perform/perform.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/history/checker.h"
#include "bench/sim/ending.h"
#include "bench/sim/one_client.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/fabric/sim/sim_world.h"
#include "compute/client/access.h"
#include "compute/client/connect.h"
#include "compute/client/session_impl.h"
#include "memory/memory_server.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;

constexpr int kWrappedKeys = 12;
constexpr int kWrites = 256;  // an entry version comes around
constexpr uint32_t kValueBytes = 100;
// Longer than all of the writes.
constexpr int64_t kStallNs = 400 * kMillisecondNs;

std::string WrappedKey(int i) { return absl::StrCat("k", i); }
// All over the same, so that a value of two writes is none that anybody stored.
std::string ValueOf(int write) {
  std::string value;
  while (value.size() < kValueBytes) absl::StrAppend(&value, 1000 + write, ".");
  return value;
}

class WrappedSlot {
 public:
  WrappedSlot(uint64_t seed, sim::DeliveryMode mode) : world_({.seed = seed, .mode = mode}) {}

  void Run(SimRunResult* result) {
    const absl::Status status = Play();
    if (!status.ok()) problems_.push_back(status.ToString());
    for (std::string& problem : problems_) result->problems.push_back(std::move(problem));
    result->trace_hash = result->trace_hash * 31 + world_.trace_hash();
    result->operations += operations_.size();
  }

 private:
  absl::Status Play();
  absl::Status Connect(OneClient* client);
  // Write number `write` of every key.
  absl::Status WriteAll(int write);
  void StartReads();

  sim::SimWorld world_;
  std::unique_ptr<memory::MemoryServer> server_;
  OneClient a_, b_;
  int reading_ = 0;
  history::State initial_;
  std::vector<Operation> operations_;
  std::vector<std::string> problems_;
};

absl::Status WrappedSlot::Connect(OneClient* client) {
  client->fabric = world_.NewFabric();
  PANDO_ASSIGN_OR_RETURN(client->client, ConnectOverFabric({}, client->fabric));
  PANDO_ASSIGN_OR_RETURN(
      client->tree,
      client->client->CreateTree("t", {.key_bytes_max = 8, .value_bytes_max = kValueBytes}));
  PANDO_ASSIGN_OR_RETURN(client->session, client->client->NewSession());
  return absl::OkStatus();
}

absl::Status WrappedSlot::WriteAll(int write) {
  for (int i = 0; i < kWrappedKeys; ++i) {
    Operation put;
    put.kind = OperationKind::kPut;
    put.client = kWrappedKeys;
    put.key = WrappedKey(i);
    put.value = ValueOf(write);
    put.call_ns = world_.clock().NowNs();
    PANDO_RETURN_IF_ERROR(a_.session->Put(*a_.tree, put.key, put.value));
    put.return_ns = world_.clock().NowNs();
    operations_.push_back(std::move(put));
  }
  return absl::OkStatus();
}

void WrappedSlot::StartReads() {
  world_.StallReads(*b_.fabric, kStallNs);
  for (int i = 0; i < kWrappedKeys; ++i) {
    ++reading_;
    b_.session->Spawn([this, i] {
      Operation get;
      get.client = i;
      get.kind = OperationKind::kGet;
      get.key = WrappedKey(i);
      get.call_ns = world_.clock().NowNs();
      const absl::Status status = Perform(*b_.session, *b_.tree, &get);
      if (!Conclude(status, &get)) problems_.push_back(absl::StrCat("get: ", status.ToString()));
      get.return_ns = world_.clock().NowNs();
      operations_.push_back(std::move(get));
      --reading_;
    });
  }
  ImplOf(*b_.session).scheduler().endpoint().Wake();
  world_.RunUntil(world_.clock().NowNs() + 100 * world_.options().delay_ns);
  PANDO_CHECK_EQ(reading_, kWrappedKeys);
  world_.StallReads(*b_.fabric, 0);  // what is read again is read at once
}

absl::Status WrappedSlot::Play() {
  const ServerMemory memory = world_.AddServer(kOnlyServer, 8 << 20, 64 << 10);
  const bool crc = world_.options().mode == sim::DeliveryMode::kWords;
  PANDO_ASSIGN_OR_RETURN(
      server_, memory::MemoryServer::Create(memory, {.needs_crc = crc, .clock = &world_.clock()}));
  world_.SetHandler(kOnlyServer, server_.get());
  PANDO_RETURN_IF_ERROR(Connect(&a_));
  PANDO_RETURN_IF_ERROR(WriteAll(0));
  PANDO_RETURN_IF_ERROR(Connect(&b_));
  PANDO_RETURN_IF_ERROR(b_.session->Get(*b_.tree, WrappedKey(0)).status());
  StartReads();
  const int64_t started_ns = world_.clock().NowNs();
  for (int write = 1; write <= kWrites; ++write) PANDO_RETURN_IF_ERROR(WriteAll(write));
  // Else the scenario shows nothing.
  PANDO_CHECK(world_.clock().NowNs() < started_ns + kStallNs);
  while (reading_ > 0 && world_.Step()) {
  }
  if (reading_ > 0) problems_.emplace_back("a read never ends");
  const history::CheckResult checked = history::CheckHistory(operations_, &initial_);
  problems_.insert(problems_.end(), checked.violations.begin(), checked.violations.end());
  return absl::OkStatus();
}

}  // namespace

SimRunResult RunWrappedSlot(uint64_t seed) {
  SimRunResult result;
  WrappedSlot(DeriveSeed(seed, 1), sim::DeliveryMode::kLines).Run(&result);
  WrappedSlot(DeriveSeed(seed, 2), sim::DeliveryMode::kWords).Run(&result);
  return result;
}

}  // namespace pando
