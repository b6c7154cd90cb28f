// Inside of SimWorld: event dispatch, endpoints, control calls. See sim_world.h.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/fabric/sim/core.h"
#include "common/fabric/sim/cpu_meter.h"
#include "common/fabric/sim/network.h"
#include "common/fabric/sim/peer_network.h"
#include "common/fabric/sim/sim_world.h"
#include "common/fabric/sim/timed_network.h"

namespace pando::sim {

class SimEndpoint;

// Destroys a living process's queue pairs to one server.
class SimFence final : public PeerFence {
 public:
  SimFence(SimWorld::Impl* world, uint32_t server) : world_(world), server_(server) {}
  bool CutOff(PeerId peer) override;

 private:
  SimWorld::Impl* const world_;
  const uint32_t server_;  // index
};

// A control call on its way. Ends when the caller was told and nothing of it is in the network.
struct CallInFlight {
  PendingCall* call = nullptr;  // nullptr: the caller has its answer, or is dead
  uint32_t endpoint = 0;
  uint32_t process = 0;
  uint32_t peer = 0;  // which of the process's connections it goes over
  int server = 0;
  int events_left = 0;   // on the agenda
  bool arrived = false;  // it is in the server's socket, at least
  std::string request;
  std::string reply;
  absl::Status status;
};

struct SimWorld::Impl {
  explicit Impl(const SimOptions& options) : core(options), network(&core), peers(&core) {}

  std::shared_ptr<Fabric> NewFabric(int server_index);
  bool Step();
  void Dispatch(const Event& event);
  // The endpoint an event is for, if its process is there to take it; else holds or drops the
  // event.
  SimEndpoint* Receiver(uint32_t endpoint, const Event& event);
  // Whether the process is there to take it; else holds the event, or not.
  bool MayRun(uint32_t process, const Event& event);
  // Whether the memory server is stopped; the event is kept for it then.
  bool IsHeld(uint32_t server, const Event& event);
  void ResumeServer(uint32_t server);
  void OnPeerEvent(const Event& event);

  int64_t CallDelay();  // one way
  void StartCall(uint32_t endpoint, uint32_t peer, uint32_t server, PendingCall* call);
  void OnCallRequest(const Event& event);
  void OnCallEnd(const Event& event);
  void DropCallEvent(uint32_t id);
  // Tells the callers that wait for a dead server; for answers over a connection that they have
  // given up.
  void FailCalls(uint32_t server_index);
  void FailCallsOver(uint32_t peer, uint32_t server_index);
  // Asks the handler when it wants to be called, and sees to it.
  void RunServerTimer(uint32_t server_index);
  void OnServerTimer(const Event& event);
  void OnComplete(const Event& event);
  void Kill(uint32_t process);
  void BeginDrain(uint32_t process);
  void SchedulePeerGone(uint32_t process);
  // connections.cpp: a server cuts a connection off; a process gives its connection up, and has
  // another, which that server knows as the returned peer.
  void CutOff(uint32_t peer, uint32_t server);
  void Disconnect(uint32_t process, uint32_t server);
  uint32_t ConnectAgain(uint32_t process, uint32_t server);
  void OnPeerLeft(const Event& event);
  // After a post: the queue pair may break in a moment.
  void MaybeBreak(uint32_t process, uint32_t queue_pair);
  void OnBreakSeen(const Event& event);
  void CloseFabric(uint32_t process);
  void CheckUntimed() const;

  Core core;
  Network network;
  std::unique_ptr<TimedNetwork> timed;  // instead of `network`
  PeerNetwork peers;
  bool in_event = false;
  size_t open_fabrics = 0;
  std::vector<SimEndpoint*> endpoints;                   // by id; nullptr: closed
  std::map<uint32_t, std::unique_ptr<SimFence>> fences;  // by server index
  std::map<uint32_t, CallInFlight> calls;                // by call id
  uint32_t next_call = 0;
  std::map<uint32_t, std::function<void()>> callbacks;
  uint32_t next_callback = 0;
};

class SimFabric final : public Fabric {
 public:
  SimFabric(SimWorld::Impl* world, uint32_t process);
  ~SimFabric() override;

  const Capabilities& capabilities() const override { return capabilities_; }
  std::vector<ServerId> servers() const override;
  uint64_t SpaceBytes(ServerId server, MemorySpace space) const override;
  absl::StatusOr<std::unique_ptr<Endpoint>> Connect(uint16_t compute_server,
                                                    uint32_t incarnation) override;
  absl::StatusOr<uint32_t> AddServer(const ServerLocation& location,
                                     const std::function<void()>& about_to_add) override;
  bool IsConnected(ServerId server) const override;
  void Disconnect(ServerId server) override;
  absl::StatusOr<std::unique_ptr<PeerPort>> OpenPeers(const PeerOptions& options) override {
    return world_->peers.OpenPort(process_, options);
  }

  uint32_t process() const { return process_; }
  // A server (its index) that it is, or was, connected to, which knows this connection as `peer`.
  struct Known {
    uint32_t server, peer;
  };
  // In the order in which they were added.
  std::span<const Known> known() const { return known_; }
  size_t first_count() const { return first_count_; }

 private:
  // Index of the latest life that it is connected to; -1: none.
  int Find(ServerId server) const;

  SimWorld::Impl* const world_;
  const uint32_t process_;
  std::vector<Known> known_;
  size_t first_count_ = 0;  // of known_: those that existed when it was made
  Capabilities capabilities_;
};

class SimEndpoint final : public Endpoint, public CpuCosts, public CpuMeter {
 public:
  SimEndpoint(SimWorld::Impl* world, const SimFabric* fabric);
  ~SimEndpoint() override;

  // Completions are events; what waits for a doorbell gets it.
  size_t Poll() override {
    RingAll();
    return 0;
  }
  size_t in_flight() const override { return in_flight_; }
  absl::StatusOr<LocalBuffer> AllocateBuffer(size_t bytes) override;
  void Wait(int64_t until_ns) override;
  void Wake() override;
  void WakeAt(int64_t ns) override;
  void set_runner(std::function<void()> runner) override { runner_ = std::move(runner); }
  void AdoptServers(uint32_t added) override;
  const Clock& clock() const override { return world_->core.processes[process_]->clock; }
  CpuCosts* cpu_costs() override { return world_->timed == nullptr ? nullptr : this; }
  uint64_t random_seed() override;

  uint32_t process() const { return process_; }
  uint32_t id() const { return id_; }
  // Its thread is stopped: events wait, in the order in which they came.
  void Pause() { paused_ = true; }
  std::vector<Event> Resume() {
    paused_ = false;
    return std::exchange(held_, {});
  }
  bool Holds(const Event& event) {
    if (paused_) held_.push_back(event);
    return paused_;
  }
  // Completions that died with the process, delivered as failures when its code is run to its end.
  void Abandon(Chain* chain) { abandoned_.push_back(chain); }
  void Abandon(PendingCall* call) { abandoned_calls_.push_back(call); }
  void FailAbandoned();
  void Finish(Chain* chain, absl::Status status);
  void Finish(PendingCall* call, absl::Status status, std::string reply);
  void OnRun(const Event& event);
  // Calls the runner; with a timing model when its thread has time, and with completions first.
  void RunThread();

  // --- With a timing model: what its thread can poll, and from when on.
  struct Completion {
    Chain* chain;
    absl::Status status;
    int64_t ready_ns;
  };
  void OnTimedCompletion(Completion completion);

 protected:
  void DoPost(Chain* chain) override;
  void DoCall(PendingCall* call) override;

 private:
  struct FreeAligned {
    void operator()(std::byte* data) const;
  };
  struct Link {
    ServerId id;
    uint32_t server;  // index
    uint32_t peer;
    uint32_t queue_pair;
  };
  // With a timing model: chains that wait for a doorbell.
  struct List {
    uint32_t queue_pair = 0;
    uint32_t verbs = 0;
    std::vector<Chain*> chains;
  };
  // To the latest life that it has taken up. Null: none.
  const Link* FindLink(ServerId server) const;
  void LinkTo(size_t count);  // the first of fabric_->known()
  void CallRunner();
  // With a timing model, as on verbs (verbs_endpoint.h): chains that are posted while others are
  // ready wait; they are rung for when one is posted with nobody else ready or they fill a list,
  // at the end of the turn, and when the endpoint is polled or waits.
  void PostTimed(uint32_t queue_pair, Chain* chain);
  void Ring(List* list);
  // Of as many lists as it takes.
  void Ring(uint32_t queue_pair, std::span<Chain* const> left);
  void RingAll();
  void ChargeOperation() override;
  void ChargeRecords(BusyPeriods* partition, size_t records) override;
  Spent spent() const override { return spent_; }
  enum RunCause : uint8_t { kWoken, kTimed, kPolled };
  void ScheduleRun(RunCause cause, int64_t ns);
  Process& owner() { return *world_->core.processes[process_]; }

  SimWorld::Impl* const world_;
  const SimFabric* const fabric_;
  const uint32_t process_;
  const uint32_t id_;
  std::vector<Link> links_;  // in the order of fabric_->known()
  std::vector<List> lists_;  // pooled: the first `unrung_` may have chains
  size_t unrung_ = 0;
  size_t in_flight_ = 0;
  // Earliest runner calls on the agenda. One by cause, because one who asked by WakeAt() need not
  // ask again after a Wake().
  int64_t next_run_ns_[3] = {kNeverNs, kNeverNs, kNeverNs};
  int64_t busy_until_ns_ = 0;  // its thread; with a timing model
  Spent spent_;                // of earlier turns, and of this one the waits
  std::deque<Completion> completions_;
  std::function<void()> runner_;
  bool paused_ = false;
  std::vector<Event> held_;
  std::vector<std::unique_ptr<std::byte, FreeAligned>> buffers_;
  std::vector<Chain*> abandoned_;
  std::vector<PendingCall*> abandoned_calls_;
};

}  // namespace pando::sim
