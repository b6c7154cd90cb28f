// Queue pairs of the simulated network: carries chains to memory servers and executes their verbs.
//
// A queue pair keeps the order an RC queue pair keeps, and no more: a WRITE or atomic waits for the
// WRITEs before it; a READ waits for the WRITEs and atomics before it; whatever else the contract
// leaves open happens in a seeded order, so an unfenced WRITE or atomic may overtake READs and
// atomics, and READs each other. A fenced verb waits until everything before it is done and a round
// trip has passed; nothing passes a fence.
//
// Not thread-safe. Invariants:
//   1. Every posted chain is handed to the completion sink exactly once, or to KillProcess().
//   2. After that its verbs and buffers are not touched again.
//   3. A WRITE that has moved its first bytes moves them all, even if its client dies.
//
// A queue pair may break between living ends (Break(); network_break.cpp), as on verbs
// (common/fabric/recoverable.h). Invariants of that:
//   B1. Its sender's NIC stops: of the verbs that have not started a seeded prefix had left, the
//   rest is never executed. Verbs are whole; no READ is answered any more.
//   B2. Chains that were not told of their end fail, recoverable, once the sender notices; so does
//   at once what is posted from then on. Nothing of a failed chain's buffers is touched again.
//   B3. Until the queue pair is opened again what had left may be executed, however late.
//   B4. The server first destroys its side: what has not started never will. When what has started
//   has ended, and not before, the sender is told, and its chains succeed again.
//   B5. Deaths, fencing and closing mean for a broken queue pair what they mean for any other.
//   B6. Where nothing breaks, no event and no random number is spent on it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/fabric/chain.h"
#include "common/fabric/sim/core.h"
#include "common/fabric/sim/delivery.h"

namespace pando::sim {

absl::Status CutOffError(ServerId server);
// InvalidArgument: the server's NIC would refuse the verb.
absl::Status ValidateVerb(const Server& server, const Verb& verb, uint32_t packet_bytes);
// An atomic's effect on its word; sets old_value.
void ExecuteAtomic(std::byte* word, Verb* verb);

class Network {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit Network(Core* core) : core_(core) {}

  // Of the process's connection that the server knows as `peer`.
  uint32_t AddQueuePair(uint32_t process, uint32_t endpoint, uint32_t server, uint32_t peer);
  // Nobody posts to it any more; chains of a killed sender may still be in it.
  void CloseQueuePair(uint32_t queue_pair) {
    queue_pairs_[queue_pair].closed = true;
    if (queue_pairs_[queue_pair].broken) [[unlikely]]
      DropRemains(queue_pair);
  }

  void Post(uint32_t queue_pair, Chain* chain);

  // Broken queue pairs (B1 to B6). Break(): in a moment, if the queue pair is whole then.
  void BreakWithin(uint32_t queue_pair, int64_t limit_ns);
  void Break(uint32_t queue_pair);
  void BreakAll(uint32_t process, uint32_t server);
  bool IsBroken(uint32_t queue_pair) const { return queue_pairs_[queue_pair].broken; }
  // Whether its link is cut (SimWorld::CutLink), so that it is broken now.
  bool BreakIfLinkCut(uint32_t queue_pair) {
    const QueuePair& pair = queue_pairs_[queue_pair];
    if (!core_->processes[pair.process]->IsLinkCut(pair.server)) [[likely]]
      return false;
    Break(queue_pair);
    return pair.broken;
  }
  // A chain for a broken queue pair. False: the sender knows that it is, so the chain fails at
  // once.
  bool PostToBroken(uint32_t queue_pair, Chain* chain);
  absl::Status BrokenError(uint32_t queue_pair) const;
  // Events of its recovery.
  void OnBreakSeen(uint32_t queue_pair);
  void OnReopen(uint32_t queue_pair);
  void OnReopened(uint32_t queue_pair);
  uint32_t EndpointOfQueuePair(uint32_t queue_pair) const {
    return queue_pairs_[queue_pair].endpoint;
  }
  uint32_t ServerOfQueuePair(uint32_t queue_pair) const { return queue_pairs_[queue_pair].server; }

  // Events.
  void OnArrive(uint32_t flight);
  void OnFencePassed(uint32_t flight, uint8_t verb);
  void OnUnit(uint32_t flight, uint8_t verb);
  // Ends the flight; the chain (nullptr: its sender is dead) and its outcome.
  Chain* OnComplete(uint32_t flight, absl::Status* status);

  uint32_t EndpointOf(uint32_t flight) const {
    return queue_pairs_[flights_[flight]->queue_pair].endpoint;
  }

  // True: the sender is dead, nobody waits for this completion.
  bool IsAbandoned(uint32_t flight) const { return flights_[flight]->chain == nullptr; }

  struct Abandoned {
    Chain* chain;
    uint32_t endpoint;
  };
  // Cuts the sender off between two packets: of what it had posted, a seeded prefix of each queue
  // pair is still executed. Appends the chains that will never complete.
  void KillProcess(uint32_t process, std::vector<Abandoned>* abandoned);
  // Of the process, verbs that are not done.
  bool IsUnderWay(uint32_t process) const;
  // Destroys the queue pairs between the two: what has not started is never executed, what has
  // started ends; the living sender's chains fail with Unavailable.
  void CutOff(uint32_t peer, uint32_t server);
  // The sender gives the connection up: its chains fail. Of what it had posted a seeded prefix may
  // still be executed, however late, until the server has destroyed its side, too.
  void Leave(uint32_t peer, uint32_t server);
  // The server does. Whether nothing of the connection is under way any more.
  bool DestroyLeft(uint32_t peer, uint32_t server);
  // The sender has another connection to the server, and other queue pairs.
  void Replace(uint32_t peer, uint32_t server);
  // Nothing is executed there any more; chains complete with Unavailable once the sender has
  // noticed.
  void KillServer(uint32_t server);

 private:
  enum class VerbState : uint8_t { kWaiting, kFencing, kRunning, kDone, kDropped };
  struct VerbRun {
    VerbState state = VerbState::kWaiting;
    bool fence_passed = false;
    bool holds_word = false;  // an atomic between its read and its write
    bool split = false;
    uint32_t delivery = kNone;
    uint32_t units_to_stall = 0;  // 0: it does not stall
    int64_t stall_ns = 0;         // for how long; 0: as the options say
  };
  // The WRITEs of a dead sender that are still in the network.
  struct Remains {
    std::array<Verb, Chain::kMaxVerbs> verbs;
    std::vector<std::byte> data;
  };
  // A posted chain until its completion is delivered.
  struct Flight {
    Chain* chain = nullptr;  // nullptr: the sender is dead
    Verb* verbs = nullptr;   // the chain's, or of `remains`
    std::unique_ptr<Remains> remains;
    absl::Status status;
    uint32_t queue_pair = 0;
    uint32_t previous = kNone, next = kNone;  // in the queue pair
    uint8_t verb_count = 0;
    uint8_t unfinished = 0;
    int64_t held_until_ns = 0;  // of a broken queue pair: it arrives later
    bool arrived = false;
    bool in_queue = false;
    bool retired = false;  // events of dropped verbs may be on the agenda: not used again
    std::array<VerbRun, Chain::kMaxVerbs> runs;
  };
  struct QueuePair {
    uint32_t process = 0, endpoint = 0, server = 0, peer = 0;
    uint32_t head = kNone, tail = kNone;
    uint32_t waiting_verbs = 0;
    int64_t last_arrival_ns = 0;
    bool closed = false;
    bool replaced = false;      // its process has connected to the server again
    bool broken = false;        // from the break until it is opened again
    bool break_seen = false;    // the sender has noticed
    int64_t break_seen_ns = 0;  // when it does
  };
  struct HeldWord {
    uint32_t server;
    MemorySpace space;
    uint64_t offset;
    uint64_t value;  // as the atomic that holds it has read it
  };

  uint32_t TakeFlight();
  void Append(uint32_t flight);
  void Unlink(uint32_t flight);
  // Starts every verb of the queue pair that may start.
  void Pump(uint32_t queue_pair);
  // False: the sender has no packet left (SimWorld::LimitPackets).
  bool TakePacket(uint32_t process, const Verb& verb);
  void StartVerb(uint32_t flight, uint8_t verb);
  void FinishVerb(uint32_t flight, uint8_t verb, VerbState state);
  // Drops verbs [first, end) that have not started; the chain fails with `status`.
  void DropFrom(uint32_t flight, uint8_t first, const absl::Status& status);
  void FinishFlight(uint32_t flight);
  // At most so many units: as long as there are any.
  void MoveUnits(const Flight& flight, uint8_t verb, uint64_t count);
  void ExecuteAtomic(Flight& flight, uint8_t verb);
  bool StepAtomic(uint32_t flight, uint8_t verb);
  std::vector<HeldWord>::iterator FindHeld(const QueuePair& queue_pair, const Verb& verb);
  void CountOvertakes(uint32_t flight, uint8_t verb);
  void Orphan(Flight& flight);
  void CutFlight(uint32_t flight);
  void KillQueuePair(uint32_t queue_pair);
  // Of what waits in the queue pair, all is nobody's, and only the first `sent` verbs arrive.
  void CutQueue(const QueuePair& queue_pair, uint64_t sent);
  void CutVerbs(uint32_t flight, uint64_t* sent);
  // network_break.cpp: nobody hears what the atomics found; a failed chain's completion; what a
  // broken queue pair has left is delayed, or never starts; a verb whose chain is gone was
  // executed.
  static void HideResults(const Flight& flight);
  void FailLater(uint32_t queue_pair, Chain* chain, int64_t seen_ns, absl::Status status);
  void FailBroken(uint32_t queue_pair, Chain* chain) {
    ++core_->stats.chains_broken;
    FailLater(queue_pair, chain, queue_pairs_[queue_pair].break_seen_ns, BrokenError(queue_pair));
  }
  void DelayRemains(uint32_t queue_pair, int64_t late_max_ns);
  void DropRemains(uint32_t queue_pair);
  void CountOrphan(const Flight& flight);

  bool IsCut(const QueuePair& queue_pair) const {
    return queue_pair.replaced || core_->processes[queue_pair.process]->IsCut(queue_pair.server);
  }
  std::span<std::byte> Space(const QueuePair& queue_pair, MemorySpace space) const {
    return core_->servers[queue_pair.server].Space(space);
  }

  Core* const core_;
  std::vector<QueuePair> queue_pairs_;
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<uint32_t> free_flights_;
  DeliveryPool deliveries_;
  std::vector<HeldWord> held_words_;
};

}  // namespace pando::sim
