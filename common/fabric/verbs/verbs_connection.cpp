#include "common/fabric/verbs/verbs_connection.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/fabric/body.h"
#include "common/fabric/verbs/tcp_socket.h"

namespace pando {
namespace {

// Then others get their turn.
constexpr int kReadsPerEvent = 4;
// Between lines in the log about one connection.
constexpr int64_t kComplainNs = 10 * kSecondNs;

}  // namespace

absl::Status VerbsConnection::Flush() {
  if (out_.empty()) return absl::OkStatus();
  if (SendTcp(socket_.get(), &out_) == TcpResult::kGone) {
    return absl::CancelledError("closed by the client");
  }
  return absl::OkStatus();
}

absl::Status VerbsConnection::OnReady() {
  has_more_ = false;
  PANDO_RETURN_IF_ERROR(Flush());
  for (int reads = 0; out_.empty();) {
    absl::StatusOr<std::optional<VerbsFrame>> frame =
        reader_.Next(introduced_ ? kVerbsBodyBytesMax : kVerbsHelloBytesMax);
    if (!frame.ok()) return Refuse(frame.status());
    if (!frame->has_value()) {
      if (reads++ == kReadsPerEvent) return absl::OkStatus();
      std::string bytes;
      switch (ReceiveTcp(socket_.get(), &bytes)) {
        case TcpResult::kNothing:
          return absl::OkStatus();
        case TcpResult::kGone:
          return absl::CancelledError("closed by the client");
        case TcpResult::kSome:
          reader_.Append(bytes);
          continue;
      }
    }
    PANDO_RETURN_IF_ERROR(HandleFrame(**frame));
    PANDO_RETURN_IF_ERROR(Flush());
    if ((*frame)->type == VerbsFrameType::kOpen) {
      has_more_ = true;
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

absl::Status VerbsConnection::HandleFrame(const VerbsFrame& frame) {
  if (!introduced_) return proof_.has_value() ? CheckProof(frame) : Hello(frame);
  switch (frame.type) {
    case VerbsFrameType::kOpen:
      return Open(frame);
    case VerbsFrameType::kClose:
      return Close(frame);
    case VerbsFrameType::kCall:
      return Call(frame);
    default:
      return Refuse(absl::DataLossError(
          absl::StrCat("a client does not send frames of type ", static_cast<int>(frame.type))));
  }
}

absl::Status VerbsConnection::Hello(const VerbsFrame& frame) {
  if (frame.type != VerbsFrameType::kHello) return Refuse(absl::DataLossError("no hello"));
  const absl::StatusOr<VerbsFeatures> features = ParseVerbsHello(frame.body);
  if (!features.ok()) return Refuse(features.status());
  const std::string hello = EncodeVerbsHelloReply(host_->hello());
  Reply(VerbsFrameType::kHelloReply, 0, hello);
  if (host_->secret() == nullptr) return Welcome();
  proof_.emplace(host_->secret(), Handshakes{frame.body, hello});  // the client speaks next
  return absl::OkStatus();
}

absl::Status VerbsConnection::CheckProof(const VerbsFrame& frame) {
  if (frame.type != VerbsFrameType::kAuth) {
    return Refuse(absl::PermissionDeniedError(
        "this cluster has a secret, and the client does not prove that it knows it"));
  }
  std::string token;
  const absl::Status status = proof_->Handle(frame.body, &token);
  if (!token.empty()) Reply(VerbsFrameType::kAuth, 0, token);
  if (!status.ok()) return Refuse(status);
  return proof_->done() ? Welcome() : absl::OkStatus();
}

absl::Status VerbsConnection::Welcome() {
  introduced_ = true;
  Reply(VerbsFrameType::kMemory, 0, EncodeVerbsMemory(host_->described_memory()));
  return absl::OkStatus();
}

absl::Status VerbsConnection::Open(const VerbsFrame& frame) {
  const absl::StatusOr<VerbsOpen> request = ParseVerbsOpen(frame.body);
  if (!request.ok()) return Refuse(request.status());
  const absl::StatusOr<VerbsOpenReply> reply = OpenFor(*request);
  if (reply.ok()) {
    Reply(VerbsFrameType::kOpenReply, frame.sequence, EncodeVerbsOpenReply(*reply));
  } else {
    // Each of its sessions asks again and again.
    if (const int64_t now_ns = RealClock().NowNs(); now_ns >= complain_again_ns_) {
      complain_again_ns_ = now_ns + kComplainNs;
      PANDO_LOG(WARNING) << "compute server " << request->compute_server << " at " << name_
                         << " gets no queue pair: " << reply.status();
    }
    Reply(VerbsFrameType::kError, frame.sequence, EncodeStatus(reply.status()));
  }
  return absl::OkStatus();
}

absl::StatusOr<VerbsOpenReply> VerbsConnection::OpenFor(const VerbsOpen& request) {
  if (cut_off_) {
    return absl::PermissionDeniedError(
        "this client was cut off, as nothing was heard of it for a lease: connect anew");
  }
  if (request.replaces != 0) {
    // One that is gone already was destroyed for an earlier request of this kind.
    const size_t destroyed = pairs_.erase(request.replaces);
    host_->OnQueuePairsClosed(destroyed);
    PANDO_RETURN_IF_ERROR(host_->AwaitQuiet());
  }
  PANDO_ASSIGN_OR_RETURN(QueuePair pair, host_->OpenQueuePair(request.address));
  VerbsOpenReply reply;
  reply.address = pair.address();
  do {
    reply.handle = ++last_handle_;
  } while (reply.handle == 0 || pairs_.contains(reply.handle));
  pairs_.emplace(reply.handle, std::move(pair));
  return reply;
}

absl::Status VerbsConnection::Close(const VerbsFrame& frame) {
  const absl::StatusOr<uint32_t> handle = ParseVerbsHandle(frame.body);
  if (!handle.ok()) return Refuse(handle.status());
  // May be gone already, where its client was cut off meanwhile.
  host_->OnQueuePairsClosed(pairs_.erase(*handle));
  return absl::OkStatus();
}

absl::Status VerbsConnection::Call(const VerbsFrame& frame) {
  const std::string reply = host_->handler()->Handle(peer_, frame.body);
  if (reply.size() > kVerbsBodyBytesMax) {
    const absl::Status status = absl::InternalError(
        absl::StrCat("reply of ", reply.size(), " bytes is over ", kVerbsBodyBytesMax));
    PANDO_LOG(ERROR) << status;
    Reply(VerbsFrameType::kError, frame.sequence, EncodeStatus(status));
  } else {
    Reply(VerbsFrameType::kCallReply, frame.sequence, reply);
  }
  return absl::OkStatus();
}

void VerbsConnection::CutOff() {
  cut_off_ = true;
  DestroyQueuePairs();
}

void VerbsConnection::DestroyQueuePairs() {
  host_->OnQueuePairsClosed(pairs_.size());
  pairs_.clear();
}

absl::Status VerbsConnection::Refuse(const absl::Status& status) {
  Reply(VerbsFrameType::kError, 0, EncodeStatus(status));
  SendTcp(socket_.get(), &out_);
  return status;
}

}  // namespace pando
