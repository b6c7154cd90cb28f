// One client's connection as the memory server sees it: hello, then requests, answered one at a
// time. Not thread-safe.
//
// Invariants:
//   1. At most one reply waits to be sent; until it is gone nothing further is read.
//   2. A connection that sends what is no frame, or frames out of order, is closed; it cannot harm
//   others.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "common/base/rate_limited_log.h"
#include "common/base/unique_fd.h"
#include "common/fabric/server.h"
#include "common/fabric/shm/shm_frame.h"
#include "common/fabric/shm/shm_region.h"
#include "common/fabric/shm/slot_table.h"
#include "common/fabric/shm/unix_socket.h"

namespace pando {

class ShmConnection {
 public:
  // What a connection needs of its server.
  struct Context {
    ServerId server_id;
    const ShmRegion* region;
    SlotTable* slots;
    ControlHandler* handler;
    RateLimitedLog* slot_log;
    std::span<std::byte> buffer;  // kShmFrameBytesMax
  };

  ShmConnection(PeerId peer, UniqueFd socket, PeerProcess process)
      : peer_(peer), socket_(std::move(socket)), process_(std::move(process)) {}

  // The socket can be read or written. An error: close it (Cancelled: the client did).
  absl::Status OnReady(const Context& context, bool writable);
  void CloseSocket() {
    socket_.Reset();
    reply_.clear();
  }

  PeerId peer() const { return peer_; }
  pid_t pid() const { return process_.pid; }
  int socket() const { return socket_.get(); }
  int pidfd() const { return process_.pidfd.get(); }
  bool introduced() const { return introduced_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  bool wants_write() const { return !reply_.empty(); }
  const std::vector<uint32_t>& slots() const { return slots_; }

  // Best effort: tells the client why, then the caller closes.
  absl::Status Refuse(const absl::Status& status);

  uint32_t watched_events = EPOLLIN;  // the server's notes
  bool has_time = false;              // until it has an identity

 private:
  absl::Status HandleFrame(const Context& context, std::string_view bytes);
  absl::Status HandleRequest(const Context& context, const ShmFrame& frame);
  absl::Status Hello(const Context& context);
  absl::Status CloseSlot(const Context& context, std::string_view body);
  // Sends the frame or keeps it until the socket takes it.
  absl::Status Reply(ShmFrameType type, uint32_t sequence, std::string_view body);

  const PeerId peer_;
  UniqueFd socket_;
  const PeerProcess process_;
  bool introduced_ = false;
  std::vector<uint32_t> slots_;
  std::string reply_;  // waiting for the socket
};

}  // namespace pando
