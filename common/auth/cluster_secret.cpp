#include "common/auth/cluster_secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando {
namespace {

absl::Status CheckFile(const std::string& path, const struct stat& info) {
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("secret file ", path, " is not a regular file"));
  }
  if (info.st_uid != geteuid() && info.st_uid != 0) {
    return absl::PermissionDeniedError(absl::StrCat("secret file ", path, " belongs to user ",
                                                    info.st_uid, ": chown ", geteuid(), " ", path));
  }
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("secret file ", path, " is open to others: chmod 600 ", path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClusterSecret> ClusterSecret::FromBytes(std::string_view bytes) {
  if (bytes.size() < kSecretBytesMin || bytes.size() > kSecretBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a secret has ", kSecretBytesMin, " to ",
                                                   kSecretBytesMax, " bytes, not ", bytes.size()));
  }
  return ClusterSecret(bytes);
}

absl::StatusOr<ClusterSecret> ClusterSecret::Load(const std::string& path) {
  // Not to wait for a pipe's other end.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("secret file ", path));
  const absl::Cleanup close_file = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::ErrnoToStatus(errno, path);
  PANDO_RETURN_IF_ERROR(CheckFile(path, info));
  // One byte more than may be, and a line break.
  char buffer[kSecretBytesMax + 2];
  const absl::Cleanup wipe = [&buffer] { OPENSSL_cleanse(buffer, sizeof(buffer)); };
  size_t bytes = 0;
  while (bytes < sizeof(buffer)) {
    const ssize_t got = read(fd, buffer + bytes, sizeof(buffer) - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("reading secret file ", path));
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
  }
  if (bytes > 0 && buffer[bytes - 1] == '\n') --bytes;
  absl::StatusOr<ClusterSecret> secret = FromBytes({buffer, bytes});
  if (secret.ok()) return secret;
  return Annotate(secret.status(),
                  absl::StrCat("secret file ", path,
                               " (make one: umask 077; openssl rand -hex 32 >", path, ")"));
}

ClusterSecret::ClusterSecret(ClusterSecret&& other) noexcept : bytes_(other.bytes_) {
  other.Wipe();
}
ClusterSecret& ClusterSecret::operator=(ClusterSecret&& other) noexcept {
  if (this == &other) return *this;
  Wipe();
  bytes_ = other.bytes_;
  other.Wipe();
  return *this;
}
ClusterSecret::~ClusterSecret() { Wipe(); }

void ClusterSecret::Wipe() {
  OPENSSL_cleanse(bytes_.data(), bytes_.size());
  bytes_.clear();
}

absl::StatusOr<std::shared_ptr<const ClusterSecret>> LoadClusterSecret(const std::string& path) {
  if (path.empty()) return nullptr;
  PANDO_ASSIGN_OR_RETURN(ClusterSecret secret, ClusterSecret::Load(path));
  return std::make_shared<const ClusterSecret>(std::move(secret));
}

}  // namespace pando
