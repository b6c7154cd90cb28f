// The simulated network with the timing of real NICs (SimOptions::nic): for performance, not for
// faults.
//
// A chain takes its way through what is busy: the sender's doorbell and DMA, its NIC's send engine
// and the queue pair, the link out, wire and switch, the receiver's link in and receive engine,
// PCIe or NIC memory or an atomic's internal lock, the link back, and the sender's completion
// queue. The constants are those of a NicProfile; the resources of a host are shared by all that
// lives on it.
//
// Chains come in lists, as the verbs fabric posts them: a list has one doorbell. A list of one verb
// comes with it; a longer one, of one chain or of several, is read over PCIe as a whole. A short
// chain that is alone has a doorbell for each verb (chain_list.h): nothing is read, the thread pays
// for all of them, and the first verb leaves no earlier than the last.
//
// Verbs of one queue pair are executed in the order they were posted; each READ and WRITE is whole.
// Not modelled: acknowledgements' bytes, congestion control, caches of the NIC (queue pairs, work
// requests, translations), losses, NUMA.
//
// Not thread-safe. Invariants:
//   1. Same options, same calls: same times. Nothing is random.
//   2. Every chain completes once; chains of one queue pair in the order they were posted.
//   3. Verbs are received in the order in which they arrive at a NIC; atomics that wait for an
//      internal lock have places in it, and while none is free nothing is received after an atomic.
//   4. An atomic has its effect when its turn in the internal lock comes, a WRITE when the receive
//      engine has taken it, a READ when its data has come over PCIe.
//   5. A verb does not allocate (what is held up grows to its greatest length once).
//   6. The chains of a list are known to the NIC at the same time; nothing of them leaves before.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/fabric/chain.h"
#include "common/fabric/chain_list.h"
#include "common/fabric/nic/nic.h"
#include "common/fabric/sim/core.h"

namespace pando::sim {

class TimedNetwork {
 public:
  TimedNetwork(Core* core, const NicProfile& profile);

  // Every server has a host of its own; a process has, or lives on a server's.
  void AddServer();
  void AddProcess(int server_index);  // -1: a host of its own

  uint32_t AddQueuePair(uint32_t process, uint32_t endpoint, uint32_t server);
  // At `time_ns` (not in the past) the session rings the doorbell for all of `list`. `alone`: the
  // last doorbell of a chain that has one for each verb.
  void Post(uint32_t queue_pair, std::span<Chain* const> list, bool alone, int64_t time_ns);

  // Events.
  // The NIC knows of the chain, or has its payload, or what stood before a fence is answered.
  void OnPost(uint32_t flight);
  void OnArrive(uint32_t flight, uint8_t verb);
  void OnTurn(uint32_t flight, uint8_t verb) { WaitForTurn(flight, verb, 0); }
  void OnExecute(uint32_t flight, uint8_t verb) { Execute(flight, verb, Now()); }
  // The last response has come; the chain is ready for its poster at *ready_ns.
  Chain* OnComplete(uint32_t flight, absl::Status* status, int64_t* ready_ns);

  uint32_t EndpointOf(uint32_t flight) const {
    return queue_pairs_[flights_[flight].queue_pair].endpoint;
  }
  // A message between two processes: when the NIC of the sender, who rings for it now, has it; when
  // it reaches the other's, if it is sent now; when the receiver can poll it, if it arrives now.
  int64_t PostMessage(uint32_t from, uint64_t bytes);
  int64_t SendMessage(uint32_t from, uint32_t to, uint64_t bytes);
  int64_t ReceiveMessage(uint32_t to, uint64_t bytes);
  // How long a call waits for the server's thread and is served by it.
  int64_t ServeCall(uint32_t server);
  // CPU time of looking at what a chain has read.
  double SearchNs(const Chain& chain) const;
  // CPU time of posting a list of so many verbs.
  double PostNs(uint32_t verbs) const {
    return profile_.cpu.post_chain_ns + verbs * profile_.cpu.post_verb_ns;
  }
  // Whether a chain of so many verbs that is alone has a doorbell for each (chain_list.h): where
  // the NIC is known not to read lists by itself it has not.
  bool RingsForEach(uint32_t verbs) const {
    return verbs > 1 && verbs <= kAloneVerbsMax && profile_.nic.fetch_chain_ns > 0;
  }
  const NicProfile& profile() const { return profile_; }
  // Of the hosts of all servers.
  std::vector<NicUse> ServersUse() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  // A posted chain until its completion.
  struct Flight {
    Chain* chain = nullptr;
    absl::Status status;  // of the first verb that is refused
    uint32_t queue_pair = 0;
    uint32_t next = kNone;     // of those that wait
    uint8_t to_send = 0;       // verbs before the first that is refused
    uint8_t sent = 0;          // of those
    uint8_t unanswered = 0;    // of those
    Picoseconds answered = 0;  // when the last response so far reaches the sender
    uint64_t bytes_back = 0;   // of all responses
    uint64_t payload = 0;      // of WRITEs, still to be fetched
    Picoseconds fetched = 0;   // when it will be
    bool at_fence = false;     // waits until what was sent before is answered
    uint32_t with_place = 0;   // bit i: verb i, an atomic, has its place in the NIC
  };
  struct QueuePair {
    uint32_t endpoint = 0, server = 0;
    uint32_t local_host = 0, remote_host = 0;
    uint32_t unanswered = 0;  // verbs
    // Chains that wait: the first has come to a fence, or its payload has not come.
    uint32_t blocked_head = kNone, blocked_tail = kNone;
    Picoseconds known = 0;  // when the NIC knows of the last list
    BusyUntil send;
    Picoseconds executed = 0;   // the responder is through with the last atomic
    Picoseconds completed = 0;  // the chain before
  };

  uint32_t AddHost();
  uint32_t TakeFlight();
  // A flight for the chain, its verbs checked.
  uint32_t StartFlight(uint32_t queue_pair, Chain* chain);
  // Sends what may be sent of the chain, and of those behind it.
  void Send(uint32_t flight);
  // False: it has to wait.
  bool SendVerbs(uint32_t flight);
  // An atomic needs a place, unless it follows another one of its queue pair: then it takes that
  // one's when its turn comes.
  bool NeedsPlace(uint32_t flight, uint8_t verb) const;
  void TakePlace(uint32_t flight, uint8_t verb, Nic* nic);
  void Receive(uint32_t flight, uint8_t verb, Picoseconds came, Nic* nic);
  // An atomic waits no longer: what its place has held up goes on.
  void LeavePlace(Nic* nic);
  // The queue pair's verbs before it come first.
  void WaitForTurn(uint32_t flight, uint8_t verb, Picoseconds received);
  void Begin(uint32_t flight, uint8_t verb, Picoseconds at);
  void Execute(uint32_t flight, uint8_t verb, Picoseconds at);
  // The response to one verb reaches the sender at `at`.
  void Answer(uint32_t flight, Picoseconds at);

  bool IsOnChip(const Verb& verb) const {
    return verb.space == MemorySpace::kLocks && core_->locks_on_chip;
  }
  Picoseconds Wire(uint32_t one_host, uint32_t other_host) const {
    return one_host == other_host ? 0 : times_.wire;
  }
  Picoseconds Wire(const QueuePair& queue_pair) const {
    return Wire(queue_pair.local_host, queue_pair.remote_host);
  }
  // What a short message takes in each of the two NICs.
  Picoseconds MessageShare() const;
  Picoseconds Now() const { return core_->now_ns * 1000; }
  void ScheduleAt(Picoseconds at, EventKind kind, uint32_t flight, uint8_t verb = 0) {
    core_->ScheduleAt((at + 999) / 1000, kind, flight, verb);
  }

  Core* const core_;
  const NicProfile profile_;
  const NicTimes times_;
  std::vector<std::unique_ptr<Nic>> hosts_;
  std::vector<uint32_t> server_hosts_, process_hosts_;
  std::vector<BusyUntil> server_threads_;
  std::vector<QueuePair> queue_pairs_;
  std::vector<Flight> flights_;
  std::vector<uint32_t> free_flights_;
};

}  // namespace pando::sim
