// What a shm fabric and its endpoints share: the links to the memory servers (link_client.h, with
// its thread safety and invariants) with the mapped memory of each.
//
// One more invariant:
//   A link's memory is mapped as long as an endpoint uses it, and not longer: that of a dead server
//   is the system's again once its successor has been taken up.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/link/link_client.h"
#include "common/fabric/shm/shm_fabric.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_region.h"
#include "common/fabric/shm/unix_socket.h"

namespace pando {

// All but `gone` and `slots_added` is fixed once connected.
struct ShmLink : Link {
  using FrameType = ShmFrameType;

  PeerProcess process;
  ShmRegion region;
  // Taken for the mailboxes of that moment, where the server was added. For who adds servers.
  std::vector<uint32_t> slots_added;
};

// Slots on servers that were added arrive here, too. PutSlot() from any thread.
class ShmMailbox : public Mailbox {
 public:
  struct AddedSlot {
    std::shared_ptr<ShmLink> link;
    uint32_t slot = 0;
  };

  ShmMailbox(uint16_t compute_server, uint32_t incarnation)
      : compute_server(compute_server), incarnation(incarnation) {}
  // False: nobody is there any more.
  bool PutSlot(AddedSlot slot);
  // Of links with numbers up to `last`.
  std::vector<AddedSlot> TakeSlots(uint32_t last);
  // Nobody takes slots any more; those that are left.
  std::vector<AddedSlot> CloseSlots();

  const uint16_t compute_server;
  const uint32_t incarnation;

 private:
  std::mutex mutex_;
  std::vector<AddedSlot> slots_;
  bool closed_ = false;
};

class ShmClient final : public LinkClient<ShmLink, ShmMailbox> {
 public:
  static absl::StatusOr<std::shared_ptr<ShmClient>> Connect(
      const std::vector<ServerLocation>& servers, const ShmFabricOptions& options);
  ~ShmClient() { StopWatching(); }

  const ShmFabricOptions& options() const { return options_; }

  // Statuses as Fabric::AddServer(). Every mailbox that is attached gets a slot there. Disconnect()
  // of a server that was added and that nobody has taken up gives them back: else the server would
  // keep them, and the connection, as long as this process lives.
  absl::StatusOr<uint32_t> AddServer(const ServerLocation& location,
                                     const std::function<void()>& about_to_add,
                                     uint32_t packet_bytes_min);

  // Tells the server that a slot is free again.
  void CloseSlot(ShmLink* link, uint32_t slot);

 private:
  explicit ShmClient(const ShmFabricOptions& options)
      : options_(options), buffer_(kShmFrameBytesMax) {
    options_.connect_timeout_ms = std::max(options_.connect_timeout_ms, kLaterHandshakeMsMin);
  }

  SendResult Transmit(ShmLink* link, ShmFrameType type, uint32_t sequence,
                      std::string_view body) override;
  absl::Status Serve(ShmLink* link) override;
  absl::Status GiveBack(ShmLink* link, std::string_view body) override;
  int ExitDescriptorOf(const ShmLink& link) const override { return link.process.pidfd.get(); }
  void BeforeDisconnect(ShmLink* link) override;

  // The reply in a message.
  static absl::StatusOr<Reply> ParseReply(std::string_view bytes);
  // Takes a slot for each of the mailboxes.
  absl::Status OpenSlots(const std::shared_ptr<ShmLink>& link, const Mailboxes& mailboxes);

  ShmFabricOptions options_;
  std::vector<std::byte> buffer_;  // the watcher's
};

}  // namespace pando
