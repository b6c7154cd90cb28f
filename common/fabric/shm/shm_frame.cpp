#include "common/fabric/shm/shm_frame.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/body.h"

namespace pando {
namespace {

constexpr FrameFormat kFormat = {"shm", kShmMagic, kShmVersion,
                                 static_cast<uint16_t>(ShmFrameType::kPeerHelloReply),
                                 kShmBodyBytesMax};

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
  const FrameStart start = {kShmMagic, kShmVersion, static_cast<uint16_t>(type), sequence,
                            static_cast<uint32_t>(body.size())};
  return EncodeBody(start).append(body);
}

absl::StatusOr<ShmFrame> ParseShmFrame(std::string_view bytes) {
  FrameStart start;
  if (bytes.size() < sizeof(start)) {
    return absl::DataLossError(
        absl::StrCat("message of ", bytes.size(), " bytes is too short for a shm control frame"));
  }
  std::memcpy(&start, bytes.data(), sizeof(start));
  PANDO_RETURN_IF_ERROR(CheckFrameStart(start, kFormat));
  if (start.length != bytes.size() - sizeof(start)) {
    return absl::DataLossError(absl::StrCat("shm control frame says ", start.length,
                                            " bytes and has ", bytes.size() - sizeof(start)));
  }
  return ShmFrame{static_cast<ShmFrameType>(start.type), start.sequence,
                  bytes.substr(sizeof(start))};
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
