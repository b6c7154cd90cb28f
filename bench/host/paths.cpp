#include "bench/host/paths.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/host/json_file.h"

namespace pando::bench {

std::filesystem::path ProgramFile() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error);
}

std::filesystem::path ProgramFolder() { return ProgramFile().parent_path(); }

namespace {

constexpr char kPrefix[] = "pando-run-";
constexpr char kLockFile[] = "owner.lock";
// The longest below a folder, and what a Unix socket takes.
constexpr size_t kSocketNameBytes = sizeof("/registry/server-1024.sock") - 1;
constexpr size_t kSocketPathBytesMax = sizeof(sockaddr_un::sun_path) - 1;

// A descriptor that holds the lock of a file; -1: another process does, or there is no such file.
int OpenLocked(const std::filesystem::path& file, int more_flags = 0) {
  const int fd = open(file.c_str(), O_RDWR | O_CLOEXEC | more_flags, 0600);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// Locks a new folder. The lock file is locked before it has its name: to a process that removes
// leftovers right now, a folder is not there yet or somebody's.
int LockNewFolder(const std::filesystem::path& folder) {
  const std::filesystem::path nameless = folder / "new.lock";
  const int fd = OpenLocked(nameless, O_CREAT | O_EXCL);
  if (fd >= 0 && rename(nameless.c_str(), (folder / kLockFile).c_str()) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

void RemoveLeftovers(const std::filesystem::path& base) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(base, error)) {
    if (!entry.path().filename().string().starts_with(kPrefix)) continue;
    const int fd = OpenLocked(entry.path() / kLockFile);
    if (fd < 0) continue;
    std::filesystem::remove_all(entry.path(), error);
    close(fd);
  }
}

}  // namespace

absl::StatusOr<TemporaryFolder> TemporaryFolder::Create() {
  // Not the user's runtime folder: histories are written here, and that one is small.
  const char* base = getenv("TMPDIR");
  std::error_code error;
  if (base == nullptr || !std::filesystem::is_directory(base, error)) base = "/tmp";
  if (!IsUtf8(base)) {  // plans and results name what lies there
    return absl::InvalidArgumentError("TMPDIR is not UTF-8: set it to a directory whose name is");
  }
  std::string name = absl::StrCat(base, "/", kPrefix, "XXXXXX");
  const size_t path_bytes = std::filesystem::absolute(name, error).string().size();
  if (path_bytes + kSocketNameBytes > kSocketPathBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("TMPDIR=", base, " is too long for the sockets of memory servers by ",
                     path_bytes + kSocketNameBytes - kSocketPathBytesMax,
                     " bytes: set it to a directory with a shorter path"));
  }
  RemoveLeftovers(base);
  if (mkdtemp(name.data()) == nullptr) {
    return absl::UnavailableError(
        absl::StrCat("cannot make a folder ", name, " (TMPDIR): ", std::strerror(errno)));
  }
  TemporaryFolder folder;
  folder.path_ = name;
  folder.lock_fd_ = LockNewFolder(name);
  if (folder.lock_fd_ < 0) {
    return absl::UnavailableError(absl::StrCat("cannot lock ", name, ": ", std::strerror(errno)));
  }
  return folder;
}

TemporaryFolder::TemporaryFolder(TemporaryFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_fd_(std::exchange(other.lock_fd_, -1)) {}

TemporaryFolder& TemporaryFolder::operator=(TemporaryFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_fd_, other.lock_fd_);
  return *this;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;  // best effort: nothing depends on it
  if (!path_.empty()) std::filesystem::remove_all(path_, error);
  if (lock_fd_ >= 0) close(lock_fd_);
}

}  // namespace pando::bench
