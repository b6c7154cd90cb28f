// What a shm fabric and its endpoints share: the connections to the memory servers, the mapped
// memory, the requests under way, and the watcher thread, which receives replies and notices the
// death of servers.
//
// Servers may be added while endpoints work (AddServer()): each link has a number, in the order of
// its coming, and an endpoint uses those that it has taken up.
//
// Thread safety: thread-safe. The last owner to go joins the watcher; that is never the watcher
// itself. Invariants:
//   1. The watcher touches no caller's object: replies go to a Mailbox, which its owner shares.
//   2. Once a server is gone it stays gone; every request to it that was under way gets an
//   Unavailable reply. Another life of it is another link.
//   3. A link's memory is mapped as long as an endpoint uses it, and not longer: that of a dead
//   server is the system's again once its successor has been taken up.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/shm/doorbell.h"
#include "common/fabric/shm/shm_fabric.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_region.h"
#include "common/fabric/shm/unix_socket.h"

namespace pando {

// One server as a client sees it. All but `gone` and `slots_added` is fixed once connected.
struct ShmLink {
  ServerLocation location;
  UniqueFd socket;
  PeerProcess process;
  ShmRegion region;
  uint32_t number = 0;
  std::atomic<bool> gone{false};
  // Taken for the mailboxes of that moment, where the server was added. For who adds servers.
  std::vector<uint32_t> slots_added;

  absl::Status GoneError() const;  // Unavailable, names the server
};

// Where replies for one endpoint arrive, and slots on servers that were added.
class Mailbox {
 public:
  struct Reply {
    uint32_t sequence = 0;
    ShmFrameType type = ShmFrameType::kError;
    absl::Status status;  // kError: what went wrong
    std::string body;
  };

  struct AddedSlot {
    std::shared_ptr<ShmLink> link;
    uint32_t slot = 0;
  };

  Mailbox(uint16_t compute_server, uint32_t incarnation)
      : compute_server(compute_server), incarnation(incarnation) {}
  absl::Status Init() { return doorbell_.Init(); }
  void Put(Reply reply);  // rings
  std::vector<Reply> TakeAll();
  // False: nobody is there any more.
  bool PutSlot(AddedSlot slot);
  // Of links with numbers below `end`.
  std::vector<AddedSlot> TakeSlots(uint32_t end);
  // Nobody takes slots any more; those that are left.
  std::vector<AddedSlot> CloseSlots();
  Doorbell& doorbell() { return doorbell_; }

  const uint16_t compute_server;
  const uint32_t incarnation;

 private:
  std::mutex mutex_;
  std::vector<Reply> replies_;
  std::vector<AddedSlot> slots_;
  bool closed_ = false;
  Doorbell doorbell_;
};

class ShmClient {
 public:
  static absl::StatusOr<std::shared_ptr<ShmClient>> Connect(
      const std::vector<ServerLocation>& servers, const ShmFabricOptions& options);
  ~ShmClient();
  ShmClient(const ShmClient&) = delete;
  ShmClient& operator=(const ShmClient&) = delete;

  using Links = std::vector<std::shared_ptr<ShmLink>>;
  // The latest of each server, by ascending server id.
  Links links() const;
  std::shared_ptr<ShmLink> LinkTo(ServerId server) const;  // nullptr: none
  const ShmFabricOptions& options() const { return options_; }

  // Statuses as Fabric::AddServer(). Every mailbox that is attached gets a slot there. Disconnect()
  // of a server that was added and that nobody has taken up gives them back: else the server would
  // keep them, and the connection, as long as this process lives.
  absl::StatusOr<uint32_t> AddServer(const ServerLocation& location,
                                     const std::function<void()>& about_to_add,
                                     uint32_t packet_bytes_min);
  void Disconnect(ServerId server);

  // Mailboxes whose doorbell rings when a server goes. The links of this moment: slots on later
  // ones come by PutSlot().
  Links Attach(std::shared_ptr<Mailbox> mailbox);
  void Detach(const std::shared_ptr<Mailbox>& mailbox);

  // Sends a request whose reply goes to `mailbox`. The sequence, or 0: the socket is full, try
  // again later. Unavailable: the server is gone.
  absl::StatusOr<uint32_t> Send(ShmLink* link, ShmFrameType type, std::string_view body,
                                std::shared_ptr<Mailbox> mailbox);
  // The reply is not wanted any more.
  void Forget(uint32_t sequence);
  // Tells the server that a slot is free again.
  void CloseSlot(ShmLink* link, uint32_t slot);

 private:
  struct Waiter {
    ShmLink* link;
    std::shared_ptr<Mailbox> mailbox;
  };

  explicit ShmClient(const ShmFabricOptions& options) : options_(options) {}
  absl::Status Start();
  void Watch();
  void Nudge();
  // The watcher's view of the links.
  Links LiveLinks() const;
  // False: nothing more to expect from that server.
  bool ReceiveFrom(ShmLink* link, std::vector<std::byte>* buffer);
  absl::Status Deliver(ShmLink* link, std::string_view bytes);
  void MarkGone(ShmLink* link, const absl::Status& why);
  // Takes a slot for each of the mailboxes.
  absl::Status OpenSlots(const std::shared_ptr<ShmLink>& link,
                         const std::vector<std::shared_ptr<Mailbox>>& mailboxes);

  const ShmFabricOptions options_;
  UniqueFd nudge_;
  std::atomic<bool> stop_{false};
  std::thread watcher_;

  mutable std::mutex mutex_;
  absl::btree_map<ServerId, std::shared_ptr<ShmLink>> links_;  // the latest of each server
  uint32_t links_added_ = 0;
  uint32_t last_sequence_ = 0;
  absl::flat_hash_map<uint32_t, Waiter> waiters_;
  absl::flat_hash_set<std::shared_ptr<Mailbox>> mailboxes_;
};

}  // namespace pando
