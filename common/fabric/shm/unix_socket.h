// Unix sockets that keep message borders (SOCK_SEQPACKET), and what the kernel knows about who is
// at the other end. Free functions over descriptors; thread-safe as the system calls are. All
// sockets are non-blocking and close on exec. No descriptor is one of the standard ones, even where
// these are closed (unique_fd.h).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"
#include "common/fabric/link/link.h"

namespace pando {

struct UnixListener {
  UniqueFd socket;
  // Held by the one process that may make, replace and remove the socket's file: until after that.
  // The kernel drops it with the process. Its file is `path`.lock.
  UniqueFd lock;
};
// Listens at `path`, socket file mode 0600. A file left behind by a dead process is replaced;
// AlreadyExists where somebody listens or something else than a socket is there; InvalidArgument:
// over 107 bytes; PermissionDenied: the lock file is not this user's, or a symbolic link.
absl::StatusOr<UnixListener> ListenAt(const std::string& path);
// Whether `path`.lock goes with the socket. Earlier releases lock a file that is gone, so that it
// stays where they may want the same path; one that nobody else will want would stay for ever.
enum class LockFile : uint8_t { kStays, kGoes };
// The file of a listening socket, which goes with this, and then the lock. Move-only.
class SocketFile {
 public:
  SocketFile() = default;
  // `listener` has been made at `path`.
  SocketFile(std::string path, UniqueFd lock, LockFile lock_file);
  SocketFile(SocketFile&& other) noexcept { *this = std::move(other); }
  SocketFile& operator=(SocketFile&& other) noexcept;
  ~SocketFile() { Remove(); }

  // Only our own file: somebody may have replaced it meanwhile.
  void Remove();

 private:
  std::string path_;
  UniqueFd lock_;
  LockFile lock_file_ = LockFile::kStays;
  ino_t inode_ = 0;
};
// Unavailable: nobody listens there (or not before `deadline_ns`). InvalidArgument: over 107 bytes.
absl::StatusOr<UniqueFd> ConnectTo(const std::string& path, int64_t deadline_ns);

struct PeerProcess {
  pid_t pid = 0;
  UniqueFd pidfd;  // readable once the whole process has exited
};
// The process at the other end. PermissionDenied: it runs as another user than this process or
// root.
absl::StatusOr<PeerProcess> IdentifyPeer(int socket);

// Sends one message, optionally with a file descriptor. kFull: nothing was sent, try again later.
SendResult SendMessage(int socket, std::string_view message, int fd_to_pass = -1);

enum class ReceiveResult {
  kMessage,
  kNothing,  // not now
  kTooLong,  // a message longer than the buffer; it is lost
  kGone,     // the other end has closed, or the connection broke
};
// Receives one message into `buffer` (`*bytes` of it). A passed descriptor goes to `*fd` where
// given; others are closed.
ReceiveResult ReceiveMessage(int socket, std::span<std::byte> buffer, size_t* bytes,
                             UniqueFd* fd = nullptr);

// Waits until the descriptor is readable (POLLIN, or hung up), or the time. False: time passed.
bool WaitReadable(int fd, int64_t deadline_ns);

}  // namespace pando
