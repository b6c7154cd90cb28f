// A session whose coroutines are executed by a thread of its own: those of a library's background
// work, which no call of a user drives. Where sessions may have no threads
// (Capabilities::event_driven) it is not started, and whoever drives the fabric executes them.
//
// Thread safety: Start() and End() are for whoever made it, one after the other.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "compute/core/session_context.h"

namespace pando {

class SessionThread {
 public:
  explicit SessionThread(std::unique_ptr<SessionContext> session) : session_(std::move(session)) {}
  ~SessionThread() { End(); }
  SessionThread(const SessionThread&) = delete;
  SessionThread& operator=(const SessionThread&) = delete;

  // At most once. `name`: at most 15 characters. ResourceExhausted: the system has no thread.
  absl::Status Start(const char* name);
  // Returns when the session has nothing left to do; its coroutines have to end by themselves. What
  // is posted later is not executed. Again: does nothing.
  void End();

  SessionContext& session() { return *session_; }
  const SessionContext& session() const { return *session_; }
  Scheduler& scheduler() { return session_->scheduler(); }

 private:
  const std::unique_ptr<SessionContext> session_;
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace pando
