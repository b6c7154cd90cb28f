// What the parts of the simulator share: time, agenda, randomness, trace, servers and processes.
// One thread. Nothing here depends on the addresses of objects: a run is a function of its options
// and inputs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/fabric/chain.h"
#include "common/fabric/server.h"
#include "common/fabric/sim/event_queue.h"
#include "common/fabric/sim/sim_options.h"
#include "common/fabric/sim/trace_hash.h"

namespace pando::sim {

// Zero pages that take memory only where they were written.
class SparseMemory {
 public:
  explicit SparseMemory(uint64_t bytes);
  ~SparseMemory();
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

class Core;

// What a process, or a memory server, has for the time: the world's, at a rate of its own.
class OwnClock final : public Clock {
 public:
  OwnClock(const Core* core, int64_t permille) : core_(core), permille_(permille) {}

  int64_t NowNs() const override;
  int64_t FromWorld(int64_t world_ns) const {
    if (permille_ == 1000) return world_ns;
    return kStartNs + (world_ns - kStartNs) * permille_ / 1000;
  }
  // The first time of the world at which this clock shows so much.
  int64_t ToWorld(int64_t own_ns) const {
    if (permille_ == 1000 || own_ns > kNeverNs / 2000) return own_ns;
    return kStartNs + ((own_ns - kStartNs) * 1000 + permille_ - 1) / permille_;
  }

  // Not 0: nobody may take 0 for "never".
  static constexpr int64_t kStartNs = 1 * kMillisecondNs;

 private:
  const Core* const core_;
  const int64_t permille_;
};

// One life of a memory server.
struct Server {
  ServerId id = 0;
  std::unique_ptr<OwnClock> clock;
  std::unique_ptr<SparseMemory> main, locks;
  ControlHandler* handler = nullptr;
  bool dead = false;
  bool calls_paused = false;
  bool paused = false;          // SimWorld::PauseServer: its process's events wait
  std::vector<Event> held;      // meanwhile, in the order in which they came
  int64_t timer_ns = kNeverNs;  // the earliest timer of the handler on the agenda

  std::span<std::byte> Space(MemorySpace space) const {
    return space == MemorySpace::kMain ? main->span() : locks->span();
  }
};

// A compute-server process: one Fabric with its endpoints.
struct Process {
  explicit Process(const OwnClock& own_clock) : clock(own_clock) {}

  const OwnClock clock;
  bool killed = false;    // its events stop; what is in the network may go on
  bool draining = false;  // killed, but its code is run to its end with failing chains
  bool paused = false;    // its events wait
  bool closed = false;
  // WRITEs and atomics that may still start; kUnlimited. Once one was refused nothing more starts.
  static constexpr uint64_t kUnlimited = UINT64_MAX;
  uint64_t packets_left = kUnlimited;
  bool packets_spent = false;
  int64_t read_stall_ns = 0;                // SimWorld::StallReads
  double break_probability = 0;             // SimWorld::SetBreakProbability
  std::vector<uint32_t> endpoints;          // open ones
  std::vector<Event> held;                  // while paused
  std::vector<uint32_t> chains_in_network;  // by server index
  std::vector<int64_t> death_seen_ns;       // by server index, 0: not dead
  std::vector<bool> cut;                    // by server index: its queue pairs there are destroyed
  std::vector<uint32_t> later_peers;        // by server index, 0: none (Core::PeerOf())
  std::vector<bool> link_cut;               // by server index: SimWorld::CutLink
  uint32_t peer_ports = 0;                  // open ones
  double peer_break_probability = 0;        // SimWorld::SetPeerBreakProbability
  std::vector<bool> peer_cut;               // by process: SimWorld::CutPeers

  bool IsCut(uint32_t server) const { return server < cut.size() && cut[server]; }
  bool IsLinkCut(uint32_t server) const { return server < link_cut.size() && link_cut[server]; }
};

class Core final : public Clock {
 public:
  // What became of a process's connection to a server.
  struct ConnectionEnd {
    bool left = false;    // the process has ended it, which the server may not have noticed
    bool fenced = false;  // the server has destroyed its queue pairs
    bool seen = false;    // left, and the server has noticed: nothing of it arrives any more
  };
  // From here on: peers that have connected to a server again.
  static constexpr uint32_t kLaterPeers = 1 << 24;

  explicit Core(const SimOptions& sim_options);

  // Inside a runner later than the event by what the runner's thread has spent.
  int64_t NowNs() const override {
    if (in_turn) [[unlikely]]
      return LookInTurn();
    return now_ns + spent_ns();
  }

  // --- Where time passes inside a turn (SimOptions::turn_look_ns): a runner is being called.
  bool in_turn = false;

  // --- With a timing model: the CPU time of the runner that is being called.
  bool in_runner = false;
  double spent_cpu_ns = 0;
  bool locks_on_chip = true;
  void SpendCpu(double ns) {
    if (!in_runner) return;
    spent_cpu_ns += ns;
    stats.cpu_ns += ns;
  }
  int64_t spent_ns() const { return static_cast<int64_t>(spent_cpu_ns); }

  void ScheduleAt(int64_t time_ns, EventKind kind, uint32_t target, uint8_t verb = 0) {
    events.Push({time_ns < now_ns ? now_ns : time_ns, 0, target, kind, verb});
  }
  void Schedule(int64_t delay_ns, EventKind kind, uint32_t target, uint8_t verb = 0) {
    ScheduleAt(now_ns + delay_ns, kind, target, verb);
  }
  // U(0, limit), both ends included.
  int64_t Jitter(int64_t limit_ns) {
    return limit_ns <= 0
               ? 0
               : static_cast<int64_t>(random.Uniform(static_cast<uint64_t>(limit_ns) + 1));
  }
  bool LosesCall(double share) { return calls_are_lost && random.Chance(share); }
  // One way through the network.
  int64_t NetworkDelay();
  // Of its latest life. -1: no such server.
  int ServerIndex(ServerId id) const;
  // Of the next process or server.
  OwnClock NewClock();
  // How the server knows a process's present connection: by the process's number, the first time.
  uint32_t PeerOf(uint32_t process, uint32_t server) const {
    const std::vector<uint32_t>& later = processes[process]->later_peers;
    return server < later.size() && later[server] != 0 ? later[server] : process;
  }
  uint32_t ProcessOf(uint32_t peer) const {
    return peer < kLaterPeers ? peer : later_peers[peer - kLaterPeers].process;
  }
  // Of a connection to the server, chains that are not done.
  uint32_t& ChainsOf(uint32_t peer, uint32_t server);
  ConnectionEnd& EndOf(uint32_t peer, uint32_t server) { return ends_[{peer, server}]; }
  // Of a connection that is over: whether its server hears of that with its last packet. Who has
  // left is heard of by the end of its socket.
  bool LastPacketTells(uint32_t peer, uint32_t server) {
    const ConnectionEnd& end = EndOf(peer, server);
    return end.fenced || !end.left;
  }
  bool HasLeft(uint32_t peer, uint32_t server) const {
    const auto end = ends_.find({peer, server});
    return end != ends_.end() && end->second.left;
  }
  bool HasEnded(uint32_t peer, uint32_t server) const {
    const auto end = ends_.find({peer, server});
    return end != ends_.end() && end->second.seen;
  }
  // When `process` notices that the (dead) server is dead.
  int64_t DeathSeenNs(uint32_t process, uint32_t server);

  const SimOptions options;
  bool calls_are_lost = true;  // as `options` say; SimWorld::LoseNoMoreCalls
  Random random;
  Random break_random;  // of its own: until something breaks a run is the same as without breaks
  mutable int64_t now_ns = OwnClock::kStartNs;  // passes where somebody looks: LookInTurn()
  EventQueue events;
  TraceHash trace;
  mutable SimStats stats;
  std::vector<Server> servers;
  std::vector<std::unique_ptr<Process>> processes;
  struct LaterPeer {
    uint32_t process = 0, server = 0, chains_in_network = 0;
  };
  std::vector<LaterPeer> later_peers;

 private:
  // Time passes before the look and after it: what is done next is done later than the clock said.
  int64_t LookInTurn() const;
  void PassTime() const;

  // By peer and server index: connections that have ended, or were cut off.
  std::map<std::pair<uint32_t, uint32_t>, ConnectionEnd> ends_;
  mutable Random turn_random_;
  Random clock_random_;
};

}  // namespace pando::sim
