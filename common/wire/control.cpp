#include "common/wire/control.h"

#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/wire/crc32c.h"

namespace pando {
namespace {

// Debian's Abseil has a string_view of its own.
absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

constexpr uint16_t kFlagReply = 1;

uint32_t ChecksumOf(ControlHeader header, std::string_view body) {
  header.crc = 0;
  return Crc32c(body.data(), body.size(), Crc32c(&header, sizeof(header)));
}

ControlHeader ReplyHeader(const ControlHeader& request, ServerId server, absl::StatusCode code) {
  ControlHeader header;
  header.opcode = request.opcode;
  header.sender = server;
  header.flags = kFlagReply;
  header.target_incarnation = request.incarnation;
  header.session = request.session;
  header.sequence = request.sequence;
  header.status = static_cast<uint32_t>(code);
  return header;
}

}  // namespace

std::string EncodeMessage(ControlHeader header, std::string_view body) {
  PANDO_CHECK_LE(body.size(), kControlBodyBytesMax);
  header.magic = kControlMagic;
  header.version = kControlVersion;
  header.length = static_cast<uint32_t>(body.size());
  header.crc = ChecksumOf(header, body);
  std::string message(reinterpret_cast<const char*>(&header), sizeof(header));
  message.append(body);
  return message;
}

std::string EncodeReply(const ControlHeader& request, ServerId server, std::string_view body) {
  if (body.size() > kControlBodyBytesMax) {
    return EncodeErrorReply(
        request, server,
        absl::ResourceExhaustedError(
            absl::StrCat("reply of ", body.size(), " bytes is over ", kControlBodyBytesMax)));
  }
  return EncodeMessage(ReplyHeader(request, server, absl::StatusCode::kOk), body);
}

std::string EncodeErrorReply(const ControlHeader& request, ServerId server,
                             const absl::Status& status) {
  PANDO_CHECK(!status.ok());
  const absl::string_view text = status.message().substr(0, kControlBodyBytesMax);
  return EncodeMessage(ReplyHeader(request, server, status.code()), {text.data(), text.size()});
}

absl::StatusOr<ControlMessage> ParseMessage(std::string_view bytes) {
  // Magic and version come first in every version of the handshake.
  constexpr size_t kPreambleBytes = offsetof(ControlHeader, opcode);
  ControlMessage message;
  ControlHeader& header = message.header;
  if (bytes.size() < kPreambleBytes) {
    return absl::DataLossError(
        absl::StrCat("control message: ", bytes.size(), " bytes are no message"));
  }
  std::memcpy(&header.magic, bytes.data(), sizeof(header.magic));
  std::memcpy(&header.version, bytes.data() + offsetof(ControlHeader, version),
              sizeof(header.version));
  if (header.magic != kControlMagic) {
    return absl::DataLossError("control message: bad magic, the peer is not part of Pando");
  }
  if (header.version != kControlVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("control message: the peer speaks version ", header.version, ", this program ",
                     kControlVersion, "; run the same release on both sides"));
  }
  if (bytes.size() < sizeof(header)) {
    return absl::DataLossError(absl::StrCat("control message: header of ", bytes.size(), " bytes"));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  message.body = bytes.substr(sizeof(header));
  if (header.length > kControlBodyBytesMax || header.length != message.body.size()) {
    return absl::DataLossError(absl::StrCat("control message: body of ", message.body.size(),
                                            " bytes, the header says ", header.length));
  }
  if (header.crc != ChecksumOf(header, message.body)) {
    return absl::DataLossError("control message: checksum does not match");
  }
  return message;
}

absl::StatusOr<std::string_view> ParseReply(std::string_view bytes, ControlOpcode opcode,
                                            uint32_t sequence) {
  const absl::StatusOr<ControlMessage> message = ParseMessage(bytes);
  if (!message.ok()) return message.status();
  const ControlHeader& header = message->header;
  if ((header.flags & kFlagReply) == 0 || header.opcode != static_cast<uint16_t>(opcode) ||
      header.sequence != sequence) {
    return absl::DataLossError(
        absl::StrCat("control reply: opcode ", header.opcode, ", sequence ", header.sequence,
                     ", flags ", header.flags, " does not answer opcode ",
                     static_cast<uint16_t>(opcode), ", sequence ", sequence));
  }
  if (header.status == 0) return message->body;
  if (header.status > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) {
    return absl::DataLossError(absl::StrCat("control reply: status ", header.status, " is none"));
  }
  return absl::Status(static_cast<absl::StatusCode>(header.status), ToAbsl(message->body));
}

}  // namespace pando
