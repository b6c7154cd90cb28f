// The life of an endpoint's queue pairs: opened, broken, opened again.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "common/fabric/verbs/completion_error.h"
#include "common/fabric/verbs/verbs_endpoint.h"

namespace pando {
namespace {

// After a failure to open; doubled up to the last.
constexpr int64_t kReopenFirstNs = 100 * kMillisecondNs;
constexpr int64_t kReopenLastNs = kSecondNs;

}  // namespace

void VerbsEndpoint::CheckTargets() {
  for (Target& target : targets_) {
    if (target.state == State::kConnected) [[likely]] {
      if (target.link->gone.load(std::memory_order_acquire)) [[unlikely]] {
        Break(&target, State::kGone, 0, "the memory server is gone");
      }
      continue;
    }
    if (target.state == State::kClosed && target.retry_ns <= RealClock().NowNs()) {
      OpenQueuePair(&target);
    }
  }
}

void VerbsEndpoint::OpenQueuePair(Target* target) {
  absl::StatusOr<QueuePair> fresh =
      QueuePair::Create(client_->device(), completions_.get(),
                        {depth_, Verb::kMaxPieces, client_->options().inline_bytes});
  if (!fresh.ok()) return RetryLater(target, fresh.status());
  VerbsOpen request;
  request.address = fresh->address();
  request.replaces = target->handle;
  request.compute_server = compute_server_;
  request.incarnation = incarnation_;
  const int link = static_cast<int>(target - targets_.data());
  const absl::StatusOr<uint32_t> sequence =
      client_->Send(link, VerbsFrameType::kOpen, EncodeVerbsOpen(request), mailbox_);
  if (!sequence.ok()) {
    target->state = State::kGone;
    return;
  }
  if (*sequence == 0) {
    return RetryLater(target, absl::UnavailableError("the control connection is congested"));
  }
  target->fresh = *std::move(fresh);
  target->sequence = *sequence;
  target->state = State::kOpening;
}

void VerbsEndpoint::OnOpenReply(Target* target, VerbsMailbox::Reply* reply) {
  if (target->link->gone.load(std::memory_order_acquire)) {
    target->fresh.Destroy();
    target->state = State::kGone;
    return;
  }
  const absl::Status connected = reply->status.ok() ? ConnectFresh(target, *reply) : reply->status;
  if (connected.ok()) {
    target->queue->Attach(std::move(target->fresh));
    target->state = State::kConnected;
    target->retry_delay_ns = 0;
    return;
  }
  target->fresh.Destroy();
  if (absl::IsPermissionDenied(connected)) {
    target->refusal = connected;
    target->state = State::kRefused;
    return;
  }
  RetryLater(target, connected);
}

absl::Status VerbsEndpoint::ConnectFresh(Target* target, const VerbsMailbox::Reply& reply) {
  if (reply.type != VerbsFrameType::kOpenReply) {
    return absl::DataLossError("the answer is no queue pair");
  }
  PANDO_ASSIGN_OR_RETURN(const VerbsOpenReply opened, ParseVerbsOpenReply(reply.body));
  if (target->handle != 0) ++counters_.reconnects;
  target->handle = opened.handle;
  return target->fresh.Connect(client_->device(), opened.address);
}

void VerbsEndpoint::RetryLater(Target* target, const absl::Status& why) {
  target->refusal = why;
  target->state = State::kClosed;
  target->retry_delay_ns = target->retry_delay_ns == 0
                               ? kReopenFirstNs
                               : std::min(2 * target->retry_delay_ns, kReopenLastNs);
  target->retry_ns = RealClock().NowNs() + target->retry_delay_ns;
}

void VerbsEndpoint::Break(Target* target, State next, size_t verb, const std::string& reason) {
  ++counters_.broken;
  target->state = next;
  target->retry_ns = 0;
  std::vector<ChainQueue::Entry> chains = target->queue->TakeAll();
  // What the queue pair has left in the completion queue must not fill it.
  Fetch();
  const ServerLocation& server = target->link->location;
  if (next != State::kGone) {
    PANDO_LOG(WARNING) << "the queue pair to memory server " << server.id << " at "
                       << server.address << " broke, " << chains.size()
                       << " chains may be in flight: " << reason;
    OpenQueuePair(target);
  }
  for (ChainQueue::Entry& entry : chains) {
    absl::Status status = BrokenChainError(server, *entry.chain, verb, reason);
    if (next != State::kGone) status = MarkRecoverable(std::move(status));
    Complete(entry.chain, std::move(status));
    verb = 0;
  }
}

void VerbsEndpoint::BreakQueuePair(ServerId server) {
  const int link = client_->LinkIndex(server);
  PANDO_CHECK(link != VerbsClient::kNoLink);
  if (targets_[link].state == State::kConnected) {
    Break(&targets_[link], State::kClosed, 0, "broken by a test");
  }
}

}  // namespace pando
