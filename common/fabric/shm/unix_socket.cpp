#include "common/fabric/shm/unix_socket.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace pando {
namespace {

constexpr int kListenBacklog = 128;
constexpr int kDescriptorsMax =
    8;  // room to receive what nobody asked for, so that it can be closed

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path) ||
      path.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        "socket path '", path, "' has ", path.size(), " bytes; a Unix socket takes 1 to ",
        sizeof(address.sun_path) - 1, ": use a shorter directory"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<UniqueFd> NewSocket() {
  UniqueFd fd =
      AboveStandard(UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
  if (!fd) return absl::ErrnoToStatus(errno, "socket");
  return fd;
}

int Connect(int fd, const sockaddr_un& address) {
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) return 0;
  return errno;
}

// One process at a time looks at a path, removes what is dead there, and binds: two that did it
// side by side could each find the same dead socket, and the second remove the first one's new one.
absl::StatusOr<UniqueFd> LockFileAt(const std::string& path, const std::string& lock_path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  UniqueFd lock = AboveStandard(UniqueFd(open(lock_path.c_str(), kFlags, 0600)));
  if (!lock && errno == ELOOP) {
    return absl::PermissionDeniedError(
        absl::StrCat(lock_path, " is a symbolic link, which Pando never makes there: remove it"));
  }
  if (!lock) return absl::ErrnoToStatus(errno, absl::StrCat("opening ", lock_path));
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return absl::ErrnoToStatus(errno, absl::StrCat("locking ", lock_path));
  return absl::AlreadyExistsError(absl::StrCat("another server listens at ", path));
}

// Not a link to it.
bool IsFileAt(const std::string& path, int fd) {
  struct stat there, open;
  return lstat(path.c_str(), &there) == 0 && fstat(fd, &open) == 0 && there.st_ino == open.st_ino &&
         there.st_dev == open.st_dev;
}

std::string LockPathOf(const std::string& path) { return path + ".lock"; }

absl::StatusOr<UniqueFd> LockPath(const std::string& path) {
  constexpr int kTriesMax = 1000;
  const std::string lock_path = LockPathOf(path);
  for (int i = 0; i < kTriesMax; ++i) {
    PANDO_ASSIGN_OR_RETURN(UniqueFd lock, LockFileAt(path, lock_path));
    if (IsFileAt(lock_path, lock.get())) return lock;
    // It was removed before it was locked: that of the next one is another.
  }
  return absl::UnavailableError(absl::StrCat(lock_path, " is replaced again and again"));
}

// Removes a socket file that nobody listens at. The path is locked.
absl::Status RemoveDeadSocket(const std::string& path, const sockaddr_un& address) {
  struct stat file;
  if (lstat(path.c_str(), &file) != 0) {
    if (errno == ENOENT) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, path);
  }
  if (!S_ISSOCK(file.st_mode)) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is there already and is no socket"));
  }
  PANDO_ASSIGN_OR_RETURN(UniqueFd probe, NewSocket());
  const int error = Connect(probe.get(), address);
  if (error == 0 || error == EAGAIN) {
    return absl::AlreadyExistsError(absl::StrCat("another server listens at ", path));
  }
  if (error != ECONNREFUSED && error != ENOENT) return absl::ErrnoToStatus(error, path);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return absl::ErrnoToStatus(errno, path);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<UnixListener> ListenAt(const std::string& path) {
  PANDO_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  PANDO_ASSIGN_OR_RETURN(UniqueFd lock, LockPath(path));
  PANDO_RETURN_IF_ERROR(RemoveDeadSocket(path, address));
  PANDO_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket());
  // Before bind(), which gives the file the socket's mode: it is never open to others.
  if (fchmod(fd.get(), 0600) != 0) return absl::ErrnoToStatus(errno, "fchmod of a socket");
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EADDRINUSE) {
      return absl::AlreadyExistsError(absl::StrCat("another server listens at ", path));
    }
    return absl::ErrnoToStatus(errno, absl::StrCat("binding a socket to ", path));
  }
  if (listen(fd.get(), kListenBacklog) != 0) return absl::ErrnoToStatus(errno, "listen");
  return UnixListener{std::move(fd), std::move(lock)};
}

SocketFile::SocketFile(std::string path, UniqueFd lock, LockFile lock_file)
    : path_(std::move(path)), lock_(std::move(lock)), lock_file_(lock_file) {
  struct stat file;
  if (stat(path_.c_str(), &file) == 0) inode_ = file.st_ino;
}

SocketFile& SocketFile::operator=(SocketFile&& other) noexcept {
  if (this == &other) return *this;
  Remove();
  path_ = std::exchange(other.path_, {});
  lock_ = std::move(other.lock_);
  lock_file_ = other.lock_file_;
  inode_ = other.inode_;
  return *this;
}

void SocketFile::Remove() {
  if (path_.empty()) return;
  struct stat file;
  if (stat(path_.c_str(), &file) == 0 && file.st_ino == inode_) unlink(path_.c_str());
  // While it is locked: then whoever has it open finds another one there, or none.
  const std::string lock_path = LockPathOf(path_);
  if (lock_file_ == LockFile::kGoes && IsFileAt(lock_path, lock_.get())) unlink(lock_path.c_str());
  path_.clear();
  lock_.Reset();
}

absl::StatusOr<UniqueFd> ConnectTo(const std::string& path, int64_t deadline_ns) {
  PANDO_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  PANDO_ASSIGN_OR_RETURN(UniqueFd fd, NewSocket());
  for (;;) {
    const int error = Connect(fd.get(), address);
    if (error == 0) return fd;
    if (error == EINTR) continue;
    if (error == EACCES || error == EPERM) {
      return absl::PermissionDeniedError(
          absl::StrCat(path, ": this user may not connect to the server there"));
    }
    // EAGAIN: the backlog is full, the server is busy or has not begun to serve.
    if (error != EAGAIN || RealClock().NowNs() >= deadline_ns) {
      return absl::UnavailableError(absl::StrCat("nobody answers at ", path, " (",
                                                 std::strerror(error),
                                                 "): is the server there running?"));
    }
    const timespec pause = {0, kMillisecondNs};
    nanosleep(&pause, nullptr);
  }
}

absl::StatusOr<PeerProcess> IdentifyPeer(int socket) {
  ucred credentials = {};
  socklen_t bytes = sizeof(credentials);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &bytes) != 0) {
    return absl::ErrnoToStatus(errno, "asking who is at the other end of a socket");
  }
  if (credentials.uid != geteuid() && credentials.uid != 0) {
    return absl::PermissionDeniedError(absl::StrCat("process ", credentials.pid, " runs as user ",
                                                    credentials.uid, ", not as user ", geteuid(),
                                                    " or root"));
  }
  PeerProcess peer;
  peer.pid = credentials.pid;
  // The pid alone could be another process's by now; newer kernels give the descriptor itself.
  int pidfd = -1;
  bytes = sizeof(pidfd);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) != 0) {
    pidfd = static_cast<int>(syscall(SYS_pidfd_open, credentials.pid, 0));
  }
  peer.pidfd = AboveStandard(UniqueFd(pidfd));
  if (!peer.pidfd) {
    if (errno == ESRCH) return absl::UnavailableError("the process at the other end is gone");
    return absl::ErrnoToStatus(errno, absl::StrCat("watching process ", credentials.pid));
  }
  return peer;
}

SendResult SendMessage(int socket, std::string_view message, int fd_to_pass) {
  iovec part = {const_cast<char*>(message.data()), message.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (fd_to_pass >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(rights), &fd_to_pass, sizeof(int));
  }
  for (;;) {
    if (sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return SendResult::kSent;
    if (errno == EINTR) continue;
    const bool full = errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM;
    return full ? SendResult::kFull : SendResult::kGone;
  }
}

namespace {

// Takes the first descriptor of a message if it is wanted; closes all others.
void TakeDescriptors(msghdr* header, UniqueFd* wanted) {
  for (cmsghdr* c = CMSG_FIRSTHDR(header); c != nullptr; c = CMSG_NXTHDR(header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
      UniqueFd received(fd);
      if (wanted != nullptr && !*wanted) *wanted = AboveStandard(std::move(received));
    }
  }
}

}  // namespace

ReceiveResult ReceiveMessage(int socket, std::span<std::byte> buffer, size_t* bytes, UniqueFd* fd) {
  iovec part = {buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kDescriptorsMax)];
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof(control);
  ssize_t received;
  // Reset: the other end closed without reading all that was sent to it. That is said once, ahead
  // of what it had sent itself: its reason, most likely.
  int resets = 0;
  do {
    received = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
  if (received < 0) {
    return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? ReceiveResult::kNothing
                                                                  : ReceiveResult::kGone;
  }
  TakeDescriptors(&header, fd);
  // An empty message and the end look alike; nobody here sends empty messages.
  if (received == 0) return ReceiveResult::kGone;
  if ((header.msg_flags & MSG_TRUNC) != 0) return ReceiveResult::kTooLong;
  *bytes = static_cast<size_t>(received);
  return ReceiveResult::kMessage;
}

bool WaitReadable(int fd, int64_t deadline_ns) {
  for (;;) {
    const int64_t left_ns = std::max<int64_t>(0, deadline_ns - RealClock().NowNs());
    timespec timeout = {left_ns / kSecondNs, left_ns % kSecondNs};
    pollfd entry = {fd, POLLIN, 0};
    const int ready = ppoll(&entry, 1, &timeout, nullptr);
    if (ready > 0) return true;
    if (ready == 0 && left_ns == 0) return false;
    if (ready < 0 && errno != EINTR) return true;  // let the read report it
  }
}

}  // namespace pando
