#include "compute/core/session_context.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando {
namespace {
constexpr int64_t kChainNsMin = kMicrosecondNs;
constexpr int kSmoothing = 8;  // weight of the past in the moving average
}  // namespace

SessionContext::SessionContext(std::unique_ptr<Endpoint> endpoint, EpochDomain* epochs,
                               int coroutines_max, uint64_t seed)
    : endpoint_(std::move(endpoint)),
      scheduler_(endpoint_.get(), Scheduler::Options{.coroutines_max = coroutines_max}),
      buffers_(endpoint_.get()),
      random_(seed),
      epochs_(epochs),
      epoch_slot_(epochs->Register()) {}

SessionContext::~SessionContext() { epochs_->Unregister(epoch_slot_); }

absl::StatusOr<LocalBuffer> SessionContext::ZeroWord() {
  if (zero_word_.data() == nullptr) {
    PANDO_ASSIGN_OR_RETURN(zero_word_, buffers_.Lease(64));
    std::memset(zero_word_.data(), 0, 64);
  }
  return zero_word_.Slice(0, 8);
}

void SessionContext::ObserveChain(int64_t duration_ns) {
  chain_ns_ = std::max(kChainNsMin, (chain_ns_ * (kSmoothing - 1) + duration_ns) / kSmoothing);
}

const ChainTally& OperationContext::Count(const Chain& chain) {
  const ChainTally& tally = chain.tally();
  session.counters().Add(tally);
  cost.verbs += tally.all_verbs();
  cost.bytes_read += tally.bytes_read();
  cost.bytes_written += tally.bytes_written();
  return tally;
}

absl::Status FencedError() {
  return absl::FailedPreconditionError(
      "this compute server was not heard of for a lease, declared dead and cut off: close the "
      "client and connect again");
}

absl::Status OperationContext::Await(Chain* chain) {
  if (session.fenced()) [[unlikely]]
    return FencedError();
  // Chains of WRITEs alone need not know when they were posted (shm).
  if (deadline_ns_ == kUnset && chain->verb(0).kind == VerbKind::kWrite) (void)deadline_ns();
  session.scheduler().Await(chain);
  if (deadline_ns_ == kUnset) deadline_ns_ = chain->posted_ns() + timeout_ns_;
  const uint32_t round_trips = Count(*chain).round_trips;
  cost.round_trips += round_trips;
  // What a dead server takes to say so is no unit of back-off.
  if (chain->ok()) {
    const int64_t duration_ns = chain->completed_ns() - chain->posted_ns();
    session.ObserveChain(round_trips == 1 ? duration_ns : duration_ns / round_trips);
  }
  return chain->status();
}

absl::Status OperationContext::AwaitAll(std::span<Chain* const> chains) {
  if (session.fenced()) [[unlikely]]
    return FencedError();
  (void)deadline_ns();
  session.scheduler().AwaitAll(chains);
  uint32_t round_trips = 0;
  absl::Status status;
  for (const Chain* chain : chains) {
    round_trips = std::max(round_trips, Count(*chain).round_trips);
    if (status.ok()) status = chain->status();
  }
  cost.round_trips += round_trips;
  return status;
}

absl::Status OperationContext::DeadlineError(std::string_view doing) const {
  return absl::DeadlineExceededError(absl::StrCat("deadline passed while ", std::string(doing)));
}

void OperationContext::BackOff(int64_t chain_times) {
  const auto base = static_cast<double>(chain_times * session.chain_ns());
  const auto wait_ns = static_cast<int64_t>(base * (0.5 + session.random().NextDouble()));
  session.scheduler().SleepUntil(std::min(session.NowNs() + wait_ns, deadline_ns()));
}

}  // namespace pando
