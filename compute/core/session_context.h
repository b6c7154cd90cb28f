// What every operation of a session works with: its queue pairs, coroutines, buffers, random
// numbers and counters. Lower than locks and index, so that both can use it. Not thread-safe,
// except the counters.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/base/epoch.h"
#include "common/base/random.h"
#include "common/fabric/fabric.h"
#include "common/sched/scheduler.h"
#include "common/wire/remote_address.h"
#include "compute/core/buffer_pool.h"
#include "compute/core/counters.h"
#include "compute/core/membership.h"
#include "pando/options.h"

namespace pando {

class SessionContext {
 public:
  // `coroutines_needed`: Scheduler::Options.
  SessionContext(std::unique_ptr<Endpoint> endpoint, EpochDomain* epochs, int coroutines_max,
                 uint64_t seed, int coroutines_needed = std::numeric_limits<int>::max());
  ~SessionContext();
  // Has so many coroutines made now (Scheduler::Prepare()). ResourceExhausted: there is no room.
  absl::Status Prepare(int coroutines);

  Endpoint& endpoint() { return *endpoint_; }
  // nullptr: time passes by itself (common/fabric/cpu_costs.h).
  CpuCosts* cpu_costs() const { return cpu_costs_; }
  Scheduler& scheduler() { return scheduler_; }
  BufferPool& buffers() { return buffers_; }
  Random& random() { return random_; }
  SessionCounters& counters() { return counters_; }
  const SessionCounters& counters() const { return counters_; }
  EpochDomain::Slot* epoch_slot() { return epoch_slot_; }
  int64_t NowNs() const { return endpoint_->clock().NowNs(); }
  // Eight zero bytes in registered memory: the source of lock releases.
  absl::StatusOr<LocalBuffer> ZeroWord();

  // The servers that this session's client works with; as they are from now on. At most once.
  void set_membership(Membership* members) {
    members_ = members;
    TakeView(members->view());
  }
  Membership* membership() const { return members_; }
  // Takes up servers that have come, or come back, since (membership.h). What is in flight goes on.
  [[gnu::always_inline]] void AdoptServers() {
    if (members_ != nullptr && members_->generation() != generation_) [[unlikely]]
      TakeView(members_->view());
  }
  // Of the servers that have been taken up.
  uint64_t generation() const { return generation_; }
  uint64_t LifeOf(ServerId server) const;  // 0: it has not been taken up
  // Whether this life of the server was taken up after `generation`.
  bool WasAdoptedSince(ServerId server, uint64_t generation) const;

  // Set once by the part that learns when this compute server is cut off (rule C2); from then on
  // nothing is posted any more.
  void set_fenced_flag(const std::atomic<bool>* fenced) { fenced_ = fenced; }
  bool fenced() const { return fenced_ != nullptr && fenced_->load(std::memory_order_relaxed); }
  // From now on this session counts as cut off, whatever its client knows (rule L4).
  void End();

  // Smoothed duration of a one-round-trip chain, ns; the unit of back-off. At least 1 us: below
  // that a waiter that sleeps costs more than it waits for.
  int64_t chain_ns() const { return chain_ns_; }
  // A chain of this session, the whole of it and `round_trip_ns` a round trip. One that took more
  // than `kSlowTimes` as long as those before it says little of the fabric: this process was
  // stopped, or its processor was elsewhere. It counts as that many, and what was in flight beside
  // it not at all. A fabric that has really become slower is followed all the same: if a thousand
  // times as slow, within a dozen chains, each posted after the one before was done.
  void ObserveChain(int64_t round_trip_ns, int64_t posted_ns, int64_t completed_ns) {
    if (round_trip_ns > kSlowTimes * chain_ns_) [[unlikely]] {
      return ObserveSlowChain(posted_ns, completed_ns);
    }
    chain_ns_ = std::max(kChainNsMin, (chain_ns_ * (kSmoothing - 1) + round_trip_ns) / kSmoothing);
  }
  // How long to wait for what takes others so many chains. No longer than ten milliseconds, or
  // four chain times if that is more: a session that waits longer waits for a holder that is
  // stopped or dead, and looks again now and then.
  int64_t WaitNs(int64_t chain_times) const {
    return std::min(chain_times * chain_ns_, std::max(kWaitNsMax, kWaitChainsMin * chain_ns_));
  }

 private:
  static constexpr int64_t kChainNsMin = kMicrosecondNs;
  static constexpr int kSmoothing = 8;  // weight of the past in the moving average
  static constexpr int64_t kSlowTimes = 16;
  static constexpr int64_t kWaitNsMax = 10 * kMillisecondNs;
  static constexpr int64_t kWaitChainsMin = 4;

  void ObserveSlowChain(int64_t posted_ns, int64_t completed_ns);

  void TakeView(std::shared_ptr<const Membership::View> view);

  std::unique_ptr<Endpoint> endpoint_;
  CpuCosts* const cpu_costs_;
  Scheduler scheduler_;
  BufferPool buffers_;
  Random random_;
  SessionCounters counters_;
  EpochDomain* const epochs_;
  EpochDomain::Slot* const epoch_slot_;
  BufferLease zero_word_;
  const std::atomic<bool>* fenced_ = nullptr;
  Membership* members_ = nullptr;
  std::shared_ptr<const Membership::View> view_;
  uint64_t generation_ = 0;
  int64_t chain_ns_ = 2'000;
  int64_t slow_until_ns_ = INT64_MIN;  // when the last slow chain that counted was done
};

// What every operation of a compute server that was cut off ends in.
absl::Status FencedError();

// A node that its parent level does not know yet (rule S3).
struct MissingSeparator {
  uint8_t parent_level = 0;
  std::string separator;
  Reference child;
};

// One operation (or one internal job of the index): its session, deadline and cost so far.
struct OperationContext {
  static constexpr int64_t kUnset = INT64_MIN;

  OperationContext(SessionContext* session, int64_t deadline_ns)
      : session(*session), deadline_ns_(deadline_ns) {}
  // The deadline is `timeout_ns` from now. Most operations never look at it, and looking at the
  // clock is expensive: "now" is the time when the first chain is posted, or when somebody asks.
  // `until_ns`: where it is known all the same, and then what counts.
  struct Timeout {
    int64_t ns;
    int64_t until_ns = kUnset;
  };
  OperationContext(SessionContext* session, Timeout timeout)
      : session(*session), deadline_ns_(timeout.until_ns), timeout_ns_(timeout.ns) {}
  // A part of `whole` with a deadline of its own, and with its own cost.
  OperationContext(const OperationContext& whole, int64_t deadline_ns)
      : session(whole.session),
        fate(whole.fate),
        generation_(whole.generation_),
        deadline_ns_(deadline_ns) {}

  SessionContext& session;
  // Of the tree that the operation works on, if any: where it has lost what it had on a server,
  // nothing of this operation reaches the server's new life.
  const TreeFate* fate = nullptr;
  OperationCost cost;
  // What the operation noticed on its way; the next write repairs it, never a get itself.
  std::optional<MissingSeparator> missing;
  // The low fence of a leaf that an erase left underfull (rule M1).
  std::optional<std::string> underfull;
  // A memory server has nodes of dead clients (rule C5).
  bool sweep_due = false;

  // Posts and waits; counts round trips, verbs and bytes. The chain's status, annotated by the
  // fabric.
  absl::Status Await(Chain* chain);
  // The same for chains to several servers: they count once. The first error.
  absl::Status AwaitAll(std::span<Chain* const> chains);
  // As Await(chain), with another one that is posted together with it, and of which nothing else
  // is expected: it says itself how it ended (done() and ok()). Waits for both.
  absl::Status AwaitWith(Chain* chain, Chain* other);

  // Of a chain that is for this life of its server alone (rule R8), and is never posted again:
  // Unavailable, and nothing has happened, where the session knows another one.
  absl::Status AwaitOnLife(Chain* chain, uint64_t life);

  // Unavailable: the tree is lost, as a server that it had nodes on has started again. For who asks
  // a server for the tree and posts nothing; the session has taken up that life before.
  absl::Status CheckFate() const;

  // To which life of the server the last chain went that this operation had for it. 0: that life is
  // over for the session, which has taken up another one since; or nothing was there to post to.
  uint64_t LifeOf(ServerId server) const {
    return session.WasAdoptedSince(server, generation_) ? 0 : session.LifeOf(server);
  }

  // Waits for a server that this client does not know, but a node says that it is there: it may
  // have just come. False: nobody finds it in time.
  bool AwaitServer(ServerId server);

  int64_t deadline_ns() {
    if (deadline_ns_ == kUnset) deadline_ns_ = session.NowNs() + timeout_ns_;
    return deadline_ns_;
  }
  bool expired() { return session.NowNs() >= deadline_ns(); }
  absl::Status DeadlineError(std::string_view doing) const;
  // Sleeps for SessionContext::WaitNs(), +-50 %, but not past the deadline.
  void BackOff(int64_t chain_times);

 private:
  // A chain that cannot be started at once waits up to the deadline.
  void LimitWait(Chain* chain) const {
    const bool unset = deadline_ns_ == kUnset;
    chain->LimitWait(unset ? kNeverNs : deadline_ns_, unset ? timeout_ns_ : kNeverNs);
  }
  // Adds the chain to what this operation and its session have cost.
  const ChainTally& Count(const Chain& chain);

  // Servers have come since the operation looked last. Unavailable: what the tree had on this one
  // is gone.
  absl::Status CatchUp(ServerId server);
  // Of a chain that failed: Ok where it was posted again, since nothing was there to post it to
  // before.
  absl::Status AwaitAgain(Chain* chain);

  uint64_t generation_ = session.generation();
  int64_t deadline_ns_ = kUnset;
  const int64_t timeout_ns_ = 0;
};

inline const ChainTally& OperationContext::Count(const Chain& chain) {
  const ChainTally& tally = chain.tally();
  session.counters().Add(tally);
  cost.verbs += tally.all_verbs();
  cost.bytes_read += tally.bytes_read();
  cost.bytes_written += tally.bytes_written();
  return tally;
}

// Inline, for the sake of the returns behind a suspension (common/sched/README.md).
inline absl::Status OperationContext::Await(Chain* chain) {
  if (session.fenced()) [[unlikely]]
    return FencedError();
  if (generation_ != session.generation()) [[unlikely]] {
    if (absl::Status status = CatchUp(chain->server()); !status.ok()) return status;
  }
  // Chains of WRITEs alone need not know when they were posted (shm).
  if (deadline_ns_ == kUnset && chain->verb(0).kind == VerbKind::kWrite) (void)deadline_ns();
  LimitWait(chain);
  session.scheduler().Await(chain);
  if (deadline_ns_ == kUnset) deadline_ns_ = chain->posted_ns() + timeout_ns_;
  const uint32_t round_trips = Count(*chain).round_trips;
  cost.round_trips += round_trips;
  // What a dead server takes to say so is no unit of back-off.
  if (chain->ok()) {
    const int64_t started_ns = chain->started_ns(), completed_ns = chain->completed_ns();
    const int64_t duration_ns = completed_ns - started_ns;
    session.ObserveChain(round_trips == 1 ? duration_ns : duration_ns / round_trips, started_ns,
                         completed_ns);
    return absl::OkStatus();
  }
  return AwaitAgain(chain);
}

}  // namespace pando
