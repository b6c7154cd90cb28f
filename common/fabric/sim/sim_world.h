// The simulated fabric: memory servers and compute servers in one thread, on virtual time, from one
// seed.
//
//   sim::SimWorld world({.seed = 7});
//   ServerMemory memory = world.AddServer(1, 64 << 20, 256 << 10);
//   world.SetHandler(1, &memory_server);
//   std::shared_ptr<Fabric> fabric = world.NewFabric();   // one per compute server, so that it can
//   be killed
//   ... clients on it: their blocking calls drive the world; coroutines run when world.Step() says
//   so
//
// It sits below the scheduler: a completion is an event, then the endpoint's runner is called. Time
// moves only from event to event. Code outside the event loop drives the world by Step() or
// Endpoint::Wait().
//
// Thread safety: none; a world and everything on it belong to one thread (several worlds may run
// side by side). Invariants:
//   1. The same options and the same calls in the same order give the same run (trace_hash()).
//   2. Runners, handlers and callbacks are called from Step() only, never from inside one another.
//   3. Whatever the fabric contract leaves open happens in some order, for some seed (network.h,
//      delivery.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "common/base/clock.h"
#include "common/fabric/fabric.h"
#include "common/fabric/server.h"
#include "common/fabric/sim/sim_options.h"

namespace pando::sim {

class SimWorld {
 public:
  explicit SimWorld(const SimOptions& options);
  // Fabrics and their endpoints must be gone (CHECKed).
  ~SimWorld();
  SimWorld(const SimWorld&) = delete;
  SimWorld& operator=(const SimWorld&) = delete;

  // Sparse zero memory: a server more, or another life of one that is dead. A fabric knows the
  // servers that existed when it was made, and those that are added to it (Fabric::AddServer());
  // also one that it was disconnected from, which takes it for another peer then.
  ServerMemory AddServer(ServerId id, uint64_t main_bytes, uint64_t lock_bytes);
  // Must outlive the world or be replaced by nullptr (calls are then Unavailable).
  void SetHandler(ServerId id, ControlHandler* handler);
  ServerMemory Memory(ServerId id) const;
  // What the server has for the time; as long-lived as the world.
  const Clock& ServerClock(ServerId id) const;
  // What the server's handler cuts living clients off with; as long-lived as the world.
  PeerFence* Fence(ServerId id);

  std::shared_ptr<Fabric> NewFabric();
  // A compute server on the host of a memory server: they share its NIC (SimOptions::nic).
  std::shared_ptr<Fabric> NewFabricOnHostOf(ServerId id);

  // kill -9 of a compute server, between two packets: its events stop, a part of what it had posted
  // is still executed, each WRITE whole or not at all; the servers hear of it when that is over.
  // What is posted on it afterwards fails at once with Unavailable. Not from its own code.
  //
  // Its coroutines are still there. To get rid of them run the sessions to their end from outside:
  // the first Endpoint::Wait() on a killed fabric completes its chains with Unavailable and lets
  // its runners go again.
  void KillFabric(const Fabric& fabric);
  // So many more WRITEs and atomics of this compute server start, then none. Once one has been held
  // back, PacketsSpent(): killed now, it dies exactly between two packets.
  void LimitPackets(const Fabric& fabric, uint64_t packets);
  bool PacketsSpent(const Fabric& fabric) const;
  bool IsKilled(const Fabric& fabric) const;
  // Something that it has posted may still be executed. Not with SimOptions::nic.
  bool HasPacketsUnderWay(const Fabric& fabric) const;
  // SIGSTOP and SIGCONT: its events wait; what it has posted goes on.
  void PauseFabric(const Fabric& fabric);
  void ResumeFabric(const Fabric& fabric);
  // One thread of a process is stopped, by its endpoint; the process, its other threads and its
  // service go on. Returns the thread, which goes on by that; one that has ended meanwhile does
  // not.
  uint32_t PauseEndpoint(const Endpoint& endpoint);
  void ResumeEndpoint(uint32_t thread);
  // READs of this compute server that start from now on stop half-way for so long; 0: as the
  // options say. (Not in kWhole.)
  void StallReads(const Fabric& fabric, int64_t stall_ns);
  // From now on SimOptions' shares of control requests and replies that are lost count for nothing.
  void LoseNoMoreCalls();
  // The queue pairs of this compute server to a memory server break now: both live on, a part of
  // what was posted is still executed, its chains and those posted until the queue pairs are
  // opened again fail, recoverable (network.h, B1 to B6).
  void BreakQueuePairs(const Fabric& fabric, ServerId id);
  // Each chain that this compute server posts from now on breaks its queue pair with this
  // probability, a seeded moment later; 0: none.
  void SetBreakProbability(const Fabric& fabric, double probability);
  // What breaks from now on follows from this seed: for copies of one world that are to differ.
  void SeedBreaks(uint64_t seed);
  // While the link is cut nothing gets from this compute server to the memory server, nor back:
  // their queue pairs break and are not opened again, calls and replies are lost. Both live, and
  // reach everybody else.
  void CutLink(const Fabric& fabric, ServerId id, bool cut);
  // Links between compute servers (peer.h): all of this one's break now; each message that it sends
  // from now on breaks its link with this probability, a seeded moment later; while two are cut off
  // from each other their links break, and they connect none (it takes each its time to notice).
  void BreakPeerLinks(const Fabric& fabric);
  void SetPeerBreakProbability(const Fabric& fabric, double probability);
  void CutPeers(const Fabric& one, const Fabric& other, bool cut);
  // The same, but what the second one sends still arrives at the first, as long as the link is one:
  // until then neither knows. Who connects has no answer; if it is the second one, the first has a
  // link that never opens at the other end.
  void CutPeersOneWay(const Fabric& from, const Fabric& to, bool cut);
  // The server's memory and its control socket are gone; chains and calls become Unavailable within
  // 2 s.
  void KillServer(ServerId id);
  // From now on calls to this server are lost.
  void PauseCalls(ServerId id, bool paused);
  // SIGSTOP and SIGCONT of a memory server. Its memory is there for verbs all the same. What comes
  // to its process waits in its sockets, in order, and is executed once it goes on, whoever has
  // given up, closed, died or been fenced meanwhile: calls, ends of clients, queue pairs that are
  // asked for again. So do its timers.
  void PauseServer(ServerId id);
  void ResumeServer(ServerId id);

  // --- With SimOptions::nic.
  // Time that the session whose runner is being called spends computing; elsewhere nothing.
  void SpendCpu(double ns);
  // Whether lock spaces lie in NIC memory (as from the start) or in host memory.
  void SetLocksOnChip(bool on_chip);

  // Runs `callback` as an event of its own at a time (now, if that is past).
  void At(int64_t time_ns, std::function<void()> callback);

  // Runs the next event. False: there is none. Not from inside an event (CHECKed).
  bool Step();
  // Events until the world is quiet or `time_ns` has come; the clock shows at least `time_ns` then.
  void RunUntil(int64_t time_ns);

  const Clock& clock() const;
  uint64_t trace_hash() const;
  const SimStats& stats() const;
  // Of the host of each memory server, in the order of servers. With SimOptions::nic; else none.
  std::vector<NicUse> nic_use() const;
  const SimOptions& options() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace pando::sim
