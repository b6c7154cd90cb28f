// Renews a compute server's leases (rule C1) and notices when it has been fenced.
//
// Runs in a session of its own: on a fabric that is event-driven among its events, elsewhere in a
// thread. Thread safety: fenced() from any thread; construction and destruction outside coroutines.
// Invariants:
//   1. Each server is pinged four times a lease; a lost ping is no reason to wait. Where the
//      connection has ended the server is asked over another one whether this compute server is
//      dead there (rule C2): it may live on at the others.
//   2. Once fenced by one server, for ever and everywhere: nothing is pinged any more, so that the
//      leases at the others run out, too (rule C2).
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <vector>

#include "common/base/time_constants.h"
#include "common/wire/control.h"
#include "compute/core/control_channel.h"
#include "compute/core/session_context.h"
#include "compute/core/session_thread.h"

namespace pando {

class Heartbeat {
 public:
  struct Lease {
    ServerId server = 0;
    int64_t lease_ns = 0;
  };

  // What a server that this client has lost says about it. Blocks; called on threads of their own.
  using AskAnew = std::function<absl::StatusOr<ClientLiveness>(ServerId server)>;

  // `session` has a coroutine for each lease that will be added. Without `ask_anew` nobody is
  // asked. A server that does not answer at all holds the end up for at most `ping_max_ns`.
  Heartbeat(std::unique_ptr<SessionContext> session, ControlChannel* control, bool event_driven,
            AskAnew ask_anew = nullptr, int64_t ping_max_ns = TimeConstants().ping_max_ns);
  // Before all else. ResourceExhausted: the system has no thread for it.
  absl::Status Start();
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // From now on this server is pinged; as soon as it knows the compute server. By the owner.
  // Another life of a server that is pinged already has that one's coroutine.
  void Add(const Lease& lease);

  const std::atomic<bool>& fenced() const { return fenced_; }
  // Acts as if fenced (rule C2): the leases run out everywhere. From any thread.
  void GiveUp();

 private:
  // One server's pings, in a coroutine of its own.
  struct Pulse {
    Pulse(const Lease& of, Scheduler* scheduler)
        : server(of.server), lease_ns(of.lease_ns), parking(scheduler) {}
    const ServerId server;
    std::atomic<int64_t> lease_ns;
    std::atomic<uint32_t> life{1};  // how-manieth of the server
    Parking parking;
    // Of a server whose connection has ended.
    std::future<void> asking;
    std::atomic<uint32_t> answered{0};  // the last life of which everything is known
    int64_t ask_again_ns = 0, ask_pause_ns = 0;
  };
  // Begins to ask the server again, unless that has been done, or is too early.
  void Ask(Pulse* pulse);
  void Beat(const std::shared_ptr<Pulse>& pulse);
  void Stop();

  SessionThread session_;  // without a thread if event-driven
  ControlChannel* const control_;
  const AskAnew ask_anew_;
  const bool event_driven_;
  const int64_t ping_max_ns_;
  std::mutex pulses_mutex_;
  std::vector<std::shared_ptr<Pulse>> pulses_;
  std::atomic<bool> stopping_{false}, fenced_{false};
};

}  // namespace pando
