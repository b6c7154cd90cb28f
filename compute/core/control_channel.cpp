#include "compute/core/control_channel.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando {

void ControlChannel::SetIdentity(uint16_t compute_server, uint32_t incarnation) {
  compute_server_ = compute_server;
  incarnation_ = incarnation;
}

absl::StatusOr<std::string> ControlChannel::Call(OperationContext& context, ServerId server,
                                                 ControlOpcode opcode, std::string_view body,
                                                 uint32_t* unanswered) {
  // A call renews the lease: who leaves must not (rule C2).
  if (context.session.fenced()) return FencedError();
  context.session.AdoptServers();
  ControlHeader header;
  header.opcode = static_cast<uint16_t>(opcode);
  header.sender = compute_server_;
  header.incarnation = incarnation_;
  Kept kept = {server, 0};
  {
    std::lock_guard lock(mutex_);
    kept.calls = ++calls_[server];
    ForgetOld(server);
    const bool repeats = unanswered != nullptr && *unanswered != 0;
    if (repeats) {
      const auto earlier = kept_.extract(*unanswered);
      if (earlier.empty()) {
        *unanswered = 0;
        return absl::DataLossError(
            absl::StrCat("memory server ", server, " may have forgotten what it answered"));
      }
      kept = earlier.mapped();
    }
    header.sequence = repeats ? *unanswered : next_sequence_++;
    incomplete_.insert(header.sequence);
    header.first_incomplete = *incomplete_.begin();
  }
  Scheduler& scheduler = context.session.scheduler();
  absl::StatusOr<std::string> result;
  while (true) {
    const int64_t now_ns = context.session.NowNs();
    header.deadline_ns = std::max<int64_t>(1, context.deadline_ns() - now_ns);
    const int64_t attempt_until_ns = std::min(context.deadline_ns(), now_ns + attempt_ns_);
    context.session.counters().calls.Add();
    result = scheduler.Call(server, EncodeMessage(header, body), attempt_until_ns);
    const bool lost = absl::IsDeadlineExceeded(result.status()) && !context.expired();
    if (!lost || (unanswered != nullptr && !MayRepeat(kept))) break;
  }
  const bool is_kept = unanswered != nullptr && absl::IsDeadlineExceeded(result.status());
  if (unanswered != nullptr) *unanswered = is_kept ? header.sequence : 0;
  if (is_kept) {
    std::lock_guard lock(mutex_);
    kept_.emplace(header.sequence, kept);
  } else {
    Forget(header.sequence);
  }
  if (result.ok()) {
    const absl::StatusOr<std::string_view> reply = ParseReply(*result, opcode, header.sequence);
    if (reply.ok()) return std::string(*reply);
    result = reply.status();
  }
  return Annotate(result.status(), absl::StrCat("memory server ", server));
}

// A thread that stood still may come back to its call when the others have made many.
bool ControlChannel::MayRepeat(const Kept& call) {
  std::lock_guard lock(mutex_);
  return calls_[call.server] - call.calls <= kRepeatWithin;
}

void ControlChannel::Forget(uint32_t unanswered) {
  std::lock_guard lock(mutex_);
  incomplete_.erase(unanswered);
  kept_.erase(unanswered);
}

void ControlChannel::ForgetOld(ServerId server) {
  std::erase_if(kept_, [&](const auto& one) {
    const auto& [number, kept] = one;
    const bool is_old = kept.server == server && calls_[server] - kept.calls > kRepeatWithin;
    if (is_old) incomplete_.erase(number);
    return is_old;
  });
}

absl::StatusOr<std::string> ControlChannel::CallOnFreshConnection(Fabric& fabric, ServerId server,
                                                                  ControlOpcode opcode,
                                                                  std::string_view body) {
  ControlHeader header;
  header.opcode = static_cast<uint16_t>(opcode);
  header.sequence = header.first_incomplete = 1;
  PANDO_ASSIGN_OR_RETURN(const std::string reply,
                         fabric.CallOnFreshConnection(server, EncodeMessage(header, body)));
  PANDO_ASSIGN_OR_RETURN(const std::string_view parsed, ParseReply(reply, opcode, header.sequence));
  return std::string(parsed);
}

}  // namespace pando
