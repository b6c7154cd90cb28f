// The calls of an endpoint that are under way, for backends whose control messages go over
// connections: the endpoint hands replies in, and lets the list complete what is done or late.
//
// Not thread-safe: the endpoint's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/fabric.h"

namespace pando {

class CallList {
 public:
  // More calls at once are ResourceExhausted.
  static constexpr size_t kCallsMax = 4096;

  // The connections.
  class Connections {
   public:
    // The sequence that the reply will have, or 0: nothing more can be sent now. An error is the
    // call's: the server is gone, or unknown.
    virtual absl::StatusOr<uint32_t> SendRequest(ServerId server, std::string_view request) = 0;
    // The reply is not wanted any more.
    virtual void ForgetRequest(uint32_t sequence) = 0;

   protected:
    ~Connections() = default;
  };

  CallList(Connections* connections, size_t request_bytes_max)
      : connections_(*connections), request_bytes_max_(request_bytes_max) {}

  size_t size() const { return calls_.size(); }
  bool empty() const { return calls_.empty(); }

  // Sends the request, or refuses it: Finish() says so either way.
  void Start(PendingCall* call);
  // What came with that sequence, if a call still waits for it. `is_call_reply`: else it is
  // DataLoss.
  void Answer(uint32_t sequence, absl::Status status, bool is_call_reply, std::string reply);
  // Sends what could not be sent, and completes what is done or past its deadline; how many.
  size_t Finish(int64_t now_ns);
  // When Finish() has something to do by itself, if before `until_ns`; 0: at once.
  int64_t NextDueNs(int64_t until_ns, int64_t now_ns) const;

 private:
  struct State {
    PendingCall* call = nullptr;
    uint32_t sequence = 0;  // 0: not sent yet
    bool finished = false;
    absl::Status status;
    std::string reply;
  };

  absl::Status Refusal(const PendingCall& call) const;
  void Send(State* state);

  Connections& connections_;
  const size_t request_bytes_max_;
  std::vector<State> calls_;
};

}  // namespace pando
