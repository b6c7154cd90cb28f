#include "common/fabric/shm/shm_connection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/body.h"

namespace pando {
namespace {

// Then others get their turn.
constexpr int kFramesPerEvent = 16;

}  // namespace

ShmConnection::ShmConnection(PeerId peer, UniqueFd socket, PeerProcess process,
                             const Context* context)
    : ServedLink(peer, std::move(socket), absl::StrCat("process ", process.pid),
                 absl::StrCat("process ", process.pid)),
      process_(std::move(process)),
      context_(*context) {}

absl::Status ShmConnection::OnReady() {
  if (!reply_.empty()) {
    const SendResult sent = SendMessage(socket(), reply_);
    if (sent == SendResult::kGone) return absl::CancelledError("closed by the client");
    if (sent == SendResult::kSent) reply_.clear();
  }
  for (int i = 0; i < kFramesPerEvent && reply_.empty(); ++i) {
    size_t bytes = 0;
    switch (ReceiveMessage(socket(), context_.buffer, &bytes)) {
      case ReceiveResult::kNothing:
        return absl::OkStatus();
      case ReceiveResult::kGone:
        return absl::CancelledError("closed by the client");
      case ReceiveResult::kTooLong:
        return Refuse(absl::DataLossError(
            absl::StrCat("message longer than ", context_.buffer.size(), " bytes")));
      case ReceiveResult::kMessage:
        PANDO_RETURN_IF_ERROR(
            HandleFrame({reinterpret_cast<const char*>(context_.buffer.data()), bytes}));
    }
  }
  return absl::OkStatus();
}

absl::Status ShmConnection::HandleFrame(std::string_view bytes) {
  const absl::StatusOr<ShmFrame> frame = ParseShmFrame(bytes);
  if (!frame.ok()) return Refuse(frame.status());
  if (introduced_ == (frame->type == ShmFrameType::kHello)) {
    return Refuse(absl::DataLossError(introduced_ ? "a second hello" : "no hello"));
  }
  return introduced_ ? HandleRequest(*frame) : Hello();
}

absl::Status ShmConnection::Hello() {
  introduced_ = true;
  const std::string body = EncodeShmHelloReply({context_.server_id, context_.region->geometry()});
  const SendResult sent = SendMessage(socket(), EncodeShmFrame(ShmFrameType::kHelloReply, 0, body),
                                      context_.region->fd());
  if (sent == SendResult::kSent) return absl::OkStatus();
  // An empty socket takes one small message; a client that filled it is none of ours.
  return absl::CancelledError("the hello could not be answered");
}

absl::Status ShmConnection::HandleRequest(const ShmFrame& frame) {
  switch (frame.type) {
    case ShmFrameType::kOpenSlot:
      return OpenSlot(frame);
    case ShmFrameType::kCloseSlot:
      return CloseSlot(frame.body);
    case ShmFrameType::kCall: {
      const absl::StatusOr<std::string> reply =
          AnswerCall(context_.handler, frame.body, kShmBodyBytesMax);
      if (reply.ok()) return Reply(ShmFrameType::kCallReply, frame.sequence, *reply);
      return Reply(ShmFrameType::kError, frame.sequence, EncodeStatus(reply.status()));
    }
    default:
      return Refuse(absl::DataLossError(
          absl::StrCat("a client does not send frames of type ", static_cast<int>(frame.type))));
  }
}

absl::Status ShmConnection::OpenSlot(const ShmFrame& frame) {
  const absl::StatusOr<ShmOpenSlot> request = ParseShmOpenSlot(frame.body);
  if (!request.ok()) return Refuse(request.status());
  const absl::Status may = context_.handler->IsKnown(peer())
                               ? absl::OkStatus()
                               : context_.check_strangers_slots(origin());
  const absl::StatusOr<uint32_t> slot = may.ok() ? context_.slots->Assign(peer()) : may;
  if (!slot.ok()) {
    PANDO_LOG_LIMITED(*context_.slot_log, WARNING)
        << "compute server " << request->compute_server << " (" << name()
        << "): " << slot.status().message();
    return Reply(ShmFrameType::kError, frame.sequence, EncodeStatus(slot.status()));
  }
  slots_.push_back(*slot);
  return Reply(ShmFrameType::kSlotReply, frame.sequence, EncodeShmSlot(*slot));
}

absl::Status ShmConnection::CloseSlot(std::string_view body) {
  const absl::StatusOr<uint32_t> slot = ParseShmSlot(body);
  if (!slot.ok()) return Refuse(slot.status());
  const absl::Status freed = context_.slots->Free(peer(), *slot);
  if (!freed.ok()) return Refuse(freed);
  slots_.erase(std::find(slots_.begin(), slots_.end(), *slot));
  return absl::OkStatus();
}

absl::Status ShmConnection::Reply(ShmFrameType type, uint32_t sequence, std::string_view body) {
  std::string frame = EncodeShmFrame(type, sequence, body);
  switch (SendMessage(socket(), frame)) {
    case SendResult::kSent:
      return absl::OkStatus();
    case SendResult::kFull:
      reply_ = std::move(frame);
      return absl::OkStatus();
    case SendResult::kGone:
      break;
  }
  return absl::CancelledError("closed by the client");
}

absl::Status ShmConnection::Refuse(const absl::Status& status) {
  SendMessage(socket(), EncodeShmFrame(ShmFrameType::kError, 0, EncodeStatus(status)));
  return status;
}

}  // namespace pando
