#include "common/registry/private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/base/system_random.h"

namespace pando {
namespace {

constexpr int kSymlinksMax = 40;  // as the kernel

// Goes down from "/" one name at a time, so that what was checked is what is opened.
class Walk {
 public:
  Walk(const std::string& path, const char* what) : path_(path), what_(what), rest_(path) {}

  absl::StatusOr<UniqueFd> Go(bool make);

 private:
  bool IsTrusted(uid_t owner) const {
    return owner == geteuid() || owner == 0 || owner == root_owner_;
  }
  // The next name; "" at the end.
  std::string TakeName();
  absl::Status CheckOnTheWay(const struct stat& info) const;
  absl::Status Follow(const std::string& name, const struct stat& info);
  absl::Status Enter(const std::string& name, bool last);
  absl::Status CheckTarget() const;
  absl::Status Failed(const std::string& at) const {
    return absl::ErrnoToStatus(errno, absl::StrCat(what_, " ", path_, ": ", at));
  }
  absl::Status Refused(const std::string& why) const {
    return absl::PermissionDeniedError(absl::StrCat(what_, " ", path_, why));
  }

  const std::string& path_;
  const char* const what_;
  std::string rest_;  // still to go, from directory_
  std::string here_;  // for messages: how far it went
  UniqueFd directory_;
  uid_t root_owner_ = 0;
  int symlinks_ = 0;
};

std::string Walk::TakeName() {
  const size_t begin = rest_.find_first_not_of('/');
  if (begin == std::string::npos) return "";
  const size_t end = std::min(rest_.find('/', begin), rest_.size());
  const std::string name = rest_.substr(begin, end - begin);
  rest_.erase(0, end);
  return name;
}

absl::StatusOr<UniqueFd> Walk::Go(bool make) {
  directory_.Reset(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
  struct stat info;
  if (!directory_ || fstat(directory_.get(), &info) != 0) return Failed("/");
  // In a user namespace root has another number, which nobody there can become.
  root_owner_ = info.st_uid;
  for (std::string name = TakeName(); !name.empty(); name = TakeName()) {
    const bool last = rest_.find_first_not_of('/') == std::string::npos;
    if (fstat(directory_.get(), &info) != 0) return Failed(here_);
    PANDO_RETURN_IF_ERROR(CheckOnTheWay(info));
    if (last && make && mkdirat(directory_.get(), name.c_str(), 0700) != 0 && errno != EEXIST) {
      return Failed("making it");
    }
    if (fstatat(directory_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
      return Failed(absl::StrCat(here_, "/", name));
    }
    if (S_ISLNK(info.st_mode)) {
      PANDO_RETURN_IF_ERROR(Follow(name, info));
    } else {
      PANDO_RETURN_IF_ERROR(Enter(name, last));
    }
  }
  PANDO_RETURN_IF_ERROR(CheckTarget());
  return std::move(directory_);
}

absl::Status Walk::CheckOnTheWay(const struct stat& info) const {
  const std::string at = here_.empty() ? "/" : here_;
  if (!IsTrusted(info.st_uid)) {
    return Refused(absl::StrCat(": ", at, " on the way to it belongs to user ", info.st_uid,
                                ", who could put another in its place: use a directory of your "
                                "own"));
  }
  // A group with the number of its user is his alone on most systems.
  const bool group_is_own = info.st_gid == 0 || info.st_gid == geteuid();
  const bool others_write =
      (info.st_mode & S_IWOTH) != 0 || ((info.st_mode & S_IWGRP) != 0 && !group_is_own);
  if (others_write && (info.st_mode & S_ISVTX) == 0) {
    return Refused(absl::StrCat(": others may write to ", at,
                                " on the way to it, and could put another in its place; chmod ",
                                "go-w ", at, ", or use another directory"));
  }
  return absl::OkStatus();
}

absl::Status Walk::Follow(const std::string& name, const struct stat& info) {
  const std::string at = absl::StrCat(here_, "/", name);
  if (!IsTrusted(info.st_uid)) {
    return Refused(absl::StrCat(": ", at, " is a symbolic link of user ", info.st_uid,
                                ": use a directory of your own"));
  }
  char target[PATH_MAX];
  const ssize_t bytes = readlinkat(directory_.get(), name.c_str(), target, sizeof(target));
  if (bytes < 0) return Failed(at);
  if (++symlinks_ > kSymlinksMax || bytes == static_cast<ssize_t>(sizeof(target))) {
    return absl::InvalidArgumentError(
        absl::StrCat(what_, " ", path_, ": ", at, " is one symbolic link too many"));
  }
  rest_ = absl::StrCat(std::string(target, static_cast<size_t>(bytes)), rest_);
  if (target[0] == '/') {
    directory_.Reset(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    here_.clear();
  }
  return absl::OkStatus();
}

absl::Status Walk::Enter(const std::string& name, bool last) {
  const std::string at = absl::StrCat(here_, "/", name);
  // The last one is read as well; where this user may not, it is not his and is refused below.
  const int flags = O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  UniqueFd next(openat(directory_.get(), name.c_str(), flags | (last ? O_RDONLY : O_PATH)));
  if (!next && last && errno == EACCES) {
    next.Reset(openat(directory_.get(), name.c_str(), flags | O_PATH));
  }
  if (!next && errno == ENOTDIR) {
    return absl::InvalidArgumentError(
        absl::StrCat(what_, " ", path_, ": ", at, " is not a directory"));
  }
  if (!next) return Failed(at);
  directory_ = std::move(next);
  here_ = at;
  return absl::OkStatus();
}

absl::Status Walk::CheckTarget() const {
  struct stat info;
  if (fstat(directory_.get(), &info) != 0) return Failed(here_);
  if (info.st_uid != geteuid()) {
    return Refused(absl::StrCat(" belongs to user ", info.st_uid, ", not to user ", geteuid(),
                                " who runs this: run it as that user, or use another directory"));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Refused(absl::StrCat(": others may write to it, and may have; look what is in it, then ",
                                "chmod 700 ", path_, ", or use another directory"));
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, "write");
    content.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PrivateDirectory> PrivateDirectory::Open(const std::string& path, const char* what,
                                                        bool make) {
  if (!path.starts_with('/')) {
    return absl::InvalidArgumentError(absl::StrCat(what, " ", path, ": its path begins with '/'"));
  }
  PANDO_ASSIGN_OR_RETURN(UniqueFd fd, Walk(path, what).Go(make));
  return PrivateDirectory(path, std::move(fd));
}

absl::StatusOr<UniqueFd> PrivateDirectory::OpenFile(const std::string& name, int flags) const {
  // A pipe that was planted must not make this wait.
  constexpr int kAlways = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  UniqueFd file(openat(fd_.get(), name.c_str(), flags | kAlways, 0600));
  if (!file && errno == ELOOP) {
    return absl::PermissionDeniedError(absl::StrCat(
        PathOf(name), " is a symbolic link, which Pando never makes there: remove it"));
  }
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", PathOf(name)));
  struct stat info;
  if (fstat(file.get(), &info) != 0) return absl::ErrnoToStatus(errno, PathOf(name));
  if (!S_ISREG(info.st_mode) || info.st_uid != geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat(
        PathOf(name), S_ISREG(info.st_mode) ? absl::StrCat(" belongs to user ", info.st_uid) : "",
        S_ISREG(info.st_mode) ? "" : " is not a regular file", ": remove it"));
  }
  return file;
}

absl::Status PrivateDirectory::Replace(const std::string& name, std::string_view content) const {
  // Nobody can guess the name, and if it is there all the same it is not opened.
  const std::string aside = absl::StrCat(name, ".", absl::Hex(SystemRandom(), absl::kZeroPad16));
  UniqueFd file(
      openat(fd_.get(), aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("making ", PathOf(aside)));
  absl::Status status = WriteAll(file.get(), content);
  if (!status.ok()) status = Annotate(status, absl::StrCat("writing ", PathOf(aside)));
  if (status.ok() && renameat(fd_.get(), aside.c_str(), fd_.get(), name.c_str()) != 0) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("renaming ", PathOf(aside)));
  }
  if (!status.ok()) unlinkat(fd_.get(), aside.c_str(), 0);
  return status;
}

absl::Status PrivateDirectory::Remove(const std::string& name) const {
  if (unlinkat(fd_.get(), name.c_str(), 0) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("removing ", PathOf(name)));
}

absl::StatusOr<std::vector<std::string>> PrivateDirectory::List() const {
  UniqueFd copy(openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const stream = copy ? fdopendir(copy.get()) : nullptr;
  if (stream == nullptr) return absl::ErrnoToStatus(errno, absl::StrCat("listing ", path_));
  [[maybe_unused]] const int owned_by_the_stream = copy.Release();
  std::vector<std::string> names;
  while (const dirent* entry = readdir(stream)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(stream);
  return names;
}

}  // namespace pando
