#include "common/fabric/verbs/verbs_connection.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/body.h"
#include "common/fabric/verbs/tcp_socket.h"

namespace pando {
namespace {

// Then others get their turn. One read may have many frames in it.
constexpr int kReadsPerTurn = 4;
constexpr int kFramesPerTurn = 16;
// A client joins over its first session.
constexpr size_t kPairsOfStrangerMax = 4;

}  // namespace

absl::Status VerbsConnection::Flush() {
  if (out_.empty()) return absl::OkStatus();
  if (SendTcp(socket(), &out_) == TcpResult::kGone) {
    return absl::CancelledError("closed by the client");
  }
  return absl::OkStatus();
}

absl::Status VerbsConnection::OnReady() {
  has_more_ = false;
  PANDO_RETURN_IF_ERROR(Flush());
  if (held_.has_value() && !opening_.has_value()) {
    PANDO_RETURN_IF_ERROR(HandleFrame(*std::exchange(held_, std::nullopt)));
    PANDO_RETURN_IF_ERROR(Flush());
  }
  for (int reads = 0, frames = 0; out_.empty() && !held_.has_value();) {
    if (frames == kFramesPerTurn) {
      has_more_ = true;
      return absl::OkStatus();
    }
    absl::StatusOr<std::optional<VerbsFrame>> frame =
        reader_.Next(introduced_ ? kVerbsBodyBytesMax : kVerbsHelloBytesMax);
    if (!frame.ok()) return Refuse(frame.status());
    if (!frame->has_value()) {
      if (reads++ == kReadsPerTurn) return absl::OkStatus();
      std::string bytes;
      switch (ReceiveTcp(socket(), &bytes)) {
        case TcpResult::kNothing:
          return absl::OkStatus();
        case TcpResult::kGone:
          return absl::CancelledError("closed by the client");
        case TcpResult::kSome:
          reader_.Append(bytes);
          continue;
      }
    }
    ++frames;
    PANDO_RETURN_IF_ERROR(HandleFrame(**frame));
    PANDO_RETURN_IF_ERROR(Flush());
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
  const std::string hello = EncodeBody<VerbsHelloReply>(host_->hello());
  Reply(VerbsFrameType::kHelloReply, 0, hello);
  const bool theirs = (features->compatible & kVerbsCompatibleProof) != 0;
  if (theirs != (host_->secret() != nullptr)) {
    return Refuse(absl::PermissionDeniedError(
        theirs ? "the client was given a secret, and this memory server was not: --secret_file"
               : "this cluster has a secret, and the client was given none: --secret_file"));
  }
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
  Reply(VerbsFrameType::kMemory, 0, EncodeBody<VerbsMemory>(host_->described_memory()));
  return absl::OkStatus();
}

absl::Status VerbsConnection::Open(const VerbsFrame& frame) {
  if (opening_.has_value()) {
    held_ = frame;
    return absl::OkStatus();
  }
  const absl::StatusOr<VerbsOpen> request = ParseVerbsOpen(frame.body);
  if (!request.ok()) return Refuse(request.status());
  opening_ = frame.sequence;
  opening_for_ = request->compute_server;
  const absl::Status begun = BeginOpen(*request);
  if (!begun.ok()) ReplyToOpen(begun);
  return absl::OkStatus();
}

absl::Status VerbsConnection::BeginOpen(const VerbsOpen& request) {
  if (cut_off_) {
    return absl::PermissionDeniedError(
        "this client was cut off, as nothing was heard of it for a lease: connect again");
  }
  if (request.replaces != 0) {
    // One that is gone already was destroyed for an earlier request of this kind.
    const size_t destroyed = pairs_.erase(request.replaces);
    host_->OnQueuePairsClosed(destroyed);
    PANDO_RETURN_IF_ERROR(host_->AwaitQuiet());
  }
  if (pairs_.size() >= kPairsOfStrangerMax && !host_->handler()->IsKnown(peer())) {
    return absl::ResourceExhaustedError(
        absl::StrCat("without an identity there are ", kPairsOfStrangerMax, " queue pairs: join"));
  }
  return host_->BeginOpen(*this, request.address);
}

void VerbsConnection::OnOpened(ServedPairOr opened) {
  if (cut_off_) {
    if (opened.ok()) {
      opened->reset();
      host_->OnQueuePairsClosed(1);
    }
    return ReplyToOpen(absl::PermissionDeniedError("this client was cut off: connect again"));
  }
  if (!opened.ok()) return ReplyToOpen(opened.status());
  VerbsOpenReply reply;
  reply.address = (*opened)->address();
  do {
    reply.handle = ++last_handle_;
  } while (reply.handle == 0 || pairs_.contains(reply.handle));
  pairs_.emplace(reply.handle, *std::move(opened));
  ReplyToOpen(reply);
}

void VerbsConnection::ReplyToOpen(const absl::StatusOr<VerbsOpenReply>& reply) {
  const uint32_t sequence = *std::exchange(opening_, std::nullopt);
  if (reply.ok()) {
    return Reply(VerbsFrameType::kOpenReply, sequence, EncodeBody<VerbsOpenReply>(*reply));
  }
  PANDO_LOG_LIMITED(host_->open_log(), WARNING)
      << "compute server " << opening_for_ << " at " << name()
      << " gets no queue pair: " << reply.status();
  Reply(VerbsFrameType::kError, sequence, EncodeStatus(reply.status()));
}

absl::Status VerbsConnection::Close(const VerbsFrame& frame) {
  const absl::StatusOr<uint32_t> handle = ParseVerbsHandle(frame.body);
  if (!handle.ok()) return Refuse(handle.status());
  // May be gone already, where its client was cut off meanwhile.
  host_->OnQueuePairsClosed(pairs_.erase(*handle));
  return absl::OkStatus();
}

absl::Status VerbsConnection::Call(const VerbsFrame& frame) {
  const absl::StatusOr<std::string> reply =
      AnswerCall(host_->handler(), frame.body, kVerbsBodyBytesMax);
  if (reply.ok()) {
    Reply(VerbsFrameType::kCallReply, frame.sequence, *reply);
  } else {
    Reply(VerbsFrameType::kError, frame.sequence, EncodeStatus(reply.status()));
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
  SendTcp(socket(), &out_);
  return status;
}

}  // namespace pando
