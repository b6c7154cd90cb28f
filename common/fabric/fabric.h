// The fabric contract (client side). One interface, several backends (shm, sim, verbs), chosen at
// run time.
//
// What a backend promises:
//   1. The verbs of a chain take effect in order at one memory server: WRITE after WRITE, READ
//      after WRITE, READ after CAS. A WRITE or atomic after a READ or atomic is ordered only if it
//      has the fence flag.
//   2. An 8-byte aligned atomic is atomic among atomics. An aligned 8-byte READ or WRITE is whole.
//      One aligned 64-byte line is whole only where Capabilities::lines_atomic; between lines
//      anything may interleave, in any order. Where lines are not atomic a WRITE copies a line
//      upwards and a READ copies it downwards (rule F1) unless `needs_crc`.
//   3. Between endpoints, and between servers, nothing is ordered.
//   4. Every posted chain completes exactly once. A failed chain's status names the server, the
//      verb and the provider's reason; verbs before the failing one have happened, the failing one
//      may have, later ones have not. A failed chain may still be in flight only where its status
//      is Unavailable (rule L5); from then on every chain of this endpoint to that server fails
//      like that, until the server has confirmed that nothing of it is in flight any more.
//   5. Addresses are checked at the server's border: out of bounds, misaligned atomics, WRITEs over
//      `packet_bytes` are InvalidArgument and touch nothing.
//   6. No promise above depends on slow peers: a dead server is Unavailable within 2 s. So is, at
//      once, one that this fabric is not connected to: addresses are remote data, and servers join.
//   7. An endpoint may connect to a server when it is first used: the chains wait then, the thread
//      does not. One that has waited for as long as it may (Chain::LimitWait()) is DeadlineExceeded
//      and has done nothing.
//
// Thread safety: Fabric is thread-safe. An Endpoint belongs to one thread; only Wake() may be
// called from others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/fabric/chain.h"
#include "common/fabric/cpu_costs.h"
#include "common/fabric/meter.h"
#include "common/fabric/peer.h"
#include "common/registry/server_location.h"

namespace pando {

// What a backend can do is data, never an #ifdef.
struct Capabilities {
  std::string name;            // "shm", "sim"
  bool lines_atomic = false;   // an aligned 64-byte line is all or nothing
  bool needs_crc = false;      // copy order is not ours: lines need checksums (rule F1)
  bool write_unlock = true;    // a WRITE of 0 releases a lock (rule L4); else CAS
  uint32_t on_chip_bytes = 0;  // NIC memory for locks, 0: host memory
  uint32_t inline_bytes = 0;   // largest WRITE sent inline
  uint32_t packet_bytes =
      4096;  // path MTU: largest WRITE that is whole or absent when its sender dies
  uint32_t chain_verbs_max = Chain::kMaxVerbs;
  // Rule F2. Two writes of one line are at least so far apart; 0: READs need not be timed.
  int64_t min_write_interval_ns = 0;
  // A READ takes the bytes of one of its packets, of this many each, in one go, however long the
  // whole of it takes. 0: it may stop anywhere.
  uint32_t read_packet_bytes = 0;
  // A READ of few bytes costs less than a verb more does; false where verbs are copies by the
  // processor, or packets of a kernel.
  bool few_bytes_pay = true;
  // A message to a peer (peer.h) is a post to a NIC; false where it is a system call.
  bool cheap_messages = true;
  // A memory server can cut a living client off, if it has leases; else only the end of a client's
  // process is its death.
  bool can_cut_off = false;
  // Endpoints call their runner by themselves, in one thread: nobody may wait in a thread of his
  // own (sim).
  bool event_driven = false;
};

// One two-sided request in flight. Owned by the caller, unmoved until done.
struct PendingCall {
  ServerId server = 0;
  std::string request;  // an encoded control message (common/wire/control.h)
  int64_t deadline_ns = kNeverNs;
  bool done = false;
  absl::Status status;
  std::string reply;
  void (*on_done)(PendingCall* call, void* context) = nullptr;
  void* context = nullptr;
};

// One session's queue pairs to all memory servers.
class Endpoint {
 public:
  virtual ~Endpoint() = default;  // nothing may be in flight

  // The scheduler's hint before a Post(): other coroutines have work meanwhile. A backend that
  // executes verbs itself may then fetch ahead and leave the chain to Poll(), instead of waiting
  // for memory on the spot; one that tells a NIC may wait for their chains and tell it once.
  void set_overlap(bool others_are_ready) { overlap_ = others_are_ready; }

  // Hint: a chain that READs this of the server's main space follows. A backend that executes verbs
  // itself may fetch ahead.
  virtual void WillRead(ServerId /*server*/, uint64_t /*offset*/, uint32_t /*bytes*/) {}

  // Posts a chain. It may be done when this returns; it may also wait for those that others post
  // before the next Poll() or Wait() (set_overlap()), and share their doorbell. Never blocks.
  void Post(Chain* chain) {
    meter_.Count(chain->KeepTally());
    DoPost(chain);
  }
  // Sends a small control message; completes through Poll(): with the reply, DeadlineExceeded or
  // Unavailable.
  void Call(PendingCall* call) {
    ++meter_.calls;
    DoCall(call);
  }
  // Delivers completions; returns how many. Never blocks.
  virtual size_t Poll() = 0;
  // Chains and calls that are not done.
  virtual size_t in_flight() const = 0;

  // Registered, 64-byte aligned memory, owned by the endpoint until it is destroyed.
  virtual absl::StatusOr<LocalBuffer> AllocateBuffer(size_t bytes) = 0;

  // Blocks until something may have completed, Wake() was called since the last Wait(), or
  // `until_ns`. The simulator runs its next event instead, so that code outside the event loop can
  // drive it.
  virtual void Wait(int64_t until_ns) = 0;
  // Makes a current or the next Wait() return; on sim schedules the runner. Any thread.
  virtual void Wake() = 0;
  // Asks for the runner to be called at a time (sim); thread-driven backends ignore it: Wait() has
  // a bound.
  virtual void WakeAt(int64_t ns) = 0;
  // What an event-driven backend calls after completions and wake-ups. Thread-driven backends
  // ignore it.
  virtual void set_runner(std::function<void()> runner) = 0;

  // From now on this endpoint's chains and calls go to the first `added` servers that were added
  // to its fabric (Fabric::AddServer()), each in its latest life; never before. Own thread; chains
  // may be in flight. Never blocks.
  virtual void AdoptServers(uint32_t /*added*/) {}

  virtual const Clock& clock() const = 0;
  // As long-lived as the endpoint. nullptr: time passes by itself.
  virtual CpuCosts* cpu_costs() { return nullptr; }
  // Seed for back-off and placement; derived from the run's seed on sim.
  virtual uint64_t random_seed() = 0;

  const Meter& meter() const { return meter_; }

 protected:
  bool overlap() const { return overlap_; }
  virtual void DoPost(Chain* chain) = 0;
  virtual void DoCall(PendingCall* call) = 0;

 private:
  Meter meter_;
  bool overlap_ = false;
};

class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual const Capabilities& capabilities() const = 0;
  // Ids of the memory servers this fabric is connected to, ascending; also of those that are gone.
  virtual std::vector<ServerId> servers() const = 0;
  // Sizes of a server's two spaces, bytes. 0 for an unknown server.
  virtual uint64_t SpaceBytes(ServerId server, MemorySpace space) const = 0;
  // A new set of queue pairs, each made when first used. `compute_server` and `incarnation`
  // identify the owner to the servers (0, 0 before the client has joined: such an endpoint can make
  // calls, and READ).
  virtual absl::StatusOr<std::unique_ptr<Endpoint>> Connect(uint16_t compute_server,
                                                            uint32_t incarnation) = 0;
  // Connects to one more server, to another life of one that is gone, or again after Disconnect().
  // Endpoints that exist take it up by AdoptServers(), later ones have it. Returns how many servers
  // were added. Blocks while it connects, then calls `about_to_add` and adds it; one thread at a
  // time. Unavailable: nobody answers, or it is connected; FailedPrecondition: it can do less than
  // capabilities() says; Unimplemented: the servers of this fabric are fixed.
  virtual absl::StatusOr<uint32_t> AddServer(
      const ServerLocation& /*location*/, const std::function<void()>& /*about_to_add*/ = [] {}) {
    return absl::UnimplementedError("the servers of this fabric are fixed");
  }
  // Whether chains and calls to the server may get through: it is not known to be gone.
  virtual bool IsConnected(ServerId /*server*/) const { return true; }
  // Ends the connection, as if the server had died.
  virtual void Disconnect(ServerId /*server*/) {}
  // One call over a connection of its own, which ends with the answer: for a server that is gone
  // for this fabric, but may be there for others. Blocks, for a second where nobody answers.
  // Unavailable: nobody does. Unimplemented: a server that is gone is gone for everybody.
  virtual absl::StatusOr<std::string> CallOnFreshConnection(ServerId /*server*/,
                                                            std::string_view /*request*/) {
    return absl::UnimplementedError("this fabric does not connect anew");
  }
  // This compute server's place among the others (peer.h); any number of them, each gone before the
  // fabric. AlreadyExists: somebody listens at the address; InvalidArgument: it is none, or an
  // option; ResourceExhausted: nothing is left to listen with.
  virtual absl::StatusOr<std::unique_ptr<PeerPort>> OpenPeers(const PeerOptions& /*options*/) {
    return absl::UnimplementedError("this fabric has no links between compute servers");
  }
};

}  // namespace pando
