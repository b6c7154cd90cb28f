// A file descriptor that closes itself. Move-only; not thread-safe.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace pando {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  // The caller closes it.
  int Release() { return std::exchange(fd_, -1); }
  void Reset(int fd = -1) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = fd;
  }

 private:
  int fd_ = -1;
};

// The same file, at 3 or above. Where a program has closed its standard descriptors, a new file
// gets one of them, and whatever is printed later goes there. Empty: `fd` was, or there is no other
// descriptor; errno says why.
inline UniqueFd AboveStandard(UniqueFd fd) {
  if (!fd || fd.get() > STDERR_FILENO) return fd;
  UniqueFd above(fcntl(fd.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  const int error = errno;
  fd.Reset();
  errno = error;
  return above;
}

}  // namespace pando
