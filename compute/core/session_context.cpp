#include "compute/core/session_context.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/server_index.h"

namespace pando {
SessionContext::SessionContext(std::unique_ptr<Endpoint> endpoint, EpochDomain* epochs,
                               int coroutines_max, uint64_t seed, int coroutines_needed)
    : endpoint_(std::move(endpoint)),
      cpu_costs_(endpoint_->cpu_costs()),
      scheduler_(endpoint_.get(), Scheduler::Options{.coroutines_max = coroutines_max,
                                                     .coroutines_needed = coroutines_needed}),
      buffers_(endpoint_.get()),
      random_(seed),
      epochs_(epochs),
      epoch_slot_(epochs->Register()) {}

SessionContext::~SessionContext() { epochs_->Unregister(epoch_slot_); }

absl::Status SessionContext::Prepare(int coroutines) {
  if (scheduler_.Prepare(coroutines)) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      "this process has no room for the coroutines of one more session: close some, or raise "
      "vm.max_map_count");
}

absl::StatusOr<LocalBuffer> SessionContext::ZeroWord() {
  if (zero_word_.data() == nullptr) {
    PANDO_ASSIGN_OR_RETURN(zero_word_, buffers_.Lease(64));
    std::memset(zero_word_.data(), 0, 64);
  }
  return zero_word_.Slice(0, 8);
}

void SessionContext::End() {
  static const std::atomic<bool> over{true};
  fenced_ = &over;
}

void SessionContext::ObserveSlowChain(int64_t posted_ns, int64_t completed_ns) {
  if (posted_ns < slow_until_ns_) return;
  slow_until_ns_ = completed_ns;
  chain_ns_ = chain_ns_ * (kSmoothing - 1 + kSlowTimes) / kSmoothing;
}

void SessionContext::TakeView(std::shared_ptr<const Membership::View> view) {
  view_ = std::move(view);
  generation_ = view_->generation;
  endpoint_->AdoptServers(view_->added);
}

uint64_t SessionContext::LifeOf(ServerId server) const {
  const Membership::Member* const member = view_ == nullptr ? nullptr : view_->Find(server);
  return member == nullptr ? 0 : member->life;
}

bool SessionContext::WasAdoptedSince(ServerId server, uint64_t generation) const {
  const Membership::Member* const member = view_ == nullptr ? nullptr : view_->Find(server);
  return member != nullptr && member->since > generation;
}

absl::Status FencedError() {
  return absl::FailedPreconditionError(
      "this compute server was declared dead and cut off, since a memory server did not hear of it "
      "for a lease, lost its connection, or could not be asked to free a lock: close the client "
      "and connect again");
}

absl::Status OperationContext::AwaitAll(std::span<Chain* const> chains) {
  if (session.fenced()) [[unlikely]]
    return FencedError();
  if (generation_ != session.generation()) [[unlikely]] {
    for (const Chain* chain : chains) {
      if (absl::Status status = CatchUp(chain->server()); !status.ok()) return status;
    }
  }
  (void)deadline_ns();
  for (Chain* const chain : chains) LimitWait(chain);
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

absl::Status OperationContext::AwaitWith(Chain* chain, Chain* other) {
  Chain* const both[] = {chain, other};
  const absl::Status status = AwaitAll(both);
  if (!chain->done()) return status;  // nothing was posted
  if (!chain->ok()) return AwaitAgain(chain);
  session.ObserveChain(chain->completed_ns() - chain->started_ns(), chain->started_ns(),
                       chain->completed_ns());
  return absl::OkStatus();
}

absl::Status OperationContext::AwaitOnLife(Chain* chain, uint64_t life) {
  if (session.fenced()) return FencedError();
  session.AdoptServers();
  if (session.LifeOf(chain->server()) != life) {
    return absl::UnavailableError(absl::StrCat("server ", chain->server(), ": its life ", life,
                                               " is over, or not known here"));
  }
  (void)deadline_ns();
  LimitWait(chain);
  session.scheduler().Await(chain);
  cost.round_trips += Count(*chain).round_trips;
  if (chain->ok()) {
    session.ObserveChain(chain->completed_ns() - chain->started_ns(), chain->started_ns(),
                         chain->completed_ns());
  }
  return chain->status();
}

absl::Status OperationContext::CheckFate() const {
  if (fate == nullptr || !fate->lost()) return absl::OkStatus();
  return absl::UnavailableError(fate->status().message());
}

absl::Status OperationContext::CatchUp(ServerId server) {
  const absl::Status lost = CheckFate();
  if (lost.ok()) {
    generation_ = session.generation();
    return lost;
  }
  // Elsewhere the operation may still give back what it holds.
  if (!session.WasAdoptedSince(server, generation_) || !RuleHolds(Rule::kR8)) {
    return absl::OkStatus();
  }
  return lost;
}

bool OperationContext::AwaitServer(ServerId server) {
  constexpr int64_t kPauseNs = kMillisecondNs;
  constexpr int64_t kLookNsMax = 2 * kSecondNs;
  session.AdoptServers();
  if (session.LifeOf(server) != 0) return true;
  Membership* const members = session.membership();
  const uint64_t look = members == nullptr ? 0 : members->AskForLook();
  if (look == 0) return false;
  const int64_t until_ns = std::min(deadline_ns(), session.NowNs() + kLookNsMax);
  while (!members->HasLooked(look) && session.NowNs() < until_ns) {
    session.scheduler().SleepUntil(session.NowNs() + kPauseNs);
  }
  session.AdoptServers();
  return session.LifeOf(server) != 0;
}

absl::Status OperationContext::AwaitAgain(Chain* chain) {
  if (!IsNotConnected(chain->status()) || !AwaitServer(chain->server())) return chain->status();
  // What has come need not be what the chain was meant for (rule R8).
  if (absl::Status status = CatchUp(chain->server()); !status.ok()) return status;
  session.scheduler().Await(chain);
  return chain->status();
}

absl::Status OperationContext::DeadlineError(std::string_view doing) const {
  return absl::DeadlineExceededError(absl::StrCat("deadline passed while ", std::string(doing)));
}

void OperationContext::BackOff(int64_t chain_times) {
  const auto base = static_cast<double>(session.WaitNs(chain_times));
  const auto wait_ns = static_cast<int64_t>(base * (0.5 + session.random().NextDouble()));
  session.scheduler().SleepUntil(std::min(session.NowNs() + wait_ns, deadline_ns()));
}

}  // namespace pando
