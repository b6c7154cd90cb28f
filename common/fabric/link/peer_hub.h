// The port of a compute server (peer.h) on fabrics with connections: accepts and makes links, and
// serves all of them on a thread of its own. A backend says how it dials and welcomes, and what its
// links do with bytes.
//
// A link is two objects. HubLink is what its users have: any thread, as long as they like.
// HubConnection is what the hub's thread has, and ends with the connection; it calls the handler.
//
// Thread safety: as PeerPort and PeerLink; what is marked so belongs to the hub's thread.
//
// Invariants, in addition to those of peer.h and link_server.h:
//   1. A HubLink is used for its connection only under its mutex and before the connection's end.
//   2. The destructor of a connection tells the owner of its handler of the link's end, however it
//      came to that: nothing can forget it.
//   3. Links that this side makes are no strangers (nobody else can make them, or push them out);
//      they have the time of a hello.
//   4. A thread that sends never waits for the hub's, and wakes it only when a link is full, or to
//      be closed.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/fabric/link/link.h"
#include "common/fabric/link/link_server.h"
#include "common/fabric/peer.h"

namespace pando {

class PeerHub;
class HubConnection;

class HubLink : public PeerLink, public std::enable_shared_from_this<HubLink> {
 public:
  explicit HubLink(PeerHub* hub) : hub_(hub) {}

  PeerSend TrySend(std::string_view message) final;
  void Close() final;
  bool broken() const final;
  PeerIdentity other() const final;

 protected:
  // Under the mutex, while the connection is there and open.
  virtual SendResult Transmit(std::string_view message) = 0;
  // The same: whether Transmit() would take a message now.
  virtual bool HasRoom() const = 0;

  mutable std::mutex mutex_;

 private:
  friend class HubConnection;
  friend class PeerHub;
  bool is_over() const { return hub_ == nullptr || closing_ || gone_; }

  PeerHub* hub_;       // nullptr: the connection has ended
  bool open_ = false;  // hellos have been exchanged
  bool closing_ = false;
  bool gone_ = false;  // Transmit() said so
  bool wants_writable_ = false;
  PeerIdentity other_;
  PeerId peer_ = 0;  // of the connection; the hub's thread
};

// The hub's thread.
class HubConnection : public ServedLink {
 public:
  // `handler`: of a link that this side makes; nullptr: the acceptor says.
  HubConnection(PeerId peer, UniqueFd socket, std::string name, std::string origin,
                std::shared_ptr<HubLink> link, PeerHub* hub, PeerHandler* handler);
  ~HubConnection() override;

  absl::Status OnReady() final;
  absl::Status Refuse(const absl::Status& status) final;
  bool wants_write() const override;
  bool reads_while_writing() const final { return true; }
  bool is_own() const final { return dialled_; }

  // Tells a user who waits for it that there is room.
  void CheckWritable();
  // Why it ends, for its handler; the first one counts. Returns what LinkServer is to hear, which
  // logs what is not Cancelled.
  absl::Status End(const absl::Status& why);
  absl::Status EndedByOther() {
    End(absl::UnavailableError("the other compute server closed the link, or has ended"))
        .IgnoreError();
    return absl::CancelledError("closed by the other end");
  }

 protected:
  // What has come: hellos, then messages. An error ends the connection (End()).
  virtual absl::Status Receive() = 0;
  // What comes on another way than that of Receive().
  virtual void PollMessages() {}
  // Best effort.
  virtual void SendError(const absl::Status& status) = 0;

  // Both sides know each other now.
  absl::Status Opened(const PeerIdentity& other);
  void Deliver(std::string_view message);
  // Nobody sends on it any more: first thing in the destructor of a connection that sends with what
  // is its own.
  void Detach();
  bool has_ended() const { return !why_.ok(); }
  // Users want nothing of it any more.
  bool is_closing() const;
  bool is_gone() const;
  bool dialled() const { return dialled_; }
  PeerHub* hub() const { return hub_; }

 private:
  void TellWritable();

  const std::shared_ptr<HubLink> link_;
  PeerHub* const hub_;
  const bool dialled_;
  PeerHandler* handler_;
  uint64_t delivered_ = 0;  // messages
  int turns_when_gone_ = 0;
  absl::Status why_;
};

class PeerHub : public PeerPort, protected LinkServer, private ControlHandler {
 public:
  absl::StatusOr<std::shared_ptr<PeerLink>> Connect(const std::string& address,
                                                    PeerHandler* handler) final;

  // Has the hub's thread look at a link. Any thread.
  void Nudge(std::shared_ptr<HubLink> link);
  const PeerOptions& options() const { return options_; }

 protected:
  explicit PeerHub(const PeerOptions& options);
  static absl::Status CheckOptions(const PeerOptions& options);

  // Once. `listener`: none where nobody may connect.
  absl::Status Start(UniqueFd listener);
  // What OnOwnEvent() is for besides (WatchOwn()).
  virtual absl::Status WatchMore() { return absl::OkStatus(); }
  // Ends all links and the thread: to be called by the destructor of the backend's.
  void Shutdown();
  // OnOwnEvent() follows. Any thread.
  void Wake();

  // A connected socket, or one that is being connected. Never waits. Any thread.
  virtual absl::StatusOr<UniqueFd> Dial(const std::string& address) = 0;
  virtual std::shared_ptr<HubLink> NewLink() = 0;
  // The hub's thread. `name`: who is at the other end, as far as is known.
  virtual std::unique_ptr<HubConnection> NewConnection(PeerId peer, UniqueFd socket,
                                                       std::string name,
                                                       std::shared_ptr<HubLink> link,
                                                       PeerHandler* handler) = 0;
  // Of an accepted socket; PermissionDenied and others: he is not let in.
  virtual absl::StatusOr<std::string> Identify(int socket) = 0;
  // He is told why, as far as that is possible.
  virtual void Refuse(int socket, const absl::Status& why) = 0;

  // --- LinkServer.
  void Welcome(UniqueFd socket) final;
  void OnClosed(ServedLink* connection) final;
  void OnOwnEvent() override;
  void AfterTurn() override;
  int64_t NextTurnNs() const override;
  absl::Status FullError(size_t links) const final;

 private:
  struct Dialled {
    UniqueFd socket;
    std::string address;
    std::shared_ptr<HubLink> link;
    PeerHandler* handler;
  };

  void Run();
  void AdmitAs(UniqueFd socket, std::string name, std::shared_ptr<HubLink> link,
               PeerHandler* handler);

  // --- ControlHandler: links have no calls.
  std::string Handle(PeerId, std::string_view) final { return ""; }
  void OnPeerGone(PeerId) final {}

  const PeerOptions options_;
  UniqueFd wake_;
  std::mutex mutex_;
  bool stopping_ = false;
  std::vector<Dialled> dialled_;
  std::vector<std::shared_ptr<HubLink>> nudged_;
  std::deque<std::pair<int64_t, PeerId>> opening_;  // of this side's links; the hub's thread
  std::thread thread_;
};

}  // namespace pando
