// Links between compute servers (rule P1): ordered messages of up to 4 KiB. One interface; each
// fabric has its own (Fabric::OpenPeers()).
//
//   struct Answers : PeerHandler { ... };                  // what a link calls
//   struct Service : PeerAcceptor { ... };                 // who comes gets an Answers
//   auto port = fabric->OpenPeers({.identity = me, .acceptor = &service});
//   Publish((*port)->address());
//   auto link = (*port)->Connect(address_of_another, &handler);
//   switch ((*link)->TrySend(message)) { ... }
//
// What a fabric promises:
//   1. Messages of one direction of a link arrive whole, unaltered, each once, in the order in
//      which they were sent. Between directions and between links nothing is ordered.
//   2. A link breaks as a whole, and for good. Of what each end has sent a prefix arrives, and
//      nobody is told how long it is: kSent says that a message is under way, not that it arrives.
//      Each end hears of the break at its own time, and sends into the void until then.
//   3. OnBroken() is called once for each link that Connect() has returned or OnAccepted() has
//      taken, whoever ended it, and nothing is called for the link afterwards. Cancelled: this end
//      did (Close(), its port). Unavailable: the other end did, or died, or does not answer, or the
//      network. PermissionDenied, FailedPrecondition, ResourceExhausted: the other end refused, and
//      says why. DataLoss: what arrived is nothing that a peer sends.
//   4. Calls of handlers come one at a time for each port, from a thread of the port (on an
//      event-driven fabric each is an event of its own), never from inside TrySend(), Close() or
//      Connect(). A handler must not wait; all links of the port would. It may send, close, connect
//      and drop links, and must not destroy the port.
//   5. What is under way on a link is bounded: TrySend() is kFull then, and OnWritable() follows
//      once there is room for a message (it may also come for no reason). A peer that does not take
//      its messages, or has been stopped, holds up its own links only; it is not gone.
//   6. Connect() does not wait for the other side. Until the link is open TrySend() is kFull;
//      OnWritable() says that it is. One that is not open after `hello_timeout_ms` breaks: nothing
//      that was to be sent on it was.
//   7. The end of a process, or of its port, is seen at the other ends at once (within 2 s); that
//      of its host, or of the network, as soon as the fabric can tell.
//   8. A peer is a stranger until it has introduced itself: strangers are bounded and have their
//      time; on shm they run as the same user (or root), on verbs they prove the cluster's secret
//      where there is one. A peer that sends garbage loses its link, and harms no other.
//   9. When a port's destructor returns its links are broken and OnBroken() has been called for
//      each (by an event-driven fabric from inside the destructor). Links may outlive it.
//
// Thread safety: PeerPort (but its destructor) and PeerLink are thread-safe. Messages that several
// threads send on one link have the order in which TrySend() took them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando {

inline constexpr size_t kPeerMessageBytesMax = 4096;

// The peer at an end of a link, as it says itself.
struct PeerIdentity {
  uint16_t compute_server = 0;
  uint32_t incarnation = 0;

  friend bool operator==(const PeerIdentity&, const PeerIdentity&) = default;
};

enum class PeerSend : uint8_t {
  kSent,     // it is under way
  kFull,     // nothing was sent: OnWritable() follows
  kBroken,   // nothing was sent, and nothing ever will be: OnBroken() follows, or has been called
  kRefused,  // no message has this size; the link is as before
};

// One end of a link. The other end is another object, nearly always in another process.
class PeerLink {
 public:
  virtual ~PeerLink() = default;

  // 1 to kPeerMessageBytesMax bytes, which are the caller's again at once. Never blocks.
  [[nodiscard]] virtual PeerSend TrySend(std::string_view message) = 0;
  // Ends the link. No OnMessage() or OnWritable() begins after this but one that another thread has
  // begun; OnBroken() follows. What was sent before may arrive. Again: nothing happens.
  virtual void Close() = 0;
  // It has ended as far as this end knows; OnBroken() follows, or has been called.
  virtual bool broken() const = 0;
  // The other end. {0, 0} before the link is open.
  virtual PeerIdentity other() const = 0;
};

// What a link calls. It outlives the call of OnBroken(), and may serve several links.
class PeerHandler {
 public:
  virtual ~PeerHandler() = default;
  // `message` holds during the call, and is whatever the other end sent: validate it.
  virtual void OnMessage(PeerLink* link, std::string_view message) = 0;
  virtual void OnWritable(PeerLink* link) = 0;
  virtual void OnBroken(PeerLink* link, const absl::Status& why) = 0;
};

// Takes those who connect. Outlives the port.
class PeerAcceptor {
 public:
  virtual ~PeerAcceptor() = default;
  // The link is open. Who handles it from now on; nullptr: it is not taken and ends, uncalled. Who
  // does not keep `link` can still use it as long as it is not broken: handlers get it.
  virtual PeerHandler* OnAccepted(const std::shared_ptr<PeerLink>& link) = 0;
};

struct PeerOptions {
  PeerIdentity identity;             // told to all other ends
  PeerAcceptor* acceptor = nullptr;  // nullptr: nobody can connect to this port
  // Where others connect; "": the fabric chooses. shm: the path of a socket (up to 107 bytes, in a
  // directory of this user's); verbs: "host:port", or ":port" for every
  // address of this host; sim: any name.
  std::string address;
  // Of both sides: a link that is not open by then is none.
  int64_t hello_timeout_ms = 2'000;
  // Links of this port that are open, both those that it made and those that it took. Who comes
  // then is told.
  uint32_t links_max = 4096;
};

// One process's, or one service thread's, place among its peers: its links, the thread that serves
// them (where the fabric has threads), and where others find it.
class PeerPort {
 public:
  virtual ~PeerPort() = default;

  // For others to connect to; "" without an acceptor.
  virtual const std::string& address() const = 0;
  // Any number of links to one address, its own included. Never waits. Unavailable: nobody listens
  // there, as far as this can be known at once (else OnBroken() says so); InvalidArgument: no
  // address; PermissionDenied: this user may not; ResourceExhausted: no descriptor is left.
  virtual absl::StatusOr<std::shared_ptr<PeerLink>> Connect(const std::string& address,
                                                            PeerHandler* handler) = 0;
};

}  // namespace pando
