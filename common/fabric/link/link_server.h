// The serving side of links: accepts connections, bounds those that have no identity, hands what
// comes to them, and runs the handler's timer, all on one thread. A memory server's backends derive
// from it; a compute server that answers requests of others does the same with connections of its
// own: nothing here knows of memory.
//
// Thread safety: Run() runs on one thread and calls the handler and all hooks there; Stop() from
// any thread and from a signal handler; the rest belongs to the thread of Run().
//
// Invariants:
//   1. The thread waits for no peer, and nothing that a peer does holds up another: each gets a
//      bounded turn.
//   2. Connections without an identity are bounded, all together and of one origin, and have their
//      time (strangers.h); a newcomer is turned away only by clients that have one.
//   3. A client that is refused, or rejected later, is told why, as far as its socket takes it.
//   4. What strangers cause in the log is bounded a second.
//   5. Without a file descriptor to accept with, strangers go first; then nobody is accepted for a
//      moment, and those who are connected notice nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/rate_limited_log.h"
#include "common/base/unique_fd.h"
#include "common/fabric/link/served_link.h"
#include "common/fabric/link/strangers.h"
#include "common/fabric/server.h"

namespace pando {

class LinkServer {
 public:
  struct Limits {
    ServerId server_id = 1;
    // Clients with an identity. Who was let in before it was reached, and joins after, is one more.
    uint32_t connections_max = 1024;
    int64_t hello_timeout_ms = 2'000;
    int64_t identity_timeout_ms = 30'000;
    Strangers::Limits strangers = {};
  };

  LinkServer(const LinkServer&) = delete;
  LinkServer& operator=(const LinkServer&) = delete;
  // Async-signal-safe.
  void Stop();

 protected:
  explicit LinkServer(const Limits& limits) : limits_(limits), strangers_(limits.strangers) {}
  virtual ~LinkServer() = default;

  // Once, before Run(): errors of the system. `listener`: none where nobody is accepted.
  absl::Status Open(UniqueFd listener);
  // Until Stop(). Connections are left as they are.
  absl::Status Run(ControlHandler* handler);

  // --- What a backend does.

  // An accepted socket: it is admitted (Admit()), or told why not.
  virtual void Welcome(UniqueFd socket) = 0;
  // No descriptor was left, errno is `error`, and no stranger could go. True: somebody was accepted
  // all the same.
  virtual bool AcceptWithout(int error) {
    (void)error;
    return false;
  }
  // The connection has ended, as seen at its socket, or has to.
  virtual void OnClosed(ServedLink* connection) = 0;
  // Its process has exited (ServedLink::exit_descriptor()).
  virtual void OnExit(ServedLink* connection) { (void)connection; }
  // As many clients as it takes are there; for one more.
  virtual absl::Status FullError(size_t clients) const;
  // A descriptor that was watched with WatchOwn().
  virtual void OnOwnEvent() {}
  // After each turn of the loop; and when the next one has to be at the latest.
  virtual void AfterTurn() {}
  virtual int64_t NextTurnNs() const { return kNeverNs; }

  // --- What it does that with.

  ControlHandler* handler() const { return handler_; }
  const Limits& limits() const { return limits_; }
  // Of the next connection; ids are given once.
  PeerId NextPeer() { return ++last_peer_; }
  // Takes the connection in, or says why not and ends it.
  void Admit(std::unique_ptr<ServedLink> connection);
  // nullptr: there is none any more.
  ServedLink* Find(PeerId peer) const;
  size_t connections() const { return connections_.size(); }
  void ForEach(const std::function<void(ServedLink*)>& visit) const {
    for (const auto& [peer, connection] : connections_) visit(connection.get());
  }
  // Forgets it: its socket and what it holds are gone.
  void Erase(PeerId peer);
  // No stranger and not watched any more; it stays until Erase(). Before its socket is closed.
  void Unwatch(ServedLink* connection);
  // Has the connection go on after something that did not come over its socket.
  void GoOn(ServedLink* connection);
  // It has no identity any more, and its time.
  void MakeStranger(ServedLink* connection);
  // A stranger goes, if there is one, because no descriptor is left. False: there is none.
  bool EvictForDescriptor();
  absl::Status WatchOwn(int fd);
  void RunTimer() { timer_ns_ = handler_->OnTimer(RealClock().NowNs()); }
  // `who` is not let in: a line in the log.
  void LogRefused(const std::string& who, const absl::Status& why);
  // All connections, then the listener.
  void CloseAll() {
    connections_.clear();
    listener_.Reset();
  }
  // -1: closed.
  int listener() const { return listener_.get(); }

 private:
  absl::Status Watch(int operation, int fd, uint32_t events, uint64_t key);
  absl::Status WatchConnection(const ServedLink& connection);
  void Dispatch(uint64_t key, uint32_t events);
  // Those of them that no event has given their turn.
  void GoOnWith(const absl::flat_hash_set<PeerId>& peers);
  void Accept();
  void PauseAccepting(int error);
  absl::Status CheckRoom() const;
  void NoteIdentity(ServedLink* connection);
  // Says why, then closes. Unavailable: a client that connects again may have better luck.
  void Reject(PeerId peer, const absl::Status& why);
  void CloseLateStrangers();
  int TimeoutMs() const;

  const Limits limits_;
  UniqueFd listener_, epoll_, stop_;
  ControlHandler* handler_ = nullptr;
  PeerId last_peer_ = 0;
  int64_t accept_again_ns_ = 0;  // 0: accepting
  int64_t timer_ns_ = kNeverNs;  // when the handler wants to be called
  Strangers strangers_;
  RateLimitedLog accept_log_, refused_log_, closed_log_, late_log_;
  absl::flat_hash_map<PeerId, std::unique_ptr<ServedLink>> connections_;
  absl::flat_hash_set<PeerId> again_;  // who has more, for the next turn
};

}  // namespace pando
