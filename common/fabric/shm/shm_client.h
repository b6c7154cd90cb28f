// What a shm fabric and its endpoints share: the connections to the memory servers, the mapped
// memory, the requests under way, and the watcher thread, which receives replies and notices the
// death of servers.
//
// Thread safety: thread-safe. The last owner to go joins the watcher; that is never the watcher
// itself. Invariants:
//   1. The watcher touches no caller's object: replies go to a Mailbox, which its owner shares.
//   2. Once a server is gone it stays gone; every request to it that was under way gets an
//   Unavailable reply.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/server_index.h"
#include "common/fabric/shm/doorbell.h"
#include "common/fabric/shm/shm_fabric.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_region.h"
#include "common/fabric/shm/unix_socket.h"

namespace pando {

// One server as a client sees it. All but `gone` is fixed once connected.
struct ShmLink {
  ServerLocation location;
  UniqueFd socket;
  PeerProcess process;
  ShmRegion region;
  std::atomic<bool> gone{false};

  absl::Status GoneError() const;  // Unavailable, names the server
};

// Where replies for one endpoint arrive.
class Mailbox {
 public:
  struct Reply {
    uint32_t sequence = 0;
    ShmFrameType type = ShmFrameType::kError;
    absl::Status status;  // kError: what went wrong
    std::string body;
  };

  absl::Status Init() { return doorbell_.Init(); }
  void Put(Reply reply);  // rings
  std::vector<Reply> TakeAll();
  Doorbell& doorbell() { return doorbell_; }

 private:
  std::mutex mutex_;
  std::vector<Reply> replies_;
  Doorbell doorbell_;
};

class ShmClient {
 public:
  static constexpr int kNoLink = ServerIndex::kNone;

  static absl::StatusOr<std::shared_ptr<ShmClient>> Connect(
      const std::vector<ServerLocation>& servers, const ShmFabricOptions& options);
  ~ShmClient();
  ShmClient(const ShmClient&) = delete;
  ShmClient& operator=(const ShmClient&) = delete;

  // By ascending server id.
  const std::vector<std::unique_ptr<ShmLink>>& links() const { return links_; }
  int LinkIndex(ServerId server) const { return index_.Of(server); }
  const ShmFabricOptions& options() const { return options_; }

  // Mailboxes whose doorbell rings when a server goes.
  void Attach(std::shared_ptr<Mailbox> mailbox);
  void Detach(const std::shared_ptr<Mailbox>& mailbox);

  // Sends a request whose reply goes to `mailbox`. The sequence, or 0: the socket is full, try
  // again later. Unavailable: the server is gone.
  absl::StatusOr<uint32_t> Send(int link, ShmFrameType type, std::string_view body,
                                std::shared_ptr<Mailbox> mailbox);
  // The reply is not wanted any more.
  void Forget(uint32_t sequence);
  // Tells the server that a slot is free again.
  void CloseSlot(int link, uint32_t slot);

 private:
  struct Waiter {
    int link;
    std::shared_ptr<Mailbox> mailbox;
  };

  explicit ShmClient(const ShmFabricOptions& options) : options_(options) {}
  absl::Status Start();
  void Watch();
  // False: nothing more to expect from that server.
  bool ReceiveFrom(int link, std::vector<std::byte>* buffer);
  absl::Status Deliver(int link, std::string_view bytes);
  void MarkGone(int link, const absl::Status& why);

  const ShmFabricOptions options_;
  std::vector<std::unique_ptr<ShmLink>> links_;
  ServerIndex index_;
  UniqueFd stop_;
  std::thread watcher_;

  std::mutex mutex_;
  uint32_t last_sequence_ = 0;
  absl::flat_hash_map<uint32_t, Waiter> waiters_;
  absl::flat_hash_set<std::shared_ptr<Mailbox>> mailboxes_;
};

}  // namespace pando
