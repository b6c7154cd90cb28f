#include "compute/peer/peer_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/peer/peer_channel.h"

namespace pando {
namespace {

uint64_t KeyOfPeer(PeerIdentity identity) {
  return static_cast<uint64_t>(identity.compute_server) << 32 | identity.incarnation;
}

std::string Asking(const PeerAddress& peer) {
  return absl::StrCat("asking compute server ", peer.identity.compute_server, " at ",
                      std::string(peer.address));
}

}  // namespace

PeerClient::PeerClient(PeerPort* port, PeerIdentity self, const Clock* clock, bool cheap_messages)
    : port_(port), self_(self), clock_(clock), cheap_messages_(cheap_messages) {}

PeerClient::~PeerClient() = default;

std::shared_ptr<PeerChannel> PeerClient::Find(const PeerAddress& peer) {
  std::lock_guard lock(mutex_);
  if (ended_.contains(KeyOfPeer(peer.identity))) return nullptr;
  std::shared_ptr<PeerChannel>& channel = channels_[KeyOfPeer(peer.identity)];
  if (channel != nullptr) return channel;
  channel = std::make_shared<PeerChannel>(port_, self_, peer.identity, clock_, cheap_messages_,
                                          &counters_);
  const std::shared_ptr<PeerChannel> made = channel;
  // Those that nobody uses: of peers that have gone, mostly.
  absl::erase_if(channels_, [](const auto& entry) {
    return entry.second.use_count() == 1 && !entry.second->has_link();
  });
  return made;
}

std::vector<PeerIdentity> PeerClient::Overdue(int64_t sent_by_ns) {
  std::vector<PeerIdentity> overdue;
  std::lock_guard lock(mutex_);
  for (const auto& [key, channel] : channels_) {
    if (channel->IsOverdue(sent_by_ns)) overdue.push_back(channel->other());
  }
  return overdue;
}

void PeerClient::NoteEnded(PeerIdentity identity) {
  std::lock_guard lock(mutex_);
  if (!ended_.insert(KeyOfPeer(identity)).second) return;
  const auto channel = channels_.find(KeyOfPeer(identity));
  if (channel != channels_.end()) channel->second->NoteEnded();
}

absl::Status PeerClient::Call(OperationContext& context, const PeerAddress& peer,
                              const PeerRequest& request, PeerAnswer* answer) {
  constexpr int kBackOffShiftMax = 6;
  const std::shared_ptr<PeerChannel> channel = Find(peer);
  for (int attempt = 0;; ++attempt) {
    if (context.session.fenced()) return FencedError();
    if (context.expired()) return context.DeadlineError(Asking(peer));
    if (channel == nullptr) return Annotate(PeerEndedError(), Asking(peer));
    PeerCall call(&context.session.scheduler(), context.deadline_ns(), request, answer);
    channel->Run(&context.session.scheduler(), peer.address, &call);
    const bool is_write = !request.is_read();
    switch (call.state) {
      case PeerCall::State::kAnswered:
        context.cost.messages += 2;
        return absl::OkStatus();
      case PeerCall::State::kUnsent:
      case PeerCall::State::kExpired:
        return context.DeadlineError(Asking(peer));
      case PeerCall::State::kSent:
        ++context.cost.messages;
        if (!is_write) return context.DeadlineError(Asking(peer));
        return OutcomeUnknownError(absl::StrCat("no answer by the deadline while ", Asking(peer)));
      case PeerCall::State::kLost:
        ++context.cost.messages;
        if (is_write && RuleHolds(Rule::kP3)) {
          return OutcomeUnknownError(
              absl::StrCat("the link broke while ", Asking(peer), ": ", call.why.message()));
        }
        break;
      case PeerCall::State::kNotSent:
        break;
      case PeerCall::State::kUnreachable:
        return Annotate(call.why, Asking(peer));
    }
    context.BackOff(int64_t{1} << std::min(attempt, kBackOffShiftMax));
  }
}

}  // namespace pando
