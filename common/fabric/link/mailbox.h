// Where the replies for one endpoint arrive, and where its thread sleeps.
//
// Thread safety: Put() and the sleeper's Wake() from any thread; the rest from the endpoint's.
// Invariants:
//   1. What Put() has taken is returned once, by TakeAll() or Close().
//   2. After Close() nothing is taken any more: its bringer is told so.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/link/sleeper.h"

namespace pando {

// What a reply is, however a backend's frames say it.
enum class ReplyKind {
  kError,   // the request was refused
  kOpened,  // something of the server's is the client's now: a slot, a queue pair
  kCall,    // the answer of the ControlHandler
};

struct Reply {
  uint32_t sequence = 0;
  ReplyKind kind = ReplyKind::kError;
  absl::Status status;  // kError: what went wrong
  std::string body;
};
// Of a frame with that kind (nullopt: it is no reply). An error: the connection is useless, as the
// server says with an error of sequence 0, or DataLoss.
absl::StatusOr<Reply> MakeReply(std::optional<ReplyKind> kind, uint32_t sequence, std::string body);

class Mailbox {
 public:
  // Once, before use.
  absl::Status Init() { return sleeper_.Init(); }
  // Wakes. False: the mailbox is closed.
  bool Put(Reply reply);
  std::vector<Reply> TakeAll();
  // Nothing arrives from now on; what has.
  std::vector<Reply> Close();
  bool empty() const { return !filled_.load(std::memory_order_acquire); }
  Sleeper& sleeper() { return sleeper_; }

 private:
  std::mutex mutex_;
  std::vector<Reply> replies_;
  bool closed_ = false;
  std::atomic<bool> filled_{false};
  Sleeper sleeper_;
};

}  // namespace pando
