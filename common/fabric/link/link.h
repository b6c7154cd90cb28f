// One connection to a server, and one life of that server, as its client sees it: a memory server,
// or another process that serves (link_server.h).
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "common/base/unique_fd.h"
#include "common/registry/server_location.h"

namespace pando {

// Backends derive from it. All but `gone` is fixed once it is connected.
struct Link {
  ServerLocation location;
  UniqueFd socket;
  uint32_t number = 0;  // 0: there from the start; else the how-manieth that was added
  std::atomic<bool> gone{false};

  absl::Status GoneError() const;  // Unavailable, names the server
};

// kFull: nothing was sent, try again later. kGone: the connection has ended.
enum class SendResult { kSent, kFull, kGone };

}  // namespace pando
