#include "common/registry/local_registry.h"

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
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/unique_fd.h"
#include "common/registry/entry.h"
#include "common/registry/private_directory.h"

namespace pando {
namespace {

constexpr const char* kWhat = "registry";  // in messages
constexpr std::string_view kPrefix = "server-";
constexpr std::string_view kHeader = "pando-registry 2\n";

// A lock of the open file, not of the process: several servers may live in one process, and asking
// whether a lock is held takes nothing from anybody.
struct flock WholeFile() {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

bool IsLocked(const PrivateDirectory& directory, const std::string& name) {
  const absl::StatusOr<UniqueFd> file = directory.OpenFile(name, O_RDONLY);
  if (!file.ok()) return false;
  struct flock lock = WholeFile();
  lock.l_type = F_RDLCK;  // conflicts with the writer's lock; allowed on a file opened for reading
  return fcntl(file->get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

// What an entry says, but for the id; nothing where there is no entry (any more).
absl::StatusOr<std::optional<ServerLocation>> ReadEntry(const PrivateDirectory& directory,
                                                        const std::string& name) {
  const std::string path = absl::StrCat(directory.path(), "/", name);
  const absl::StatusOr<UniqueFd> file = directory.OpenFile(name, O_RDONLY);
  if (absl::IsNotFound(file.status())) return std::optional<ServerLocation>();
  if (!file.ok()) return file.status();
  char buffer[kHeader.size() + kFabricNameBytesMax + 1 + kAddressBytesMax + 2];
  size_t bytes = 0;
  while (bytes < sizeof(buffer)) {
    const ssize_t got = read(file->get(), buffer + bytes, sizeof(buffer) - bytes);
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
  LocalAnnouncement(PrivateDirectory directory, std::string entry, UniqueFd lock)
      : directory_(std::move(directory)), entry_(std::move(entry)), lock_(std::move(lock)) {}
  // The entry first: while the lock is held nobody else's can be there.
  ~LocalAnnouncement() override {
    if (const absl::Status removed = directory_.Remove(entry_); !removed.ok()) {
      PANDO_LOG(WARNING) << "an entry stays in the registry, of a server that is gone: " << removed;
    }
  }

  absl::Status status() const override { return absl::OkStatus(); }

 private:
  const PrivateDirectory directory_;
  const std::string entry_;
  const UniqueFd lock_;
};

std::string EntryName(ServerId server) { return absl::StrCat(std::string(kPrefix), server); }

std::string LockName(ServerId server) { return EntryName(server) + ".lock"; }

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
  const absl::Status opened = PrivateDirectory::Open(absolute, kWhat, /*make=*/false).status();
  // The first server to come makes it. Whoever only looks for servers may have mistyped its name.
  if (!opened.ok() && !absl::IsNotFound(opened)) return opened;
  return std::make_unique<LocalRegistry>(std::move(absolute));
}

absl::Status LocalRegistry::Make() const {
  return PrivateDirectory::Open(directory_, kWhat, /*make=*/true).status();
}

absl::StatusOr<std::string> LocalRegistry::SocketPath(ServerId server) const {
  std::string path = absl::StrCat(directory_, "/", EntryName(server), ".sock");
  if (path.size() > kSocketPathBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket path ", path, " has ", path.size(), " bytes; a Unix socket takes at most ",
        kSocketPathBytesMax, ": use a registry with a shorter path"));
  }
  PANDO_RETURN_IF_ERROR(Make());
  return path;
}

absl::StatusOr<std::string> LocalRegistry::IdentityKeyPath(std::string_view) const {
  PANDO_RETURN_IF_ERROR(Make());
  return directory_ + "/identity.key";
}

absl::StatusOr<std::unique_ptr<Announcement>> LocalRegistry::Announce(
    const ServerLocation& location) {
  PANDO_RETURN_IF_ERROR(CheckEntryText(location));
  // Every time: the directory may have been made again since, or opened to others.
  PANDO_ASSIGN_OR_RETURN(PrivateDirectory directory,
                         PrivateDirectory::Open(directory_, kWhat, /*make=*/true));
  const std::string lock_name = LockName(location.id);
  PANDO_ASSIGN_OR_RETURN(UniqueFd file, directory.OpenFile(lock_name, O_RDWR | O_CREAT));
  struct flock lock = WholeFile();
  if (fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
    if (errno != EAGAIN && errno != EACCES) {
      return absl::ErrnoToStatus(errno, absl::StrCat("locking ", directory_, "/", lock_name));
    }
    return absl::AlreadyExistsError(absl::StrCat("a live memory server ", location.id,
                                                 " is announced in ", directory_,
                                                 ": stop it, or give this one another id"));
  }
  const std::string entry = EntryName(location.id);
  PANDO_RETURN_IF_ERROR(directory.Remove(entry));  // of a process that died
  PANDO_RETURN_IF_ERROR(directory.Replace(
      entry, absl::StrCat(std::string(kHeader), location.fabric, "\n", location.address, "\n")));
  return std::make_unique<LocalAnnouncement>(std::move(directory), entry, std::move(file));
}

absl::StatusOr<std::vector<ServerLocation>> LocalRegistry::List(std::vector<absl::Status>* bad) {
  const absl::StatusOr<PrivateDirectory> opened =
      PrivateDirectory::Open(directory_, kWhat, /*make=*/false);
  if (absl::IsNotFound(opened.status())) return std::vector<ServerLocation>();
  if (!opened.ok()) return opened.status();
  const PrivateDirectory& directory = *opened;
  PANDO_ASSIGN_OR_RETURN(const std::vector<std::string> names, directory.List());
  std::vector<ServerId> ids;
  for (const std::string& name : names) {
    const std::optional<ServerId> id = ServerOfEntry(name);
    if (id.has_value()) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  std::vector<ServerLocation> locations;
  for (const ServerId id : ids) {
    if (!IsLocked(directory, LockName(id))) continue;
    absl::StatusOr<std::optional<ServerLocation>> entry = ReadEntry(directory, EntryName(id));
    if (!entry.ok()) {
      if (bad == nullptr) return entry.status();
      bad->push_back(entry.status());
      continue;
    }
    if (!entry->has_value()) continue;
    (*entry)->id = id;
    locations.push_back(**std::move(entry));
  }
  return locations;
}

int64_t LocalRegistry::poll_ns() const { return 20 * kMillisecondNs; }

}  // namespace pando
