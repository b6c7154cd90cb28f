// Servers as they come, and the life of an endpoint's queue pairs: opened, broken, opened again.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/quiet_thread.h"
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

// --- Servers.

void VerbsEndpoint::AdoptServers(uint32_t added) {
  if (added <= adopted_) return;
  // One that was followed by another life before anybody came here is not missed: it is gone.
  for (std::shared_ptr<VerbsLink>& link : client_->AddedLinks(adopted_, added)) {
    AddTarget(std::move(link));
  }
  adopted_ = added;
}

void VerbsEndpoint::AddTarget(std::shared_ptr<VerbsLink> link) {
  const ServerId server = link->location.id;
  // Gone, but it may not be known here yet: what it has in flight ends in the next Poll().
  if (Target* const before = TargetOf(server); before != nullptr) before->replaced = true;
  Target* const target = UnusedTarget();
  if (target->queue == nullptr) {
    target->queue =
        std::make_unique<ChainQueue>(target->index, link->memory, depth_, list_.get(), &counters_);
  } else {
    target->queue->SetServer(link->memory);
  }
  target->link = std::move(link);
  index_.Set(server, target->index);
}

VerbsEndpoint::Target* VerbsEndpoint::UnusedTarget() {
  const auto unused = std::find_if(targets_.begin(), targets_.end(), [](const Target& target) {
    return target.replaced && target.state == State::kGone && target.queue->size() == 0 &&
           !target.busy && !target.unsettled && !target.connecting.joinable();
  });
  if (unused == targets_.end()) {
    Target& target = targets_.emplace_back();
    target.index = static_cast<uint16_t>(targets_.size() - 1);
    return &target;
  }
  // The queue keeps the generation, by which it knows late completions; the room is free, too.
  Target fresh;
  fresh.index = unused->index;
  fresh.queue = std::move(unused->queue);
  fresh.room = unused->room;
  *unused = std::move(fresh);
  return &*unused;
}

absl::Status VerbsEndpoint::AddRooms(uint32_t count) {
  const VerbsDevice& device = client_->device();
  const uint32_t entries = count * depth_;
  CompletionQueueHandle completions(ibv_create_cq(device.context(), static_cast<int>(entries),
                                                  nullptr, channel_.get(),
                                                  client_->NextCompletionVector()));
  if (completions == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("RDMA device ", device.name(),
                                                     ": no completion queue of ", entries, ": ",
                                                     std::strerror(errno)));
  }
  const uint32_t result_bytes = depth_ * static_cast<uint32_t>(sizeof(uint64_t));
  PANDO_ASSIGN_OR_RETURN(const LocalBuffer results, AllocateBuffer(count * result_bytes));
  for (uint32_t i = 0; i < count; ++i) {
    rooms_.push_back({completions.get(), results.Slice(i * result_bytes, result_bytes)});
  }
  completions_.push_back(std::move(completions));
  return absl::OkStatus();
}

absl::Status VerbsEndpoint::TakeRoom(Target* target) {
  if (target->room.completions != nullptr) return absl::OkStatus();
  if (rooms_.empty()) {
    // As many again, so that there are few completion queues to poll.
    const uint32_t rooms_max = client_->device().completions_max() / depth_;
    const auto targets = static_cast<uint32_t>(targets_.size());
    PANDO_RETURN_IF_ERROR(AddRooms(std::clamp(targets, 1u, rooms_max)));
  }
  target->room = rooms_.back();
  rooms_.pop_back();
  return absl::OkStatus();
}

// --- Queue pairs.

void VerbsEndpoint::SetState(Target* target, State state) {
  target->state = state;
  if (target->unsettled || (state != State::kClosed && state != State::kOpening)) return;
  target->unsettled = true;
  unsettled_.push_back(target);
}

void VerbsEndpoint::CheckTargets() {
  if (client_->gone_count() != gone_seen_) [[unlikely]]
    CheckGone();
  if (!unsettled_.empty()) [[unlikely]]
    CheckUnsettled();
}

void VerbsEndpoint::CheckGone() {
  gone_seen_ = client_->gone_count();
  // A callee may have servers added.
  for (size_t i = 0; i < targets_.size(); ++i) {
    Target& target = targets_[i];
    // One that is being opened hears of it by its reply.
    if (!target.link->gone.load(std::memory_order_acquire) || target.state == State::kOpening ||
        target.state == State::kGone) {
      continue;
    }
    Break(&target, State::kGone, std::nullopt, "the memory server is gone");
  }
}

void VerbsEndpoint::CheckUnsettled() {
  const int64_t now_ns = RealClock().NowNs();
  for (size_t i = 0; i < unsettled_.size();) {
    Target& target = *unsettled_[i];
    if (target.connects_first()) FailLate(&target, now_ns);
    if (target.state == State::kClosed && !target.was_used && target.queue->size() == 0) {
      target.state = State::kUnused;  // nobody wants it any more
    }
    if (target.state == State::kClosed && target.retry_ns <= now_ns) OpenQueuePair(&target);
    // A callee may have posted, and so come by here.
    if (i >= unsettled_.size() || unsettled_[i] != &target) continue;
    if (target.state == State::kClosed || target.state == State::kOpening) {
      ++i;
      continue;
    }
    target.unsettled = false;
    unsettled_[i] = unsettled_.back();
    unsettled_.pop_back();
  }
}

void VerbsEndpoint::FailLate(Target* target, int64_t now_ns) {
  const std::string why =
      absl::StrCat("the memory server gives no queue pair: ",
                   target->refusal.ok() ? "is it stuck or stopped?" : target->refusal.ToString());
  for (ChainQueue::Entry& entry : target->queue->TakeLate(now_ns, first_wait_ns_)) {
    const absl::Status broken = BrokenChainError(target->link->location, *entry.chain, 0, why);
    // Nothing was posted; a session that has a lock there may try again.
    Complete(entry.chain, MarkRecoverable(absl::DeadlineExceededError(broken.message())), now_ns);
  }
}

void VerbsEndpoint::OpenQueuePair(Target* target) {
  const absl::Status room = TakeRoom(target);
  if (!room.ok()) return RetryLater(target, room);
  absl::StatusOr<QueuePair> fresh =
      QueuePair::Create(client_->device(), target->room.completions,
                        {.work_requests = depth_,
                         .pieces = Verb::kMaxPieces,
                         .inline_bytes = client_->options().inline_bytes,
                         .domain = domain_.pd()});
  if (!fresh.ok()) return RetryLater(target, fresh.status());
  VerbsOpen request;
  request.address = fresh->address();
  request.replaces = target->handle;
  request.compute_server = compute_server_;
  request.incarnation = incarnation_;
  const absl::StatusOr<uint32_t> sequence = client_->Send(target->link.get(), VerbsFrameType::kOpen,
                                                          EncodeBody<VerbsOpen>(request), mailbox_);
  if (!sequence.ok()) return Break(target, State::kGone, std::nullopt, "the memory server is gone");
  if (*sequence == 0) {
    return RetryLater(target, absl::UnavailableError("the control connection is congested"));
  }
  target->fresh = *std::move(fresh);
  target->sequence = *sequence;
  SetState(target, State::kOpening);
}

void VerbsEndpoint::OnOpenReply(Target* target, Reply* reply) {
  if (target->connecting.joinable()) return OnConnected(target, reply->status);
  const absl::Status status = reply->status.ok() ? ConnectFresh(target, *reply) : reply->status;
  if (!status.ok()) OnConnected(target, status);
}

absl::Status VerbsEndpoint::ConnectFresh(Target* target, const Reply& reply) {
  if (reply.kind != ReplyKind::kOpened) {
    return absl::DataLossError("the answer is no queue pair");
  }
  PANDO_ASSIGN_OR_RETURN(const VerbsOpenReply opened, ParseVerbsOpenReply(reply.body));
  if (target->handle != 0) ++counters_.reconnects;
  target->handle = opened.handle;
  // The kernel may look for the peer's hardware address for a second.
  const auto connect = [client = client_, mailbox = mailbox_, pair = &target->fresh,
                        sequence = target->sequence, address = opened.address] {
    absl::Status connected = pair->Connect(client->device(), address);
    mailbox->Put({sequence, ReplyKind::kOpened, std::move(connected), {}});
  };
  PANDO_ASSIGN_OR_RETURN(target->connecting, StartQuietThread("pando-connect", connect));
  return absl::OkStatus();
}

void VerbsEndpoint::OnConnected(Target* target, const absl::Status& connected) {
  if (target->connecting.joinable()) target->connecting.join();
  if (target->link->gone.load(std::memory_order_acquire)) {
    target->fresh.Destroy();
    return Break(target, State::kGone, std::nullopt, "the memory server is gone");
  }
  if (connected.ok()) {
    target->queue->Attach(std::move(target->fresh), target->room.results);
    target->was_used = true;
    SetState(target, State::kConnected);
    target->retry_delay_ns = 0;
    unrung_ = true;
    return;
  }
  target->fresh.Destroy();
  if (!absl::IsPermissionDenied(connected)) return RetryLater(target, connected);
  target->refusal = connected;
  Break(target, State::kRefused, std::nullopt, connected.ToString());
}

void VerbsEndpoint::RetryLater(Target* target, const absl::Status& why) {
  target->refusal = why;
  SetState(target, State::kClosed);
  target->retry_delay_ns = target->retry_delay_ns == 0
                               ? kReopenFirstNs
                               : std::min(2 * target->retry_delay_ns, kReopenLastNs);
  target->retry_ns = RealClock().NowNs() + target->retry_delay_ns;
}

void VerbsEndpoint::Break(Target* target, State next, std::optional<size_t> failing,
                          std::string reason) {
  const bool was_connected = target->queue->connected();
  if (was_connected) ++counters_.broken;
  SetState(target, next);
  target->retry_ns = 0;
  std::vector<ChainQueue::Entry> chains = target->queue->TakeAll();
  // What the queue pair has left in the completion queue must not fill it.
  Fetch();
  const ServerLocation server = target->link->location;
  const bool reopens = next == State::kClosed;
  if (reopens) {
    PANDO_LOG(WARNING) << "the queue pair to memory server " << server.id << " at "
                       << server.address << " broke, " << chains.size()
                       << " chains may be in flight: " << reason;
    OpenQueuePair(target);
  }
  const int64_t now_ns = NowNs();
  for (ChainQueue::Entry& entry : chains) {
    absl::Status status = BrokenChainError(server, *entry.chain, failing.value_or(0), reason);
    if (reopens) status = MarkRecoverable(std::move(status));
    Complete(entry.chain, std::move(status), now_ns);
    if (!failing.has_value()) continue;
    reason = absl::StrCat("it may have been executed or not; a chain before it failed: ", reason);
    failing.reset();
  }
}

void VerbsEndpoint::BreakQueuePair(ServerId server) {
  Target* const target = TargetOf(server);
  PANDO_CHECK(target != nullptr);
  if (target->state == State::kConnected)
    Break(target, State::kClosed, std::nullopt, "broken by a test");
}

}  // namespace pando
