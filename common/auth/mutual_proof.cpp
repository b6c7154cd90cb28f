#include "common/auth/mutual_proof.h"

#include <openssl/rand.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/auth/hmac.h"
#include "common/base/check.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr std::string_view kServerLabel = "pando auth 1: server";
constexpr std::string_view kClientLabel = "pando auth 1: client";

AuthNonce NewNonce() {
  AuthNonce nonce;
  PANDO_CHECK(RAND_bytes(nonce.data(), static_cast<int>(nonce.size())) == 1)
      << "libcrypto has no random numbers";
  return nonce;
}

std::string_view View(const AuthNonce& nonce) {
  return {reinterpret_cast<const char*>(nonce.data()), nonce.size()};
}

AuthMac Prove(const ClusterSecret& secret, std::string_view label, const Handshakes& handshakes,
              const AuthNonce& client_nonce, const AuthNonce& server_nonce) {
  return HmacSha256(secret.bytes(), {label, handshakes.client, handshakes.server,
                                     View(client_nonce), View(server_nonce)});
}

std::string Refuse(AuthRefusal refusal) {
  return EncodeAuthMessage({.type = AuthType::kRefused, .refusal = refusal});
}

absl::Status OutOfTurn(const AuthMessage& message) {
  return absl::DataLossError(absl::StrCat("proof of the secret: message of type ",
                                          static_cast<int>(message.type), " out of turn"));
}

constexpr char kServerHasSecret[] =
    "the memory server was started with --secret_file, the client was not: give it the same file";
constexpr char kServerHasNoSecret[] =
    "the client was started with --secret_file, the memory server was not: give it the same file";

// What the other side's refusal means.
absl::Status Refused(AuthRefusal refusal) {
  switch (refusal) {
    case AuthRefusal::kServerHasSecret:
      return absl::PermissionDeniedError(kServerHasSecret);
    case AuthRefusal::kServerHasNoSecret:
      return absl::PermissionDeniedError(kServerHasNoSecret);
    default:
      return absl::PermissionDeniedError(
          "the other side says that this one's secret is another: use the same --secret_file");
  }
}
absl::Status WrongProof(const char* who) {
  return absl::PermissionDeniedError(
      absl::StrCat("the ", who,
                   " has another secret, or the handshake was changed on its way: use the "
                   "same --secret_file"));
}

}  // namespace

ServerProof::ServerProof(const ClusterSecret* secret, Handshakes handshakes)
    : secret_(secret), handshakes_(std::move(handshakes)), server_nonce_(NewNonce()) {}

absl::Status ServerProof::Handle(std::string_view bytes, std::string* reply) {
  reply->clear();
  if (state_ == State::kDone || state_ == State::kFailed) {
    return absl::FailedPreconditionError("the proof of the secret is over");
  }
  const absl::StatusOr<AuthMessage> message = ParseAuthMessage(bytes);
  absl::Status status = message.ok() ? Step(*message, reply) : message.status();
  if (!status.ok()) state_ = State::kFailed;
  return status;
}

absl::Status ServerProof::Step(const AuthMessage& message, std::string* reply) {
  if (message.type == AuthType::kRefused) return Refused(message.refusal);
  if (state_ == State::kHello && message.type == AuthType::kClientHelloWithout) {
    if (secret_ != nullptr) {
      *reply = Refuse(AuthRefusal::kServerHasSecret);
      return absl::PermissionDeniedError(kServerHasSecret);
    }
    *reply = EncodeAuthMessage({.type = AuthType::kServerWithout});
    state_ = State::kDone;
    return absl::OkStatus();
  }
  if (state_ == State::kHello && message.type == AuthType::kClientHello) {
    if (secret_ == nullptr) {
      *reply = Refuse(AuthRefusal::kServerHasNoSecret);
      return absl::PermissionDeniedError(kServerHasNoSecret);
    }
    client_nonce_ = message.nonce;
    *reply = EncodeAuthMessage(
        {.type = AuthType::kServerProof,
         .nonce = server_nonce_,
         .mac = Prove(*secret_, kServerLabel, handshakes_, client_nonce_, server_nonce_)});
    state_ = State::kProof;
    return absl::OkStatus();
  }
  if (state_ == State::kProof && message.type == AuthType::kClientProof) {
    if (!MacsEqual(message.mac,
                   Prove(*secret_, kClientLabel, handshakes_, client_nonce_, server_nonce_))) {
      *reply = Refuse(AuthRefusal::kWrongProof);
      return WrongProof("client");
    }
    *reply = EncodeAuthMessage({.type = AuthType::kAccepted});
    state_ = State::kDone;
    return absl::OkStatus();
  }
  return OutOfTurn(message);
}

ClientProof::ClientProof(const ClusterSecret* secret, Handshakes handshakes)
    : secret_(secret), handshakes_(std::move(handshakes)), nonce_(NewNonce()) {}

std::string ClientProof::Hello() const {
  if (secret_ == nullptr) return EncodeAuthMessage({.type = AuthType::kClientHelloWithout});
  return EncodeAuthMessage({.type = AuthType::kClientHello, .nonce = nonce_});
}

absl::Status ClientProof::Handle(std::string_view bytes, std::string* reply) {
  reply->clear();
  if (state_ == State::kDone || state_ == State::kFailed) {
    return absl::FailedPreconditionError("the proof of the secret is over");
  }
  const absl::StatusOr<AuthMessage> message = ParseAuthMessage(bytes);
  absl::Status status = message.ok() ? Step(*message, reply) : message.status();
  if (!status.ok()) state_ = State::kFailed;
  return status;
}

absl::Status ClientProof::Step(const AuthMessage& message, std::string* reply) {
  if (message.type == AuthType::kRefused) return Refused(message.refusal);
  if (state_ == State::kServer && message.type == AuthType::kServerWithout) {
    // Never for a client that has one: anybody can say this.
    if (secret_ != nullptr) return absl::PermissionDeniedError(kServerHasNoSecret);
    state_ = State::kDone;
    return absl::OkStatus();
  }
  if (state_ == State::kServer && message.type == AuthType::kServerProof && secret_ != nullptr) {
    if (!MacsEqual(message.mac,
                   Prove(*secret_, kServerLabel, handshakes_, nonce_, message.nonce))) {
      *reply = Refuse(AuthRefusal::kWrongProof);
      return WrongProof("memory server");
    }
    *reply = EncodeAuthMessage(
        {.type = AuthType::kClientProof,
         .mac = Prove(*secret_, kClientLabel, handshakes_, nonce_, message.nonce)});
    state_ = State::kVerdict;
    return absl::OkStatus();
  }
  if (state_ == State::kVerdict && message.type == AuthType::kAccepted) {
    state_ = State::kDone;
    return absl::OkStatus();
  }
  return OutOfTurn(message);
}

}  // namespace pando
