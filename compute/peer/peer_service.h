// Answers peers for a member (rule P4): what they ask is executed by the owner's rules, on sessions
// of the service, many at a time.
//
//   PeerService service({.identity = me, .event_driven = ...}, std::move(sessions), &executor);
//   auto port = fabric->OpenPeers({.identity = me, .acceptor = &service});
//
// A message is validated on the port's thread and posted to a session of the service, where each of
// its requests is a task: writes of one message share a group commit. What is ready when the tasks
// that are ready have run once is answered in one message; what waits follows, together with
// whatever else is ready within two chain times (at once, where rule P2 lets messages go), or when
// nothing is left to wait for.
//
// Thread safety: OnAccepted() and what links call, from the port's thread. The port is destroyed
// before the service.
//
// Invariants:
//   1. Each request that was taken is answered once, or its link has broken. It is executed at most
//      once, and not at all where its target is another compute server or incarnation, its time has
//      run out, or its link had broken before it began.
//   2. A link has `requests_max_of_link` requests under way (taken, and their answer not sent) at
//      most: beyond that it is closed. All links together have `requests_max`: beyond that requests
//      are answered with ResourceExhausted, without effect.
//   3. A link that takes no more messages holds up its own answers only.
//   4. A link's requests are executed by one session, that of the fewest links when it came.
//   5. The destructor returns when nothing is executed any more. Links have ended then (CHECKed).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/base/rate_limited_log.h"
#include "common/fabric/peer.h"
#include "compute/core/session_context.h"
#include "compute/core/session_thread.h"
#include "compute/peer/peer_counters.h"
#include "compute/peer/peer_format.h"

namespace pando {

class ServedPeer;

// The owner's side. In a coroutine of a session of the service, many at a time. It never asks a
// peer itself; the strings of the request hold until it returns.
class PeerExecutor {
 public:
  virtual ~PeerExecutor() = default;
  // `answer` is reset; for a scan it is one (PeerAnswer::is_scan), to be filled by AddRow() and
  // SetReached(). What is asked for is a stranger's: the tree, the lengths of keys and values, and
  // the function's number need not be any that exist.
  virtual void Execute(OperationContext& context, const PeerRequest& request,
                       PeerAnswer* answer) = 0;
};

class PeerService final : public PeerAcceptor {
 public:
  struct Options {
    PeerIdentity identity;
    bool cheap_messages = false;  // the fabric's (Capabilities), for rule P2
    // No session may have a thread of its own (Capabilities::event_driven).
    bool event_driven = false;
    size_t requests_max_of_link = 1024;  // as many as a PeerClient has unanswered
    size_t requests_max = size_t{64} << 10;
  };

  // At least one session, used by the service only. `executor` outlives it.
  PeerService(const Options& options, std::vector<std::unique_ptr<SessionContext>> sessions,
              PeerExecutor* executor);
  // Before any link. ResourceExhausted: the system has no thread for a session.
  absl::Status Start();
  ~PeerService();
  PeerService(const PeerService&) = delete;
  PeerService& operator=(const PeerService&) = delete;

  PeerHandler* OnAccepted(const std::shared_ptr<PeerLink>& link) override;

  const PeerCounters& counters() const { return counters_; }

 private:
  friend class ServedPeer;
  struct Lane {
    explicit Lane(std::unique_ptr<SessionContext> of) : session(std::move(of)) {}
    SessionThread session;
    size_t links = 0;  // under mutex_
  };
  struct Served {
    std::shared_ptr<ServedPeer> peer;
    Lane* lane = nullptr;
  };

  // The link has ended.
  void Forget(PeerLink* link);

  const Options options_;
  PeerExecutor* const executor_;
  PeerCounters counters_;
  RateLimitedLog closed_log_;
  std::atomic<size_t> under_way_{0};
  std::deque<Lane> lanes_;
  std::mutex mutex_;
  absl::flat_hash_map<PeerLink*, Served> peers_;
};

}  // namespace pando
