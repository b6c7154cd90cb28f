// Messages of the mutual proof (mutual_proof.h). Magic and version stand first in every version.
//
// Encoders and the parser are pure; the parser takes any bytes. FailedPrecondition: another version
// (says both). DataLoss: anything else that is no message.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/auth/hmac.h"

namespace pando {

inline constexpr uint32_t kAuthMagic = 0x54554150;  // "PAUT"
inline constexpr uint16_t kAuthVersion = 1;
inline constexpr size_t kAuthNonceBytes = 32;
inline constexpr size_t kAuthMacBytes = kMacBytes;

using AuthNonce = std::array<uint8_t, kAuthNonceBytes>;
using AuthMac = Mac;

enum class AuthType : uint16_t {
  kClientHello = 1,  // nonce, or the type below without one: the client has no secret
  kClientHelloWithout = 2,
  kServerProof = 3,    // nonce, mac
  kServerWithout = 4,  // neither side has a secret: done
  kClientProof = 5,    // mac
  kAccepted = 6,       // the server: done
  kRefused = 7,        // either side: why
};

enum class AuthRefusal : uint8_t {
  kNone = 0,
  kWrongProof = 1,         // the receiver has another secret
  kServerHasSecret = 2,    // and the client has none
  kServerHasNoSecret = 3,  // and the client has one
};

struct AuthMessage {
  AuthType type = AuthType::kRefused;
  AuthNonce nonce = {};
  AuthMac mac = {};
  AuthRefusal refusal = AuthRefusal::kNone;

  friend bool operator==(const AuthMessage&, const AuthMessage&) = default;
};

// The longest message.
inline constexpr size_t kAuthMessageBytesMax = 8 + kAuthNonceBytes + kAuthMacBytes;

// Only the fields of the message's type are written.
std::string EncodeAuthMessage(const AuthMessage& message);
absl::StatusOr<AuthMessage> ParseAuthMessage(std::string_view bytes);

}  // namespace pando
