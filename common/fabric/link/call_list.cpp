#include "common/fabric/link/call_list.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pando {
namespace {

constexpr int64_t kResendNs = kMillisecondNs;  // a full connection is tried again

std::string Describe(const PendingCall& call) {
  return absl::StrCat("server ", call.server, ": call: ");
}

}  // namespace

absl::Status CallList::Refusal(const PendingCall& call) const {
  if (call.request.size() > request_bytes_max_) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(call), "a request of ",
                                                   call.request.size(), " bytes is over ",
                                                   request_bytes_max_));
  }
  if (calls_.size() >= kCallsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(Describe(call), kCallsMax, " calls are under way"));
  }
  return absl::OkStatus();
}

void CallList::Start(PendingCall* call) {
  call->done = false;
  State state;
  state.call = call;
  state.status = Refusal(*call);
  state.finished = !state.status.ok();
  if (!state.finished) Send(&state);
  calls_.push_back(std::move(state));
}

void CallList::Send(State* state) {
  const absl::StatusOr<uint32_t> sequence =
      connections_.SendRequest(state->call->server, state->call->request);
  if (sequence.ok()) {
    state->sequence = *sequence;
  } else {
    state->finished = true;
    state->status = sequence.status();
  }
}

void CallList::Answer(uint32_t sequence, absl::Status status, bool is_call_reply,
                      std::string reply) {
  const auto state = std::find_if(calls_.begin(), calls_.end(), [sequence](const State& s) {
    return s.sequence == sequence && !s.finished;
  });
  if (state == calls_.end()) return;  // came after its deadline
  state->finished = true;
  state->status = std::move(status);
  state->reply = std::move(reply);
  if (state->status.ok() && !is_call_reply) {
    state->status = absl::DataLossError(
        absl::StrCat(Describe(*state->call), "the reply is no reply to a call"));
  }
}

size_t CallList::Finish(int64_t now_ns) {
  for (State& state : calls_) {
    if (state.finished) continue;
    if (state.call->deadline_ns <= now_ns) {
      if (state.sequence != 0) connections_.ForgetRequest(state.sequence);
      state.finished = true;
      state.status = absl::DeadlineExceededError(
          absl::StrCat(Describe(*state.call), "no reply before the deadline"));
    } else if (state.sequence == 0) {
      Send(&state);
    }
  }
  const auto finished = std::stable_partition(calls_.begin(), calls_.end(),
                                              [](const State& s) { return !s.finished; });
  // Callees may make calls: they find a consistent list.
  std::vector<State> done(std::make_move_iterator(finished), std::make_move_iterator(calls_.end()));
  calls_.erase(finished, calls_.end());
  for (State& state : done) {
    PendingCall* const call = state.call;
    call->status = std::move(state.status);
    call->reply = std::move(state.reply);
    call->done = true;
    if (call->on_done != nullptr) call->on_done(call, call->context);
  }
  return done.size();
}

int64_t CallList::NextDueNs(int64_t until_ns, int64_t now_ns) const {
  for (const State& state : calls_) {
    if (state.finished) return 0;
    until_ns = std::min(until_ns, state.call->deadline_ns);
    if (state.sequence == 0) until_ns = std::min(until_ns, now_ns + kResendNs);
  }
  return until_ns;
}

}  // namespace pando
