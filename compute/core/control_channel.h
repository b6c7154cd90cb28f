// Control calls of a client to memory servers: numbering, retries and reply checks in one place.
//
// Thread safety: any session may call (inside its own coroutines). A lost request or reply is
// repeated with the same sequence number, which the server answers once (rule R4).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/base/time_constants.h"
#include "common/wire/control.h"
#include "compute/core/session_context.h"

namespace pando {

class ControlChannel {
 public:
  // A call may be repeated under its number until so many others to its server were begun. That is
  // to remember it then: it keeps as many replies again, for calls that were under way before, and
  // for those that begin while this one is repeated.
  static constexpr uint32_t kRepeatWithin = kRepliesKept / 2;

  // A request without an answer is sent again after this. One with an `unanswered` is not, once
  // more than kRepeatWithin others have begun (DeadlineExceeded).
  explicit ControlChannel(int64_t attempt_ns = TimeConstants().call_attempt_ns)
      : attempt_ns_(attempt_ns) {}

  // The identity under which the client calls; before that it calls without an identity (0, 0).
  void SetIdentity(uint16_t compute_server, uint32_t incarnation);
  uint16_t compute_server() const { return compute_server_; }
  uint32_t incarnation() const { return incarnation_; }

  // The reply's body, or the status it carried, annotated with the server.
  // `unanswered`, of a caller whom also an answer that comes too late concerns: the number of an
  // earlier call of the same content, which this one repeats, or 0. Not 0 afterwards: there was no
  // answer in time, and who calls again with that number learns what came of it. It is to call
  // again, or to Forget() it. DataLoss of a repeated call, which is not sent then: more than
  // kRepeatWithin others came between, and a server that has forgotten it would execute it again.
  absl::StatusOr<std::string> Call(OperationContext& context, ServerId server, ControlOpcode opcode,
                                   std::string_view body, uint32_t* unanswered = nullptr);
  // Nobody asks for the answer of this call any more.
  void Forget(uint32_t unanswered);
  // Over a connection of its own (Fabric::CallOnFreshConnection()), without an identity. Blocks;
  // from any thread.
  static absl::StatusOr<std::string> CallOnFreshConnection(Fabric& fabric, ServerId server,
                                                           ControlOpcode opcode,
                                                           std::string_view body);

 private:
  struct Kept {
    ServerId server = 0;
    uint32_t calls = 0;  // to the server, when this one was
  };

  void ForgetOld(ServerId server);  // under mutex_
  // Whether the server still knows what it has answered.
  bool MayRepeat(const Kept& call);

  const int64_t attempt_ns_;
  uint16_t compute_server_ = 0;
  uint32_t incarnation_ = 0;

  std::mutex mutex_;
  uint32_t next_sequence_ = 1;
  std::map<ServerId, uint32_t> calls_;  // begun
  std::set<uint32_t> incomplete_;
  std::map<uint32_t, Kept> kept_;  // of these, those that came to their deadlines: to be repeated
};

}  // namespace pando
