#include "common/auth/mutual_proof.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/rand.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
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

// Over the parts, each behind its length: no two lists of parts give the same bytes.
AuthMac Mac(const ClusterSecret& secret, std::string_view label, const Handshakes& handshakes,
            const AuthNonce& client_nonce, const AuthNonce& server_nonce) {
  const std::unique_ptr<EVP_MAC, decltype(&EVP_MAC_free)> algorithm(
      EVP_MAC_fetch(nullptr, OSSL_MAC_NAME_HMAC, nullptr), EVP_MAC_free);
  PANDO_CHECK(algorithm != nullptr) << "libcrypto has no HMAC";
  const std::unique_ptr<EVP_MAC_CTX, decltype(&EVP_MAC_CTX_free)> context(
      EVP_MAC_CTX_new(algorithm.get()), EVP_MAC_CTX_free);
  PANDO_CHECK(context != nullptr);
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
      OSSL_PARAM_construct_end()};
  const auto bytes_of = [](std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
  };
  PANDO_CHECK(EVP_MAC_init(context.get(), bytes_of(secret.bytes()), secret.bytes().size(),
                           parameters) == 1);
  for (const std::string_view part :
       {label, std::string_view(handshakes.client), std::string_view(handshakes.server),
        View(client_nonce), View(server_nonce)}) {
    const uint64_t size = part.size();
    unsigned char length[sizeof(size)];
    for (size_t i = 0; i < sizeof(size); ++i) length[i] = static_cast<uint8_t>(size >> (8 * i));
    PANDO_CHECK(EVP_MAC_update(context.get(), length, sizeof(length)) == 1);
    PANDO_CHECK(EVP_MAC_update(context.get(), bytes_of(part), part.size()) == 1);
  }
  AuthMac mac;
  size_t written = 0;
  PANDO_CHECK(EVP_MAC_final(context.get(), mac.data(), &written, mac.size()) == 1);
  PANDO_CHECK_EQ(written, mac.size());
  return mac;
}

bool Equal(const AuthMac& a, const AuthMac& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
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
                   " has another secret, or somebody changed the handshake on its way: use the "
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
         .mac = Mac(*secret_, kServerLabel, handshakes_, client_nonce_, server_nonce_)});
    state_ = State::kProof;
    return absl::OkStatus();
  }
  if (state_ == State::kProof && message.type == AuthType::kClientProof) {
    if (!Equal(message.mac,
               Mac(*secret_, kClientLabel, handshakes_, client_nonce_, server_nonce_))) {
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
    if (!Equal(message.mac, Mac(*secret_, kServerLabel, handshakes_, nonce_, message.nonce))) {
      *reply = Refuse(AuthRefusal::kWrongProof);
      return WrongProof("memory server");
    }
    *reply =
        EncodeAuthMessage({.type = AuthType::kClientProof,
                           .mac = Mac(*secret_, kClientLabel, handshakes_, nonce_, message.nonce)});
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
