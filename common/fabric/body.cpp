#include "common/fabric/body.h"

namespace pando {

std::string EncodeStatus(const absl::Status& status) {
  constexpr size_t kMessageBytesMax = 1024;
  std::string body = EncodeBody(static_cast<uint32_t>(status.raw_code()));
  const absl::string_view message = status.message().substr(0, kMessageBytesMax);
  body.append(message.data(), message.size());
  return body;
}

absl::Status ParseStatus(std::string_view body) {
  uint32_t code;
  if (body.size() < sizeof(code)) return absl::DataLossError("an error without a code");
  std::memcpy(&code, body.data(), sizeof(code));
  if (code == 0 || code > static_cast<uint32_t>(absl::StatusCode::kUnauthenticated)) {
    return absl::DataLossError(absl::StrCat("an error with the unknown code ", code));
  }
  const std::string_view message = body.substr(sizeof(code));
  return absl::Status(static_cast<absl::StatusCode>(code),
                      absl::string_view(message.data(), message.size()));
}

}  // namespace pando
