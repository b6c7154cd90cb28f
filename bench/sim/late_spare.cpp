#include "bench/sim/late_spare.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/sim/one_client.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/sim/sim_world.h"
#include "compute/check/tree_check.h"
#include "compute/client/access.h"
#include "compute/client/connect.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "memory/memory_server.h"

namespace pando {
namespace {

class LateSpareWorld {
 public:
  explicit LateSpareWorld(const LateSpare& options)
      : options_(options),
        world_({.seed = options.seed,
                .mode = sim::DeliveryMode::kLines,
                .break_late_ns = options.late_ns,
                // Nothing is late any more once the server has destroyed its side.
                .reopen_ns = std::max(options.late_ns, 500 * kMicrosecondNs)}) {}

  // When the put ends that nothing happens to.
  absl::StatusOr<int64_t> EndOfPut() {
    PANDO_RETURN_IF_ERROR(Start());
    PANDO_RETURN_IF_ERROR(PutBrokenAt(kNeverNs));
    return world_.clock().NowNs();
  }

  LateSpareResult Run(int64_t break_ns) {
    const absl::Status status = Play(break_ns);
    if (!status.ok()) result_.problems.push_back(status.ToString());
    return std::move(result_);
  }

 private:
  static constexpr uint32_t kChunkBytes = 64 << 10;
  static constexpr int kSlots = 42;             // of a leaf: so many keys fill it
  static constexpr int kStep = 10, kKey = 205;  // keys that are there, and the one that A puts
  static constexpr int kReusePuts = 12;
  static constexpr int64_t kOperationTimeoutMs = 50;
  static std::string KeyOfNumber(int i) {
    char key[16];
    std::snprintf(key, sizeof(key), "k%05d", i);
    return key;
  }

  absl::Status Play(int64_t break_ns);
  absl::Status Start();
  absl::Status Connect(OneClient* client);
  absl::Status PutBrokenAt(int64_t break_ns);
  void Check();
  absl::Status Sweep();

  const LateSpare options_;
  sim::SimWorld world_;
  std::unique_ptr<memory::MemoryServer> servers_[2];
  OneClient a_, c_;
  CatalogEntry entry_;
  std::set<std::string> keys_;  // acknowledged
  LateSpareResult result_;
};

absl::Status LateSpareWorld::Connect(OneClient* client) {
  client->fabric = world_.NewFabric();
  PANDO_ASSIGN_OR_RETURN(client->client, ConnectOverFabric({}, client->fabric));
  PANDO_ASSIGN_OR_RETURN(client->tree, client->client->CreateTree("t", {}));
  PANDO_ASSIGN_OR_RETURN(client->session, client->client->NewSession());
  return absl::OkStatus();
}

// The second server has more memory, so that spare nodes come from there.
absl::Status LateSpareWorld::Start() {
  for (const ServerId id : {ServerId{1}, ServerId{2}}) {
    const ServerMemory memory =
        world_.AddServer(id, id == 1 ? 4 << 20 : 32 << 20, uint64_t{kChunkBytes});
    PANDO_ASSIGN_OR_RETURN(servers_[id - 1],
                           memory::MemoryServer::Create(memory, {.server_id = id,
                                                                 .is_catalog = id == 1,
                                                                 .chunk_bytes = kChunkBytes,
                                                                 .clock = &world_.clock()}));
    world_.SetHandler(id, servers_[id - 1].get());
  }
  PANDO_RETURN_IF_ERROR(Connect(&a_));
  PANDO_RETURN_IF_ERROR(Connect(&c_));
  entry_ = ImplOf(*c_.tree).context().entry;
  for (int i = 0; i < kSlots; ++i) {
    PANDO_RETURN_IF_ERROR(c_.session->Put(*c_.tree, KeyOfNumber(kStep * i), "v"));
    keys_.insert(KeyOfNumber(kStep * i));
  }
  return absl::OkStatus();
}

absl::Status LateSpareWorld::PutBrokenAt(int64_t break_ns) {
  absl::Status put;
  bool done = false, broken = false;
  a_.session->Spawn([&] {
    put = a_.session->Put(*a_.tree, KeyOfNumber(kKey), "ghost");
    done = true;
  });
  ImplOf(*a_.session).scheduler().endpoint().Wake();
  while (!done && world_.Step()) {
    if (broken || world_.clock().NowNs() < break_ns) continue;
    world_.BreakQueuePairs(*a_.fabric, 2);
    broken = true;
  }
  result_.acknowledged = put.ok();
  result_.refused = !put.ok() && !IsOutcomeUnknown(put);
  if (result_.acknowledged) keys_.insert(KeyOfNumber(kKey));
  return done ? absl::OkStatus() : absl::InternalError("the put does not end");
}

void LateSpareWorld::Check() {
  uint64_t lost = 0;
  std::string example;
  const auto get = [this](const std::string& key) {
    return c_.session->Get(*c_.tree, key, {.timeout_ms = kOperationTimeoutMs}).status();
  };
  for (const std::string& key : keys_) {
    const absl::Status found = get(key);
    if (!found.ok() && lost++ == 0) example = absl::StrCat(key, ": ", found.ToString());
  }
  if (lost > 0) {
    result_.problems.push_back(
        absl::StrCat(lost, " acknowledged keys cannot be read, e.g. ", example));
  }
  if (result_.refused && !absl::IsNotFound(get(KeyOfNumber(kKey)))) {
    result_.problems.emplace_back("the put that was refused without effect has one");
  }
  const TreeCheckResult tree =
      CheckTree(entry_, {}, [this](RemoteAddress from, std::span<std::byte> into) {
        std::memcpy(into.data(), world_.Memory(from.server()).main.data() + from.offset(),
                    into.size());
        return absl::OkStatus();
      });
  result_.problems.insert(result_.problems.end(), tree.problems.begin(), tree.problems.end());
}

absl::Status LateSpareWorld::Play(int64_t break_ns) {
  PANDO_RETURN_IF_ERROR(Start());
  PANDO_RETURN_IF_ERROR(PutBrokenAt(break_ns));
  a_.tree.reset();
  for (int i = 0; i < kReusePuts; ++i) {
    const std::string key = KeyOfNumber(kStep * kSlots - kStep + 1 + i);
    const absl::Status put = c_.session->Put(*c_.tree, key, "c");
    if (put.ok()) keys_.insert(key);
    if (!put.ok()) result_.problems.push_back(absl::StrCat("put of ", key, ": ", put.ToString()));
  }
  world_.RunUntil(world_.clock().NowNs() + 5 * kMillisecondNs + options_.late_ns);
  result_.late = world_.stats().verbs_after_break > 0;
  Check();
  return Sweep();
}

// Nothing of what A held is lost either.
absl::Status LateSpareWorld::Sweep() {
  a_.session.reset();
  a_.client.reset();
  SweepResult swept;
  PANDO_RETURN_IF_ERROR(c_.session->Sweep(*c_.tree, &swept));
  for (const auto& server : servers_) {
    for (const auto& [name, value] : server->Counters()) {
      if (name == "nodes_orphan" && value > 0) {
        result_.problems.push_back(absl::StrCat(value, " nodes stay orphans"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

LateSpareResult PlayLateSpare(const LateSpare& options) {
  const absl::StatusOr<int64_t> end_ns = LateSpareWorld(options).EndOfPut();
  if (!end_ns.ok()) return {.problems = {end_ns.status().ToString()}};
  return LateSpareWorld(options).Run(*end_ns - options.break_before_end_ns);
}

SimRunResult RunLateSpare(uint64_t seed) {
  constexpr int64_t kStepNs = 200;
  SimRunResult run;
  for (int64_t at_ns = 0; at_ns <= kLateSpareNs; at_ns += kStepNs) {
    const LateSpareResult trial = PlayLateSpare({.seed = seed * 1000 + run.operations,
                                                 .break_before_end_ns = at_ns,
                                                 .late_ns = 5 * kMillisecondNs});
    ++run.operations;
    run.refused += trial.refused ? 1 : 0;
    run.sim.verbs_after_break += trial.late ? 1 : 0;
    for (const std::string& problem : trial.problems) {
      run.problems.push_back(absl::StrCat("broken ", at_ns, " ns before its end: ", problem));
    }
  }
  return run;
}

}  // namespace pando
