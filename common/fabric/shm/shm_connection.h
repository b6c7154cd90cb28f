// One client's connection as the memory server sees it (served_link.h, with its invariants): one
// message is one frame, and at most one reply waits to be sent. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/base/rate_limited_log.h"
#include "common/base/unique_fd.h"
#include "common/fabric/link/served_link.h"
#include "common/fabric/server.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_region.h"
#include "common/fabric/shm/slot_table.h"
#include "common/fabric/shm/unix_socket.h"

namespace pando {

class ShmConnection final : public ServedLink {
 public:
  // What connections need of their server.
  struct Context {
    ServerId server_id;
    const ShmRegion* region;
    SlotTable* slots;
    ControlHandler* handler;
    RateLimitedLog* slot_log;
    std::span<std::byte> buffer;  // kShmFrameBytesMax
    // Whether this process (its origin()) may have one more endpoint without an identity.
    std::function<absl::Status(const std::string& process)> check_strangers_slots;
  };

  ShmConnection(PeerId peer, UniqueFd socket, PeerProcess process, const Context* context);

  absl::Status OnReady() override;
  absl::Status Refuse(const absl::Status& status) override;
  bool wants_write() const override { return !reply_.empty(); }
  int exit_descriptor() const override { return process_.pidfd.get(); }

  // What it holds stays the client's.
  void Close() {
    CloseSocket();
    reply_.clear();
  }
  const std::vector<uint32_t>& slots() const { return slots_; }

 private:
  absl::Status HandleFrame(std::string_view bytes);
  absl::Status HandleRequest(const ShmFrame& frame);
  absl::Status Hello();
  absl::Status OpenSlot(const ShmFrame& frame);
  absl::Status CloseSlot(std::string_view body);
  // Sends the frame or keeps it until the socket takes it.
  absl::Status Reply(ShmFrameType type, uint32_t sequence, std::string_view body);

  const PeerProcess process_;
  const Context& context_;
  std::vector<uint32_t> slots_;
  std::string reply_;  // waiting for the socket
};

}  // namespace pando
