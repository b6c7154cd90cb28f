#include "common/auth/hmac.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <memory>

#include "common/base/check.h"

namespace pando {

Mac HmacSha256(std::string_view key, std::initializer_list<std::string_view> parts) {
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
  PANDO_CHECK(EVP_MAC_init(context.get(), bytes_of(key), key.size(), parameters) == 1);
  for (const std::string_view part : parts) {
    const uint64_t size = part.size();
    unsigned char length[sizeof(size)];
    for (size_t i = 0; i < sizeof(size); ++i) length[i] = static_cast<uint8_t>(size >> (8 * i));
    PANDO_CHECK(EVP_MAC_update(context.get(), length, sizeof(length)) == 1);
    PANDO_CHECK(EVP_MAC_update(context.get(), bytes_of(part), part.size()) == 1);
  }
  Mac mac;
  size_t written = 0;
  PANDO_CHECK(EVP_MAC_final(context.get(), mac.data(), &written, mac.size()) == 1);
  PANDO_CHECK_EQ(written, mac.size());
  return mac;
}

bool MacsEqual(const Mac& a, const Mac& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace pando
