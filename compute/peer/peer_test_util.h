// Owners and those who ask them, on the simulator.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/epoch.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/fabric/sim/sim_world.h"
#include "compute/core/session_context.h"
#include "compute/peer/peer_client.h"
#include "compute/peer/peer_service.h"

namespace pando {

inline constexpr PeerIdentity kOwner{1, 7}, kAsker{2, 9};

inline std::vector<std::unique_ptr<SessionContext>> PeerTestSessions(Fabric& fabric, int count,
                                                                     EpochDomain* epochs,
                                                                     int coroutines_max = 2048) {
  std::vector<std::unique_ptr<SessionContext>> sessions;
  for (int i = 0; i < count; ++i) {
    auto endpoint = fabric.Connect(1, 1).value();
    const uint64_t seed = endpoint->random_seed();
    sessions.push_back(
        std::make_unique<SessionContext>(std::move(endpoint), epochs, coroutines_max, seed));
  }
  return sessions;
}

// A map that counts what is done. An upsert appends: "11" has been added to twice.
class FakeOwner final : public PeerExecutor {
 public:
  void Execute(OperationContext& context, const PeerRequest& request, PeerAnswer* answer) override {
    ++begun;
    ++begun_on[&context.session];
    if (delay) {
      const int64_t wait_ns = delay(request);
      if (wait_ns > 0) context.session.scheduler().SleepUntil(context.session.NowNs() + wait_ns);
    }
    ++executed;
    const std::string key(request.key);
    if (request.operation == PeerRequest::Operation::kScan) return Scan(request, answer);
    const auto found = entries.find(key);
    if (request.operation == PeerRequest::Operation::kGet) {
      if (found == entries.end()) {
        answer->status = absl::NotFoundError("");
      } else {
        answer->value = found->second;
      }
      return;
    }
    if (request.write == Write::Kind::kUpsert) {
      answer->value = entries[key] += request.value;
    } else if (request.write == Write::Kind::kReplace && found != entries.end() &&
               found->second != request.expected) {
      answer->status = ConditionFailedError("differs");
      answer->value = found->second;
    } else {
      entries[key] = request.value;
    }
  }

  std::map<std::string, std::string> entries;
  std::function<int64_t(const PeerRequest&)> delay;
  uint64_t begun = 0, executed = 0;
  std::map<const SessionContext*, uint64_t> begun_on;

 private:
  void Scan(const PeerRequest& request, PeerAnswer* answer) const {
    const auto behind = [](PeerCut cut, std::string_view key) {
      return cut.after ? key > cut.key : key >= cut.key;
    };
    std::vector<std::pair<std::string, std::string>> rows;
    const PeerCut low = request.down ? request.end : request.at;
    const PeerCut high = request.down ? request.at : request.end;
    for (const auto& entry : entries) {
      if (behind(low, entry.first) && !behind(high, entry.first)) rows.push_back(entry);
    }
    if (request.down) std::reverse(rows.begin(), rows.end());
    for (const auto& [key, value] : rows) {
      if (answer->row_count == request.rows_max || !answer->AddRow(key, value)) {
        return answer->SetReached({key, request.down});
      }
    }
  }
};

// A compute server with a service.
struct TestOwner {
  TestOwner(sim::SimWorld* world, PeerIdentity identity,
            PeerService::Options options = {.cheap_messages = true}, int session_count = 1)
      : fabric(world->NewFabric()), me(identity) {
    options.identity = me;
    options.event_driven = true;
    service = std::make_unique<PeerService>(
        options, PeerTestSessions(*fabric, session_count, &epochs), &owner);
    port = fabric->OpenPeers({.identity = me, .acceptor = service.get()}).value();
    address = port->address();
  }
  PeerAddress where() const { return {me, address}; }

  EpochDomain epochs;
  FakeOwner owner;
  std::shared_ptr<Fabric> fabric;
  const PeerIdentity me;
  std::unique_ptr<PeerService> service;
  std::unique_ptr<PeerPort> port;  // goes first
  std::string address;
};

// A compute server that asks.
struct TestAsker {
  TestAsker(sim::SimWorld* its_world, PeerIdentity me, int session_count = 1,
            bool cheap_messages = true)
      : world(*its_world),
        fabric(world.NewFabric()),
        sessions(PeerTestSessions(*fabric, session_count, &epochs)),
        port(fabric->OpenPeers({.identity = me}).value()),
        client(std::make_unique<PeerClient>(port.get(), me, &world.clock(), cheap_messages)) {}
  ~TestAsker() {
    for (auto& session : sessions) session->scheduler().Drain();
    port.reset();
    client.reset();
  }

  using Job = std::function<void(OperationContext&)>;
  // A coroutine of the session, with a deadline from when it starts.
  void Spawn(Job job, int64_t timeout_ns = kSecondNs, int session = 0) {
    SessionContext* const on = sessions.at(static_cast<size_t>(session)).get();
    on->scheduler().Spawn([on, timeout_ns, job = std::move(job)] {
      OperationContext context(on, on->NowNs() + timeout_ns);
      job(context);
    });
  }
  void Run(Job job, int64_t timeout_ns = kSecondNs) {
    Spawn(std::move(job), timeout_ns);
    Drain();
  }
  void Drain() {
    for (auto& session : sessions) session->scheduler().Drain();
  }
  uint64_t messages() const {
    return client->counters().messages_sent + client->counters().messages_received;
  }

  sim::SimWorld& world;
  EpochDomain epochs;
  std::shared_ptr<Fabric> fabric;
  std::vector<std::unique_ptr<SessionContext>> sessions;
  std::unique_ptr<PeerPort> port;
  std::unique_ptr<PeerClient> client;
};

inline PeerRequest GetRequest(std::string_view key) { return {.tree_id = 1, .key = key}; }
inline PeerRequest PutRequest(std::string_view key, std::string_view value) {
  return {.operation = PeerRequest::Operation::kWrite, .tree_id = 1, .key = key, .value = value};
}
inline PeerRequest AddRequest(std::string_view key) {
  return {.operation = PeerRequest::Operation::kWrite,
          .write = Write::Kind::kUpsert,
          .tree_id = 1,
          .key = key,
          .value = "1"};
}

}  // namespace pando
