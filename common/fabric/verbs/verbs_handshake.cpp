#include "common/fabric/verbs/verbs_handshake.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/auth/mutual_proof.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/fabric/body.h"
#include "common/fabric/verbs/tcp_socket.h"

namespace pando {
namespace {

constexpr int64_t kFreshCallNsMax = kSecondNs;

absl::Status Wait(int socket, short events, int64_t deadline_ns) {
  for (;;) {
    const int64_t left_ns = deadline_ns - RealClock().NowNs();
    if (left_ns <= 0) {
      return absl::UnavailableError(
          "the memory server does not answer: is it stuck, stopped, or behind a firewall?");
    }
    const timespec timeout = {left_ns / kSecondNs, left_ns % kSecondNs};
    pollfd entry = {socket, events, 0};
    if (ppoll(&entry, 1, &timeout, nullptr) > 0) return absl::OkStatus();
  }
}

absl::Status Send(int socket, VerbsFrameType type, std::string_view body, int64_t deadline_ns,
                  uint32_t sequence = 0) {
  std::string bytes = EncodeVerbsFrame(type, sequence, body);
  while (!bytes.empty()) {
    // Where the server has closed the connection its reason may be there to be read.
    if (SendTcp(socket, &bytes) == TcpResult::kGone) return absl::OkStatus();
    if (!bytes.empty()) PANDO_RETURN_IF_ERROR(Wait(socket, POLLOUT, deadline_ns));
  }
  return absl::OkStatus();
}

absl::StatusOr<VerbsFrame> Receive(VerbsLink* link, int64_t deadline_ns) {
  for (;;) {
    PANDO_ASSIGN_OR_RETURN(std::optional<VerbsFrame> frame, link->reader.Next());
    if (frame.has_value()) {
      if (frame->type == VerbsFrameType::kError) return ParseStatus(frame->body);
      return *std::move(frame);
    }
    PANDO_RETURN_IF_ERROR(Wait(link->socket.get(), POLLIN, deadline_ns));
    std::string bytes;
    if (ReceiveTcp(link->socket.get(), &bytes) == TcpResult::kGone) {
      return absl::UnavailableError("the memory server closed the connection");
    }
    link->reader.Append(bytes);
  }
}

// Each side proves to the other that it knows the cluster's secret (common/auth).
absl::Status Prove(VerbsLink* link, ClientProof proof, int64_t deadline_ns) {
  std::string token = proof.Hello();
  for (;;) {
    if (!token.empty()) {
      PANDO_RETURN_IF_ERROR(Send(link->socket.get(), VerbsFrameType::kAuth, token, deadline_ns));
    }
    if (proof.done()) return absl::OkStatus();
    PANDO_ASSIGN_OR_RETURN(const VerbsFrame frame, Receive(link, deadline_ns));
    if (frame.type != VerbsFrameType::kAuth) {
      return absl::PermissionDeniedError(
          "the memory server does not prove that it knows the cluster's secret");
    }
    token.clear();
    const absl::Status status = proof.Handle(frame.body, &token);
    if (!status.ok()) {
      if (!token.empty()) {
        // Best effort: it only says why.
        Send(link->socket.get(), VerbsFrameType::kAuth, token, deadline_ns).IgnoreError();
      }
      return status;
    }
  }
}

absl::StatusOr<std::unique_ptr<VerbsLink>> Shake(const ServerLocation& location,
                                                 const VerbsFabricOptions& options,
                                                 int64_t deadline_ns) {
  PANDO_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(location.address));
  auto link = std::make_unique<VerbsLink>();
  link->location = location;
  PANDO_ASSIGN_OR_RETURN(link->socket, ConnectTcp(address, deadline_ns));
  TuneTcp(link->socket.get(), options.silence_ms);
  const std::string hello = EncodeBody<VerbsFeatures>(
      {.compatible = options.secret != nullptr ? kVerbsCompatibleProof : 0});
  PANDO_RETURN_IF_ERROR(Send(link->socket.get(), VerbsFrameType::kHello, hello, deadline_ns));
  PANDO_ASSIGN_OR_RETURN(VerbsFrame frame, Receive(link.get(), deadline_ns));
  if (frame.type != VerbsFrameType::kHelloReply) {
    return absl::DataLossError("the answer to the hello is something else");
  }
  PANDO_ASSIGN_OR_RETURN(const VerbsHelloReply server, ParseVerbsHelloReply(frame.body));
  if (server.server_id != location.id) {
    return absl::InvalidArgumentError(
        absl::StrCat("the memory server there calls itself server ", server.server_id));
  }
  const bool secret = (server.features.compatible & kVerbsCompatibleProof) != 0;
  if (secret != (options.secret != nullptr)) {
    return absl::PermissionDeniedError(
        secret ? "this cluster has a secret, and this client was given none: --secret_file"
               : "this client was given a secret, and the memory server has none");
  }
  if (options.secret != nullptr) {
    ClientProof proof(options.secret.get(), {hello, frame.body});
    PANDO_RETURN_IF_ERROR(Prove(link.get(), std::move(proof), deadline_ns));
  }
  PANDO_ASSIGN_OR_RETURN(frame, Receive(link.get(), deadline_ns));
  if (frame.type != VerbsFrameType::kMemory) {
    return absl::DataLossError("the memory server does not say where its memory is");
  }
  PANDO_ASSIGN_OR_RETURN(link->memory, ParseVerbsMemory(frame.body));
  return link;
}

int64_t DeadlineOf(const VerbsFabricOptions& options) {
  return RealClock().NowNs() + options.connect_timeout_ms * kMillisecondNs;
}

absl::Status ConnectingFailed(const ServerLocation& location, const absl::Status& why) {
  return Annotate(why,
                  absl::StrCat("connecting to server ", location.id, " at ", location.address));
}

absl::StatusOr<std::string> ShakeAndCall(const ServerLocation& location,
                                         const VerbsFabricOptions& options,
                                         std::string_view request) {
  constexpr uint32_t kSequence = 1;
  const int64_t deadline_ns = std::min(DeadlineOf(options), RealClock().NowNs() + kFreshCallNsMax);
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<VerbsLink> link,
                         Shake(location, options, deadline_ns));
  const int socket = link->socket.get();
  PANDO_RETURN_IF_ERROR(Send(socket, VerbsFrameType::kCall, request, deadline_ns, kSequence));
  PANDO_ASSIGN_OR_RETURN(VerbsFrame frame, Receive(link.get(), deadline_ns));
  if (frame.type != VerbsFrameType::kCallReply || frame.sequence != kSequence) {
    return absl::DataLossError("the answer to the call is something else");
  }
  return std::move(frame.body);
}

}  // namespace

absl::StatusOr<std::unique_ptr<VerbsLink>> ShakeVerbsHands(const ServerLocation& location,
                                                           const VerbsFabricOptions& options) {
  absl::StatusOr<std::unique_ptr<VerbsLink>> link = Shake(location, options, DeadlineOf(options));
  return link.ok() ? std::move(link) : ConnectingFailed(location, link.status());
}

absl::StatusOr<std::string> CallVerbsServer(const ServerLocation& location,
                                            const VerbsFabricOptions& options,
                                            std::string_view request) {
  absl::StatusOr<std::string> reply = ShakeAndCall(location, options, request);
  return reply.ok() ? std::move(reply) : ConnectingFailed(location, reply.status());
}

}  // namespace pando
