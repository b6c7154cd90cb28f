#include "common/auth/identity_key.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"

namespace pando {
namespace {

constexpr std::string_view kKeyLabel = "pando identity 1: key";
constexpr std::string_view kSignLabel = "pando identity 1: issued";

using KeyBytes = std::array<char, kIdentityKeyBytes>;

std::string_view BytesOf(const Mac& mac) {
  return {reinterpret_cast<const char*>(mac.data()), mac.size()};
}

std::string LittleEndian(uint64_t value, size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(value >> (8 * i));
  return text;
}

absl::Status CheckKeyFile(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return absl::PermissionDeniedError(
        absl::StrCat("identity key ", path, " is not a regular file"));
  }
  if ((info.st_uid != geteuid() && info.st_uid != 0) || (info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        "identity key ", path,
        " is not yours alone: stop the memory servers, remove the file, and ", "start them again"));
  }
  if (info.st_size != kIdentityKeyBytes) {
    return absl::DataLossError(absl::StrCat(
        "identity key ", path, " has ", info.st_size, " bytes instead of ", kIdentityKeyBytes,
        ": stop the memory servers, remove the file, and start them again"));
  }
  return absl::OkStatus();
}

// False: there is none.
absl::StatusOr<bool> ReadKey(const std::string& path, KeyBytes* bytes) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file && errno == ENOENT) return false;
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("identity key ", path));
  struct stat info;
  if (fstat(file.get(), &info) != 0) return absl::ErrnoToStatus(errno, path);
  PANDO_RETURN_IF_ERROR(CheckKeyFile(path, info));
  if (read(file.get(), bytes->data(), bytes->size()) != static_cast<ssize_t>(bytes->size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("reading identity key ", path));
  }
  return true;
}

// Whole under its name, or not there: nobody reads half a key. Another's that came first stays.
absl::Status MakeKey(const std::string& path) {
  KeyBytes bytes, name;
  const absl::Cleanup wipe = [&bytes] { OPENSSL_cleanse(bytes.data(), bytes.size()); };
  for (KeyBytes* random : {&bytes, &name}) {
    PANDO_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(random->data()),
                           static_cast<int>(random->size())) == 1)
        << "libcrypto has no random numbers";
  }
  const std::string aside = absl::StrCat(path, ".", absl::BytesToHexString({name.data(), 8}));
  const UniqueFd file(
      open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("making ", aside));
  const absl::Cleanup remove = [&aside] { unlink(aside.c_str()); };
  if (write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    return absl::ErrnoToStatus(errno, absl::StrCat("writing ", aside));
  }
  if (link(aside.c_str(), path.c_str()) == 0 || errno == EEXIST) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("making identity key ", path));
}

}  // namespace

IdentityKey IdentityKey::FromSecret(const ClusterSecret& secret) {
  return IdentityKey(BytesOf(HmacSha256(secret.bytes(), {kKeyLabel})));
}

absl::StatusOr<IdentityKey> IdentityKey::FromBytes(std::string_view bytes) {
  if (bytes.size() == kIdentityKeyBytes) return IdentityKey(bytes);
  return absl::InvalidArgumentError(
      absl::StrCat("an identity key has ", kIdentityKeyBytes, " bytes, not ", bytes.size()));
}

absl::StatusOr<IdentityKey> IdentityKey::LoadOrMake(const std::string& path) {
  KeyBytes bytes;
  const absl::Cleanup wipe = [&bytes] { OPENSSL_cleanse(bytes.data(), bytes.size()); };
  PANDO_ASSIGN_OR_RETURN(bool found, ReadKey(path, &bytes));
  if (!found) {
    PANDO_RETURN_IF_ERROR(MakeKey(path));
    PANDO_ASSIGN_OR_RETURN(found, ReadKey(path, &bytes));
    if (!found) return absl::UnavailableError(absl::StrCat(path, " was removed: start again"));
  }
  return IdentityKey({bytes.data(), bytes.size()});
}

IdentityKey::IdentityKey(IdentityKey&& other) noexcept : bytes_(other.bytes_) {
  OPENSSL_cleanse(other.bytes_.data(), other.bytes_.size());
  other.bytes_.clear();
}

IdentityKey::~IdentityKey() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

Mac IdentityKey::Sign(uint16_t compute_server, uint32_t incarnation) const {
  return HmacSha256(bytes_,
                    {kSignLabel, LittleEndian(compute_server, 2), LittleEndian(incarnation, 4)});
}

bool IdentityKey::Verify(uint16_t compute_server, uint32_t incarnation, const Mac& proof) const {
  return MacsEqual(Sign(compute_server, incarnation), proof);
}

absl::StatusOr<std::shared_ptr<const IdentityKey>> FindIdentityKey(const ClusterSecret* secret,
                                                                   const std::string& path) {
  if (secret != nullptr) {
    return std::make_shared<const IdentityKey>(IdentityKey::FromSecret(*secret));
  }
  if (path.empty()) return nullptr;
  PANDO_ASSIGN_OR_RETURN(IdentityKey key, IdentityKey::LoadOrMake(path));
  return std::make_shared<const IdentityKey>(std::move(key));
}

}  // namespace pando
