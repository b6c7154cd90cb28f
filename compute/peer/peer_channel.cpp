#include "compute/peer/peer_channel.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"

namespace pando {
namespace {

// Time left on the way, in whole microseconds: never more than there is.
uint64_t LeftUs(int64_t deadline_ns, int64_t now_ns) {
  if (deadline_ns == kNeverNs) return kPeerNoDeadline;
  return static_cast<uint64_t>(std::max<int64_t>(deadline_ns - now_ns, 0) / kMicrosecondNs);
}

}  // namespace

absl::Status PeerEndedError() {
  return absl::UnavailableError("it has ended, or was cut off: nothing that it says counts");
}

PeerChannel::PeerChannel(PeerPort* port, PeerIdentity self, PeerIdentity other, const Clock* clock,
                         bool cheap_messages, PeerCounters* counters)
    : port_(port),
      self_(self),
      other_(other),
      clock_(clock),
      counters_(counters),
      slots_(kPeerRequestsMax),
      thrift_(cheap_messages),
      closed_log_(1, clock) {
  free_.reserve(kPeerRequestsMax);
  FreeSlots();
}

PeerChannel::~PeerChannel() {
  PANDO_CHECK(link_ == nullptr) << "the port is destroyed before those that its links call";
  PANDO_CHECK(first_ == nullptr) << "a call is under way";
}

bool PeerChannel::has_link() {
  std::lock_guard lock(mutex_);
  return link_ != nullptr;
}

bool PeerChannel::IsOverdue(int64_t sent_by_ns) {
  std::lock_guard lock(mutex_);
  bool waits = first_ != nullptr, is_overdue = false;
  for (const Slot& slot : slots_) {
    waits = waits || slot.call != nullptr;
    is_overdue = is_overdue || (slot.used && slot.sent_ns <= sent_by_ns);
  }
  return waits && is_overdue;
}

void PeerChannel::NoteEnded() {
  std::lock_guard lock(mutex_);
  ended_ = true;
  GiveUp(PeerEndedError());
}

// --- Callers.

void PeerChannel::Run(Scheduler* scheduler, std::string_view address, PeerCall* call) {
  std::unique_lock lock(mutex_);
  if (address_ != address) address_.assign(address);
  Append(call);
  const int64_t began_ns = clock_->NowNs();
  if (MaySend() && !gathering_) {
    gathering_ = true;
    lock.unlock();
    scheduler->Yield();
    lock.lock();
    gathering_ = false;
    Send(nullptr);
  }
  while (call->waits()) {
    const int64_t now_ns = clock_->NowNs();
    if (now_ns >= call->deadline_ns) break;
    const int64_t until_ns = Watch(call, began_ns, now_ns);
    if (!call->waits()) break;
    lock.unlock();
    call->parking.ParkUntil(std::min(until_ns, call->deadline_ns));
    lock.lock();
  }
  if (call->state == PeerCall::State::kUnsent) {
    Remove(call);
    call->state = PeerCall::State::kExpired;
    WakeFirst();
  }
  if (call->state != PeerCall::State::kSent) return;
  // Its answer may still come.
  slots_[call->slot].call = nullptr;
  if (++overdue_ == kOverdueMax) {
    GiveUp(absl::UnavailableError(
        absl::StrCat(overdue_, " requests have had no answer by their deadlines")));
  }
}

int64_t PeerChannel::Watch(PeerCall* call, int64_t began_ns, int64_t now_ns) {
  // Who gathers may be a coroutine of a session that does not poll for long.
  const auto may_watch = [&] {
    const bool has_turn = call == first_ || gathering_;
    const bool may_go = link_ == nullptr || (writable_ && !free_.empty());
    return call->state == PeerCall::State::kUnsent && has_turn && may_go;
  };
  const int64_t patience_ns = call == first_ ? PatienceNs() : kPatienceNsMax;
  if (may_watch() && now_ns - began_ns >= patience_ns && RuleHolds(Rule::kP2Patience)) Send(call);
  call->watches = may_watch() && call == first_;
  return may_watch() ? now_ns + patience_ns : kNeverNs;
}

void PeerChannel::WakeFirst() {
  if (first_ == nullptr || first_->watches || !writable_ || free_.empty()) return;
  first_->watches = true;
  first_->parking.Unpark();
}

void PeerChannel::Append(PeerCall* call) {
  call->before = last_;
  (last_ == nullptr ? first_ : last_->behind) = call;
  last_ = call;
  ++unsent_;
  unsent_bytes_ += call->bytes;
}

void PeerChannel::Remove(PeerCall* call) {
  (call->before == nullptr ? first_ : call->before->behind) = call->behind;
  (call->behind == nullptr ? last_ : call->behind->before) = call->before;
  call->before = call->behind = nullptr;
  --unsent_;
  unsent_bytes_ -= call->bytes;
}

void PeerChannel::End(PeerCall* call, PeerCall::State state, const absl::Status& why) {
  call->state = state;
  call->why = why;
  call->parking.Unpark();  // under the mutex: the caller takes it before he leaves
}

void PeerChannel::EndUnsent(PeerCall::State state, const absl::Status& why) {
  while (first_ != nullptr) {
    PeerCall* const call = first_;
    Remove(call);
    End(call, state, why);
  }
}

// --- Sending.

int64_t PeerChannel::PatienceNs() const {
  return std::clamp(2 * answer_ns_, kPatienceNsMin, kPatienceNsMax);
}

bool PeerChannel::MaySend() const {
  if (link_ == nullptr) return true;
  if (!writable_ || free_.empty()) return false;
  const size_t unanswered_max = RuleHolds(Rule::kP2) ? thrift_.unanswered_max() : SIZE_MAX;
  return unanswered_.size() < unanswered_max || unsent_bytes_ >= kPeerMessageBytesMax;
}

void PeerChannel::Send(const PeerCall* impatient) {
  while (first_ != nullptr) {
    if (link_ == nullptr) return Connect();
    const bool must = impatient != nullptr && impatient->state == PeerCall::State::kUnsent;
    if (!writable_ || free_.empty() || (!must && !MaySend()) || !SendMessage()) break;
  }
  WakeFirst();
}

void PeerChannel::Connect() {
  if (ended_) return EndUnsent(PeerCall::State::kUnreachable, PeerEndedError());
  auto link = port_->Connect(address_, this);
  if (!link.ok()) return EndUnsent(PeerCall::State::kUnreachable, link.status());
  link_ = *std::move(link);
  PeerCounters::Add(&counters_->links);
}

size_t PeerChannel::WriteMessage(int64_t now_ns) {
  writer_.StartRequests({self_, other_});
  size_t count = 0;
  for (PeerCall *call = first_, *next; call != nullptr && count < free_.size(); call = next) {
    next = call->behind;
    if (now_ns >= call->deadline_ns) {
      Remove(call);
      End(call, PeerCall::State::kExpired);
      continue;
    }
    const size_t index = free_[free_.size() - 1 - count];
    Slot& slot = slots_[index];
    ++slot.uses;
    const uint64_t left_us = LeftUs(call->deadline_ns, now_ns);
    if (!writer_.Add(NumberOf(slot, index), left_us, call->request)) break;
    ++count;
  }
  return count;
}

bool PeerChannel::SendMessage() {
  const int64_t now_ns = clock_->NowNs();
  const size_t count = WriteMessage(now_ns);
  if (count == 0) return true;
  switch (link_->TrySend(writer_.bytes())) {
    case PeerSend::kSent:
      break;
    case PeerSend::kFull:
    case PeerSend::kBroken:
      writable_ = false;  // OnWritable(), or OnBroken(), follows
      return false;
    case PeerSend::kRefused:
      PANDO_CHECK(false) << "a message of " << writer_.bytes().size() << " bytes";
  }
  thrift_.Observe(slots_.size() - free_.size() + unsent_);
  const uint64_t message = ++messages_;
  unanswered_.push_back({message, now_ns});
  for (size_t i = 0; i < count; ++i) {
    PeerCall* const call = first_;
    Remove(call);
    call->state = PeerCall::State::kSent;
    call->slot = free_.back();
    free_.pop_back();
    Slot& slot = slots_[call->slot];
    slot.used = true;
    slot.call = call;
    slot.message = message;
    slot.sent_ns = now_ns;
  }
  PeerCounters::Add(&counters_->messages_sent);
  PeerCounters::Add(&counters_->requests, count);
  return true;
}

// --- The link.

void PeerChannel::OnWritable(PeerLink* link) {
  std::lock_guard lock(mutex_);
  if (link != link_.get() || !given_up_.ok()) return;
  open_ = writable_ = true;
  Send(nullptr);
}

void PeerChannel::OnMessage(PeerLink* link, std::string_view message) {
  std::lock_guard lock(mutex_);
  if (link != link_.get() || !given_up_.ok()) return;
  PeerCounters::Add(&counters_->messages_received);
  if (absl::Status status = TakeAnswers(message); !status.ok()) return GiveUp(status);
  Send(nullptr);
}

absl::Status PeerChannel::TakeAnswers(std::string_view message) {
  PeerMessageHeader header;
  PANDO_RETURN_IF_ERROR(ParsePeerAnswers(message, &header, &answers_));
  if (header.to != self_) return absl::DataLossError("answers to somebody else");
  for (const PeerAnswerView& answer : answers_) {
    PANDO_RETURN_IF_ERROR(TakeAnswer(answer, header.from == other_));
  }
  PeerCounters::Add(&counters_->answers, answers_.size());
  return absl::OkStatus();
}

absl::Status PeerChannel::TakeAnswer(const PeerAnswerView& answer, bool is_other) {
  const size_t index = answer.number & 0xffff;
  if (index >= slots_.size() || !slots_[index].used ||
      NumberOf(slots_[index], index) != answer.number) {
    return absl::DataLossError(absl::StrCat("an answer to request ", answer.number,
                                            ", which was not sent or has been answered"));
  }
  // Another process at the peer's address can only say that it is not the owner.
  if (!is_other && !answer.not_owner) return absl::DataLossError("an answer of somebody else");
  Slot& slot = slots_[index];
  PeerCall* const call = slot.call;
  if (call != nullptr) PANDO_RETURN_IF_ERROR(CheckPeerAnswer(call->request, answer));
  MarkAnswered(slot.message, clock_->NowNs());
  slot.used = false;
  slot.call = nullptr;
  free_.push_back(static_cast<uint16_t>(index));
  if (call == nullptr) {
    --overdue_;
    return absl::OkStatus();
  }
  answer.CopyTo(call->answer);
  End(call, PeerCall::State::kAnswered);
  return absl::OkStatus();
}

void PeerChannel::MarkAnswered(uint64_t message, int64_t now_ns) {
  const auto found =
      std::find_if(unanswered_.begin(), unanswered_.end(),
                   [message](const SentMessage& sent) { return sent.id == message; });
  if (found == unanswered_.end()) return;
  answer_ns_ += (now_ns - found->sent_ns - answer_ns_) / kSmoothing;
  unanswered_.erase(found);
}

void PeerChannel::GiveUp(const absl::Status& why) {
  if (link_ == nullptr || !given_up_.ok()) return;
  PANDO_LOG_LIMITED(closed_log_, WARNING) << "the link to compute server " << other_.compute_server
                                          << " at " << address_ << " is closed: " << why;
  PeerCounters::Add(&counters_->links_closed);
  given_up_ = why;
  writable_ = false;
  link_->Close();  // OnBroken() follows
}

void PeerChannel::OnBroken(PeerLink* link, const absl::Status& why) {
  const std::shared_ptr<PeerChannel> self = shared_from_this();
  std::shared_ptr<PeerLink> gone;  // goes after the mutex
  std::lock_guard lock(mutex_);
  if (link != link_.get()) return;
  gone = std::move(link_);
  link_ = nullptr;
  const absl::Status because = given_up_.ok() ? why : given_up_;
  given_up_ = absl::OkStatus();
  const bool was_open = std::exchange(open_, false);
  writable_ = false;
  for (Slot& slot : slots_) {
    if (slot.call != nullptr) End(slot.call, PeerCall::State::kLost, because);
  }
  FreeSlots();
  EndUnsent(was_open ? PeerCall::State::kNotSent : PeerCall::State::kUnreachable, because);
}

void PeerChannel::FreeSlots() {
  free_.clear();
  for (size_t index = slots_.size(); index-- > 0;) {
    slots_[index].used = false;
    slots_[index].call = nullptr;
    free_.push_back(static_cast<uint16_t>(index));
  }
  overdue_ = 0;
  unanswered_.clear();
}

}  // namespace pando
