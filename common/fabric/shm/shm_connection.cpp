#include "common/fabric/shm/shm_connection.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/body.h"

namespace pando {
namespace {

// Then others get their turn.
constexpr int kFramesPerEvent = 16;
// A client joins over its first endpoint.
constexpr size_t kSlotsOfStrangerMax = 4;

}  // namespace

absl::Status ShmConnection::OnReady(const Context& context, bool writable) {
  if (writable && !reply_.empty()) {
    const SendResult sent = SendMessage(socket_.get(), reply_);
    if (sent == SendResult::kGone) return absl::CancelledError("closed by the client");
    if (sent == SendResult::kSent) reply_.clear();
  }
  for (int i = 0; i < kFramesPerEvent && reply_.empty(); ++i) {
    size_t bytes = 0;
    switch (ReceiveMessage(socket_.get(), context.buffer, &bytes)) {
      case ReceiveResult::kNothing:
        return absl::OkStatus();
      case ReceiveResult::kGone:
        return absl::CancelledError("closed by the client");
      case ReceiveResult::kTooLong:
        return Refuse(absl::DataLossError(
            absl::StrCat("message longer than ", context.buffer.size(), " bytes")));
      case ReceiveResult::kMessage:
        PANDO_RETURN_IF_ERROR(
            HandleFrame(context, {reinterpret_cast<const char*>(context.buffer.data()), bytes}));
    }
  }
  return absl::OkStatus();
}

absl::Status ShmConnection::HandleFrame(const Context& context, std::string_view bytes) {
  const absl::StatusOr<ShmFrame> frame = ParseShmFrame(bytes);
  if (!frame.ok()) return Refuse(frame.status());
  if (introduced_ == (frame->type == ShmFrameType::kHello)) {
    return Refuse(absl::DataLossError(introduced_ ? "a second hello" : "no hello"));
  }
  return introduced_ ? HandleRequest(context, *frame) : Hello(context);
}

absl::Status ShmConnection::Hello(const Context& context) {
  introduced_ = true;
  const std::string body = EncodeShmHelloReply({context.server_id, context.region->geometry()});
  const SendResult sent = SendMessage(
      socket_.get(), EncodeShmFrame(ShmFrameType::kHelloReply, 0, body), context.region->fd());
  if (sent == SendResult::kSent) return absl::OkStatus();
  // An empty socket takes one small message; a client that filled it is none of ours.
  return absl::CancelledError("the hello could not be answered");
}

absl::Status ShmConnection::HandleRequest(const Context& context, const ShmFrame& frame) {
  switch (frame.type) {
    case ShmFrameType::kOpenSlot: {
      const absl::StatusOr<ShmOpenSlot> request = ParseShmOpenSlot(frame.body);
      if (!request.ok()) return Refuse(request.status());
      absl::StatusOr<uint32_t> slot = absl::ResourceExhaustedError(
          absl::StrCat("without an identity there are ", kSlotsOfStrangerMax, " endpoints: join"));
      if (slots_.size() < kSlotsOfStrangerMax || context.handler->IsKnown(peer_)) {
        slot = context.slots->Assign(peer_);
      }
      if (!slot.ok()) {
        PANDO_LOG_LIMITED(*context.slot_log, WARNING)
            << "compute server " << request->compute_server << " (process " << pid()
            << "): " << slot.status().message();
        return Reply(ShmFrameType::kError, frame.sequence, EncodeStatus(slot.status()));
      }
      slots_.push_back(*slot);
      return Reply(ShmFrameType::kSlotReply, frame.sequence, EncodeShmSlot(*slot));
    }
    case ShmFrameType::kCloseSlot:
      return CloseSlot(context, frame.body);
    case ShmFrameType::kCall: {
      const std::string reply = context.handler->Handle(peer_, frame.body);
      if (reply.size() > kShmBodyBytesMax) {
        const absl::Status status = absl::InternalError(
            absl::StrCat("reply of ", reply.size(), " bytes is over ", kShmBodyBytesMax));
        PANDO_LOG(ERROR) << status;
        return Reply(ShmFrameType::kError, frame.sequence, EncodeStatus(status));
      }
      return Reply(ShmFrameType::kCallReply, frame.sequence, reply);
    }
    default:
      return Refuse(absl::DataLossError(
          absl::StrCat("a client does not send frames of type ", static_cast<int>(frame.type))));
  }
}

absl::Status ShmConnection::CloseSlot(const Context& context, std::string_view body) {
  const absl::StatusOr<uint32_t> slot = ParseShmSlot(body);
  if (!slot.ok()) return Refuse(slot.status());
  const absl::Status freed = context.slots->Free(peer_, *slot);
  if (!freed.ok()) return Refuse(freed);
  slots_.erase(std::find(slots_.begin(), slots_.end(), *slot));
  return absl::OkStatus();
}

absl::Status ShmConnection::Reply(ShmFrameType type, uint32_t sequence, std::string_view body) {
  std::string frame = EncodeShmFrame(type, sequence, body);
  switch (SendMessage(socket_.get(), frame)) {
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
  SendMessage(socket_.get(), EncodeShmFrame(ShmFrameType::kError, 0, EncodeStatus(status)));
  return status;
}

}  // namespace pando
