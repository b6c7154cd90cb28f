#include "common/fabric/shm/shm_frame.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/fabric/body.h"

namespace pando {
namespace {

// Bodies on the wire; hosts are one and the same, so integers are in its order.
struct HelloReplyBody {
  uint16_t server_id;
  uint16_t reserved;
  uint32_t packet_bytes;
  uint64_t main_bytes;
  uint64_t lock_bytes;
  uint32_t endpoints_max;
  uint32_t reserved2;
};
static_assert(std::is_trivially_copyable_v<HelloReplyBody> && sizeof(HelloReplyBody) == 32);

struct OpenSlotBody {
  uint16_t compute_server;
  uint16_t reserved;
  uint32_t incarnation;
};
static_assert(std::is_trivially_copyable_v<OpenSlotBody> && sizeof(OpenSlotBody) == 8);

}  // namespace

std::string EncodeShmFrame(ShmFrameType type, uint32_t sequence, std::string_view body) {
  PANDO_CHECK_LE(body.size(), kShmBodyBytesMax);
  ShmFrameHeader header;
  header.type = static_cast<uint16_t>(type);
  header.sequence = sequence;
  header.length = static_cast<uint32_t>(body.size());
  std::string bytes = EncodeBody(header);
  bytes.append(body);
  return bytes;
}

absl::StatusOr<ShmFrame> ParseShmFrame(std::string_view bytes) {
  ShmFrameHeader header;
  if (bytes.size() < sizeof(header)) {
    return absl::DataLossError(
        absl::StrCat("message of ", bytes.size(), " bytes is too short for a shm control frame"));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kShmMagic) {
    return absl::DataLossError("message is no shm control frame (wrong magic number)");
  }
  if (header.version != kShmVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the other side speaks version ", header.version,
                     " of the shm handshake, this side version ", kShmVersion,
                     ": use the same release of Pando on both"));
  }
  if (header.length != bytes.size() - sizeof(header) || header.length > kShmBodyBytesMax) {
    return absl::DataLossError(absl::StrCat("shm control frame says ", header.length,
                                            " bytes and has ", bytes.size() - sizeof(header)));
  }
  if (header.type < static_cast<uint16_t>(ShmFrameType::kHello) ||
      header.type > static_cast<uint16_t>(ShmFrameType::kError)) {
    return absl::DataLossError(absl::StrCat("shm control frame of unknown type ", header.type));
  }
  return ShmFrame{static_cast<ShmFrameType>(header.type), header.sequence,
                  bytes.substr(sizeof(header))};
}

std::string EncodeShmHelloReply(const ShmHelloReply& reply) {
  HelloReplyBody body = {};
  body.server_id = reply.server_id;
  body.packet_bytes = reply.geometry.packet_bytes;
  body.main_bytes = reply.geometry.main_bytes;
  body.lock_bytes = reply.geometry.lock_bytes;
  body.endpoints_max = reply.geometry.endpoints_max;
  return EncodeBody(body);
}

absl::StatusOr<ShmHelloReply> ParseShmHelloReply(std::string_view bytes) {
  absl::StatusOr<HelloReplyBody> body = ParseBody<HelloReplyBody>(bytes, "the reply to a hello");
  if (!body.ok()) return body.status();
  absl::StatusOr<ShmGeometry> geometry = ShmGeometry::Create(
      body->main_bytes, body->lock_bytes, body->packet_bytes, body->endpoints_max);
  if (!geometry.ok()) return absl::DataLossError(geometry.status().message());
  return ShmHelloReply{body->server_id, *geometry};
}

std::string EncodeShmOpenSlot(const ShmOpenSlot& request) {
  OpenSlotBody body = {};
  body.compute_server = request.compute_server;
  body.incarnation = request.incarnation;
  return EncodeBody(body);
}

absl::StatusOr<ShmOpenSlot> ParseShmOpenSlot(std::string_view bytes) {
  absl::StatusOr<OpenSlotBody> body = ParseBody<OpenSlotBody>(bytes, "a request for a slot");
  if (!body.ok()) return body.status();
  return ShmOpenSlot{body->compute_server, body->incarnation};
}

std::string EncodeShmSlot(uint32_t slot) { return EncodeBody(slot); }

absl::StatusOr<uint32_t> ParseShmSlot(std::string_view body) {
  return ParseBody<uint32_t>(body, "a slot number");
}

}  // namespace pando
