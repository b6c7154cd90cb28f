// A client of a verbs server's control port that says what a test says, lawful or not: frames over
// TCP, and no device. Not thread-safe.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/auth/mutual_proof.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/fabric/body.h"
#include "common/fabric/verbs/tcp_socket.h"
#include "common/fabric/verbs/verbs_frame.h"
#include "common/wire/control.h"

namespace pando {

// One TCP connection that says what the test says.
class Speaker {
 public:
  // To an IPv4 address of this machine. `host`: the last byte of its own, 127.0.0.`host`.
  explicit Speaker(const HostPort& port, uint8_t host = 1)
      : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK - 1 + host);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(inet_pton(AF_INET, port.host.c_str(), &address.sin_addr), 1) << port.host;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(port.port)));
    EXPECT_EQ(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    TuneTcp(socket_.get(), 10'000);
  }
  void Say(std::string bytes) { SendTcp(socket_.get(), &bytes); }
  void Say(VerbsFrameType type, uint32_t sequence, std::string_view body) {
    Say(EncodeVerbsFrame(type, sequence, body));
  }
  // nullopt: the connection has ended, or nothing came for ten seconds.
  std::optional<VerbsFrame> Hear() {
    const int64_t deadline_ns = RealClock().NowNs() + 10 * kSecondNs;
    while (RealClock().NowNs() < deadline_ns) {
      auto frame = reader_.Next();
      if (!frame.ok()) return std::nullopt;
      if (frame->has_value()) return *frame;
      pollfd entry = {socket_.get(), POLLIN, 0};
      poll(&entry, 1, 100);
      std::string bytes;
      if (ReceiveTcp(socket_.get(), &bytes) == TcpResult::kGone) return std::nullopt;
      reader_.Append(bytes);
    }
    return std::nullopt;
  }
  // What it is told before the connection ends.
  absl::Status HearTheEnd() {
    absl::Status reason;
    while (const std::optional<VerbsFrame> frame = Hear()) {
      if (frame->type == VerbsFrameType::kError) reason = ParseStatus(frame->body);
    }
    return reason;
  }
  // Hello, and where there is a secret the proof. False: refused.
  bool Greet(const ClusterSecret* secret = nullptr) {
    const std::string hello =
        EncodeBody<VerbsFeatures>({.compatible = secret != nullptr ? kVerbsCompatibleProof : 0});
    Say(VerbsFrameType::kHello, 0, hello);
    std::optional<VerbsFrame> frame = Hear();
    if (!frame.has_value() || frame->type != VerbsFrameType::kHelloReply) return false;
    if (secret != nullptr) {
      ClientProof proof(secret, {hello, frame->body});
      std::string token = proof.Hello();
      while (!proof.done()) {
        Say(VerbsFrameType::kAuth, 0, token);
        frame = Hear();
        if (!frame.has_value() || !proof.Handle(frame->body, &token).ok()) return false;
      }
    }
    frame = Hear();
    return frame.has_value() && frame->type == VerbsFrameType::kMemory;
  }
  absl::StatusOr<std::string> Call(ControlOpcode opcode, std::string_view body = "") {
    ControlHeader header;
    header.opcode = static_cast<uint16_t>(opcode);
    header.sender = identity.compute_server;
    header.incarnation = identity.incarnation;
    header.sequence = ++sequence_;
    Say(VerbsFrameType::kCall, sequence_, EncodeMessage(header, body));
    const std::optional<VerbsFrame> frame = Hear();
    if (!frame.has_value()) return absl::UnavailableError("the connection has ended");
    if (frame->type == VerbsFrameType::kError) return ParseStatus(frame->body);
    const auto reply = ParseReply(frame->body, opcode, sequence_);
    if (!reply.ok()) return reply.status();
    return std::string(*reply);
  }
  absl::Status Join() {
    const auto body = Call(ControlOpcode::kJoin, EncodeJoinRequest({.process_id = 1}));
    if (!body.ok()) return body.status();
    const auto reply = ParseJoinReply(*body);
    if (reply.ok()) identity = *reply;
    return reply.status();
  }
  void AskForPair(const QueuePairAddress& at) {
    Say(VerbsFrameType::kOpen, ++sequence_,
        EncodeBody<VerbsOpen>({.address = at, .compute_server = identity.compute_server}));
  }
  // The handle, or why there is none.
  absl::StatusOr<uint32_t> OpenPair(const QueuePairAddress& at) {
    AskForPair(at);
    const std::optional<VerbsFrame> frame = Hear();
    if (!frame.has_value()) return absl::UnavailableError("the connection has ended");
    if (frame->type == VerbsFrameType::kError) return ParseStatus(frame->body);
    return ParseVerbsOpenReply(frame->body)->handle;
  }
  void ClosePair(uint32_t handle) { Say(VerbsFrameType::kClose, 0, EncodeBody<uint32_t>(handle)); }
  void Hush() { socket_.Reset(); }

  JoinReply identity;  // zeros before Join()

 private:
  UniqueFd socket_;
  VerbsFrameReader reader_;
  uint32_t sequence_ = 0;
};

}  // namespace pando
