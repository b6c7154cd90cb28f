// One client's connection as a server sees it: a hello, then requests, answered in their order; and
// what of the server's it holds. Backends derive from it and read their frames. Not thread-safe:
// the server's thread.
//
// Invariants:
//   1. While replies wait to be sent nothing further is handled: a client that does not read fills
//      nothing.
//   2. A connection that sends what is no frame, or frames out of order, is closed.
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/fabric/server.h"

namespace pando {

class ServedLink {
 public:
  // `name`: of the other side, for logs. `origin`: whom the connection counts for (strangers.h).
  ServedLink(PeerId peer, UniqueFd socket, std::string name, std::string origin)
      : peer_(peer),
        socket_(std::move(socket)),
        name_(std::move(name)),
        origin_(std::move(origin)) {}
  virtual ~ServedLink() = default;
  ServedLink(const ServedLink&) = delete;
  ServedLink& operator=(const ServedLink&) = delete;

  // The socket can be read or written, or the server has something new for it. An error: close it
  // (Cancelled: the client did).
  virtual absl::Status OnReady() = 0;
  // Best effort: tells the client why, then the caller closes. Returns `status`.
  virtual absl::Status Refuse(const absl::Status& status) = 0;
  virtual bool wants_write() const = 0;
  // While it wants to be written it is read, too: both ends may send at any time.
  virtual bool reads_while_writing() const { return false; }
  // Made by this side: no stranger.
  virtual bool is_own() const { return false; }
  // Neither read nor written for now: the server calls OnReady() when it goes on.
  virtual bool is_held() const { return false; }
  // It was stopped at the end of its turn with something that it has read already: the server calls
  // OnReady() again in the next one, whatever its socket says.
  virtual bool has_more() const { return false; }
  // Readable when the client's process has exited; -1: no such thing.
  virtual int exit_descriptor() const { return -1; }

  PeerId peer() const { return peer_; }
  int socket() const { return socket_.get(); }
  const std::string& name() const { return name_; }
  const std::string& origin() const { return origin_; }
  bool introduced() const { return introduced_; }
  // Else the connection has ended, and what it holds is still the client's.
  bool is_open() const { return static_cast<bool>(socket_); }

  uint32_t watched_events = EPOLLIN;  // the server's notes
  bool has_time = false;              // until it has an identity
  bool had_identity = false;          // once, or has one

 protected:
  void CloseSocket() { socket_.Reset(); }
  // The handler's answer. Internal: it is over `reply_bytes_max`, which is an error of ours.
  absl::StatusOr<std::string> AnswerCall(ControlHandler* handler, std::string_view request,
                                         size_t reply_bytes_max) const;

  bool introduced_ = false;

 private:
  const PeerId peer_;
  UniqueFd socket_;
  const std::string name_;
  const std::string origin_;
};

}  // namespace pando
