#include "common/fabric/verbs/verbs_frame.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/body.h"
#include "common/wire/crc32c.h"

namespace pando {
namespace {

constexpr uint64_t kSpaceBytesMax = uint64_t{1} << 48;
constexpr uint32_t kPacketBytesMax = 64 << 10;
constexpr uint32_t kMtuBytesMax = 4096;
// Consumed bytes are moved out of the way once there are as many.
constexpr size_t kCompactBytes = 64 << 10;

uint32_t FrameCrc(VerbsFrameHeader header, std::string_view body) {
  header.crc = 0;
  return Crc32c(body.data(), body.size(), Crc32c(&header, sizeof(header)));
}

constexpr FrameFormat kFormat = {"verbs", kVerbsMagic, kVerbsVersion,
                                 static_cast<uint16_t>(VerbsFrameType::kPeerReady),
                                 kVerbsBodyBytesMax};

absl::Status CheckFeatures(const VerbsFeatures& features) {
  const uint64_t unknown = features.incompatible & ~kVerbsIncompatibleKnown;
  if (unknown == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the other side needs features that this one does not know (bits ",
                   absl::Hex(unknown), "): use the same release of Pando on both"));
}

bool IsSpace(uint64_t address, uint64_t bytes) {
  return bytes > 0 && bytes % 64 == 0 && bytes <= kSpaceBytesMax && address % 64 == 0 &&
         address <= UINT64_MAX - bytes;
}

}  // namespace

std::string EncodeVerbsFrame(VerbsFrameType type, uint32_t sequence, std::string_view body) {
  PANDO_CHECK_LE(body.size(), kVerbsBodyBytesMax);
  VerbsFrameHeader header;
  header.start.type = static_cast<uint16_t>(type);
  header.start.sequence = sequence;
  header.start.length = static_cast<uint32_t>(body.size());
  header.crc = FrameCrc(header, body);
  std::string bytes = EncodeBody(header);
  bytes.append(body);
  return bytes;
}

absl::StatusOr<std::optional<VerbsFrame>> VerbsFrameReader::Next(uint32_t body_bytes_max) {
  VerbsFrameHeader header;
  const std::string_view left = std::string_view(bytes_).substr(used_);
  if (left.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, left.data(), sizeof(header));
  PANDO_RETURN_IF_ERROR(CheckFrameStart(header.start, kFormat));
  if (header.start.length > body_bytes_max) {
    return absl::DataLossError(absl::StrCat("verbs control frame of ", header.start.length,
                                            " bytes where at most ", body_bytes_max, " may come"));
  }
  if (left.size() < sizeof(header) + header.start.length) return std::nullopt;
  const std::string_view body = left.substr(sizeof(header), header.start.length);
  if (FrameCrc(header, body) != header.crc) {
    return absl::DataLossError("verbs control frame with a wrong checksum");
  }
  VerbsFrame frame = {static_cast<VerbsFrameType>(header.start.type), header.start.sequence,
                      std::string(body)};
  used_ += sizeof(header) + header.start.length;
  if (used_ == bytes_.size() || used_ >= kCompactBytes) {
    bytes_.erase(0, used_);
    used_ = 0;
  }
  return frame;
}

absl::StatusOr<VerbsFeatures> ParseVerbsHello(std::string_view body) {
  PANDO_ASSIGN_OR_RETURN(const VerbsFeatures features, ParseBody<VerbsFeatures>(body, "a hello"));
  PANDO_RETURN_IF_ERROR(CheckFeatures(features));
  return features;
}

absl::StatusOr<VerbsHelloReply> ParseVerbsHelloReply(std::string_view body) {
  PANDO_ASSIGN_OR_RETURN(const VerbsHelloReply reply,
                         ParseBody<VerbsHelloReply>(body, "the reply to a hello"));
  PANDO_RETURN_IF_ERROR(CheckFeatures(reply.features));
  return reply;
}

absl::StatusOr<VerbsMemory> ParseVerbsMemory(std::string_view body) {
  PANDO_ASSIGN_OR_RETURN(const VerbsMemory memory,
                         ParseBody<VerbsMemory>(body, "the description of a server's memory"));
  const bool packet = memory.packet_bytes >= 64 && memory.packet_bytes % 64 == 0 &&
                      memory.packet_bytes <= kPacketBytesMax;
  if (!IsSpace(memory.main_address, memory.main_bytes) ||
      !IsSpace(memory.lock_address, memory.lock_bytes) || !packet || memory.mtu_bytes < 256 ||
      memory.mtu_bytes > kMtuBytesMax || memory.lines_atomic > 1 || memory.write_unlock > 1) {
    return absl::DataLossError("the server's memory has impossible sizes");
  }
  return memory;
}

absl::StatusOr<VerbsOpen> ParseVerbsOpen(std::string_view body) {
  PANDO_ASSIGN_OR_RETURN(const VerbsOpen request,
                         ParseBody<VerbsOpen>(body, "a request for a queue pair"));
  PANDO_RETURN_IF_ERROR(CheckQueuePairAddress(request.address));
  return request;
}

absl::StatusOr<VerbsOpenReply> ParseVerbsOpenReply(std::string_view body) {
  PANDO_ASSIGN_OR_RETURN(const VerbsOpenReply reply,
                         ParseBody<VerbsOpenReply>(body, "a queue pair"));
  PANDO_RETURN_IF_ERROR(CheckQueuePairAddress(reply.address));
  if (reply.handle == 0) return absl::DataLossError("a queue pair without a handle");
  return reply;
}

absl::StatusOr<uint32_t> ParseVerbsHandle(std::string_view body) {
  return ParseBody<uint32_t>(body, "a handle");
}

}  // namespace pando
