// Messages between the coordinator of a benchmark and its compute servers: JSON objects over a
// socket pair, the same for processes and for threads.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando::bench {

// One end. Move-only. Send() and Receive() may be used by different threads.
class Channel {
 public:
  static absl::StatusOr<std::pair<Channel, Channel>> CreatePair();
  // Takes over an inherited descriptor.
  explicit Channel(int fd) : fd_(fd) {}
  Channel(Channel&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Channel& operator=(Channel&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Channel() { Close(); }

  // Unavailable: the other end is gone.
  absl::Status Send(const nlohmann::json& message);
  // Waits up to `timeout_ms` (-1: for ever); nothing if none came. Unavailable: the other end is
  // gone. DataLoss: not an object.
  absl::StatusOr<std::optional<nlohmann::json>> Receive(int timeout_ms);
  void Close();
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace pando::bench
