#include "common/registry/local_registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/registry/entry.h"
#include "common/registry/private_directory.h"

namespace pando {
namespace {

constexpr std::string_view kPrefix = "server-";
constexpr std::string_view kHeader = "pando-registry 2\n";

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_;
};

// A lock of the open file, not of the process: several servers may live in one process, and asking
// whether a lock is held takes nothing from anybody.
struct flock WholeFile() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool IsLocked(const std::string& path) {
  File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  struct flock lock = WholeFile();
  lock.l_type = F_RDLCK;  // conflicts with the writer's lock; allowed on a file opened for reading
  return fcntl(file.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

absl::Status WriteWhole(const std::string& path, std::string_view content) {
  const std::string aside = path + ".new";
  {
    File file(open(aside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("making ", aside));
    while (!content.empty()) {
      const ssize_t written = write(file.get(), content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return absl::ErrnoToStatus(errno, absl::StrCat("writing ", aside));
      content.remove_prefix(static_cast<size_t>(written));
    }
  }
  if (rename(aside.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("renaming ", aside));
}

// What an entry says, but for the id; nothing where there is no entry (any more).
absl::StatusOr<std::optional<ServerLocation>> ReadEntry(const std::string& path) {
  File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && errno == ENOENT) return std::optional<ServerLocation>();
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", path));
  char buffer[kHeader.size() + kFabricNameBytesMax + 1 + kAddressBytesMax + 2];
  size_t bytes = 0;
  while (bytes < sizeof(buffer)) {
    const ssize_t got = read(file.get(), buffer + bytes, sizeof(buffer) - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("reading ", path));
    if (got == 0) break;
    bytes += static_cast<size_t>(got);
  }
  std::string_view text(buffer, bytes);
  if (!text.starts_with(kHeader) || !text.ends_with('\n') || text.size() == kHeader.size()) {
    return absl::DataLossError(
        absl::StrCat(path, " is no registry entry of this release: stop its server, remove it"));
  }
  text.remove_prefix(kHeader.size());
  text.remove_suffix(1);
  const size_t line_end = std::min(text.find('\n'), text.size());
  ServerLocation location = {.fabric = std::string(text.substr(0, line_end))};
  location.address = text.substr(std::min(line_end + 1, text.size()));
  if (!CheckEntryText(location).ok()) {
    return absl::DataLossError(absl::StrCat(path, " holds no address"));
  }
  return std::optional<ServerLocation>(std::move(location));
}

class LocalAnnouncement final : public Announcement {
 public:
  LocalAnnouncement(std::string entry_path, File lock)
      : entry_path_(std::move(entry_path)), lock_(std::move(lock)) {}
  // The entry first: while the lock is held nobody else's can be there.
  ~LocalAnnouncement() override { unlink(entry_path_.c_str()); }

  absl::Status status() const override { return absl::OkStatus(); }

 private:
  const std::string entry_path_;
  const File lock_;
};

// "server-17" -> 17.
std::optional<ServerId> ServerOfEntry(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  ServerId id = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), id);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return id;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Registry>> LocalRegistry::Open(const std::string& directory) {
  if (directory.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("a registry's directory holds no zero bytes");
  }
  std::error_code error;
  std::string absolute = std::filesystem::absolute(directory, error).lexically_normal().string();
  if (error) return absl::InvalidArgumentError(absl::StrCat(directory, ": ", error.message()));
  while (absolute.size() > 1 && absolute.ends_with('/')) absolute.pop_back();
  PANDO_RETURN_IF_ERROR(EnsurePrivateDirectory(absolute, "registry"));
  return std::make_unique<LocalRegistry>(std::move(absolute));
}

std::string LocalRegistry::EntryPath(ServerId server) const {
  return absl::StrCat(directory_, "/", std::string(kPrefix), server);
}

std::string LocalRegistry::LockPath(ServerId server) const { return EntryPath(server) + ".lock"; }

absl::StatusOr<std::string> LocalRegistry::SocketPath(ServerId server) const {
  std::string path = EntryPath(server) + ".sock";
  if (path.size() > kSocketPathBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket path ", path, " has ", path.size(), " bytes; a Unix socket takes at most ",
        kSocketPathBytesMax, ": use a registry with a shorter path"));
  }
  return path;
}

absl::StatusOr<std::unique_ptr<Announcement>> LocalRegistry::Announce(
    const ServerLocation& location) {
  PANDO_RETURN_IF_ERROR(CheckEntryText(location));
  const std::string lock_path = LockPath(location.id);
  File file(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", lock_path));
  struct flock lock = WholeFile();
  if (fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) {
      return absl::ErrnoToStatus(errno, absl::StrCat("locking ", lock_path));
    }
    return absl::AlreadyExistsError(absl::StrCat("a live memory server ", location.id,
                                                 " is announced in ", directory_,
                                                 ": stop it, or give this one another id"));
  }
  const std::string entry_path = EntryPath(location.id);
  if (unlink(entry_path.c_str()) != 0 && errno != ENOENT) {  // of a process that died
    return absl::ErrnoToStatus(errno, absl::StrCat("removing ", entry_path));
  }
  PANDO_RETURN_IF_ERROR(WriteWhole(entry_path, absl::StrCat(std::string(kHeader), location.fabric,
                                                            "\n", location.address, "\n")));
  return std::make_unique<LocalAnnouncement>(entry_path, std::move(file));
}

absl::StatusOr<std::vector<ServerLocation>> LocalRegistry::List() {
  std::vector<ServerLocation> locations;
  DIR* directory = opendir(directory_.c_str());
  if (directory == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("listing ", directory_));
  std::vector<ServerId> ids;
  while (const dirent* entry = readdir(directory)) {
    const std::optional<ServerId> id = ServerOfEntry(entry->d_name);
    if (id.has_value()) ids.push_back(*id);
  }
  closedir(directory);
  std::sort(ids.begin(), ids.end());
  for (const ServerId id : ids) {
    if (!IsLocked(LockPath(id))) continue;
    PANDO_ASSIGN_OR_RETURN(std::optional<ServerLocation> location, ReadEntry(EntryPath(id)));
    if (!location.has_value()) continue;
    location->id = id;
    locations.push_back(*std::move(location));
  }
  return locations;
}

int64_t LocalRegistry::poll_ns() const { return 20 * kMillisecondNs; }

}  // namespace pando
