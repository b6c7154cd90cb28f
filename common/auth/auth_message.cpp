#include "common/auth/auth_message.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "common/wire/byte_codec.h"

namespace pando {
namespace {

static_assert(std::endian::native == std::endian::little, "fields are written as they lie");

bool HasNonce(AuthType type) {
  return type == AuthType::kClientHello || type == AuthType::kServerProof;
}
bool HasMac(AuthType type) {
  return type == AuthType::kServerProof || type == AuthType::kClientProof;
}

}  // namespace

std::string EncodeAuthMessage(const AuthMessage& message) {
  wire::ByteWriter writer;
  writer.Put(kAuthMagic).Put(kAuthVersion).Put(message.type);
  if (HasNonce(message.type)) writer.Put(message.nonce);
  if (HasMac(message.type)) writer.Put(message.mac);
  if (message.type == AuthType::kRefused) writer.Put(message.refusal);
  return writer.Take();
}

absl::StatusOr<AuthMessage> ParseAuthMessage(std::string_view bytes) {
  wire::ByteReader reader(bytes);
  uint32_t magic = 0;
  uint16_t version = 0, type = 0;
  if (!reader.Take(&magic) || magic != kAuthMagic) {
    return absl::DataLossError("message is not a proof of a secret (wrong magic number)");
  }
  if (!reader.Take(&version) || !reader.Take(&type)) {
    return absl::DataLossError("message is too short for a proof of a secret");
  }
  if (version != kAuthVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the other side proves its secret by version ", version, ", this side by ",
                     kAuthVersion, ": use the same release of Pando on both"));
  }
  if (type < static_cast<uint16_t>(AuthType::kClientHello) ||
      type > static_cast<uint16_t>(AuthType::kRefused)) {
    return absl::DataLossError(absl::StrCat("proof of a secret of unknown type ", type));
  }
  AuthMessage message = {.type = static_cast<AuthType>(type)};
  if (HasNonce(message.type)) reader.Take(&message.nonce);
  if (HasMac(message.type)) reader.Take(&message.mac);
  uint8_t refusal = 0;
  if (message.type == AuthType::kRefused) reader.Take(&refusal);
  if (!reader.Done()) {
    return absl::DataLossError(
        absl::StrCat("proof of a secret of type ", type, " has ", bytes.size(), " bytes"));
  }
  if (message.type == AuthType::kRefused) {
    if (refusal < static_cast<uint8_t>(AuthRefusal::kWrongProof) ||
        refusal > static_cast<uint8_t>(AuthRefusal::kServerHasNoSecret)) {
      return absl::DataLossError(absl::StrCat("refusal for the unknown reason ", refusal));
    }
    message.refusal = static_cast<AuthRefusal>(refusal);
  }
  return message;
}

}  // namespace pando
