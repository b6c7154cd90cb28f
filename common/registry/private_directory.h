// A directory that belongs to one user, and files in it that nobody else has put there: what a
// program writes to, or takes a server's address from, must not be of a stranger's choosing.
//
// Thread safety: PrivateDirectory is immutable; the rest as the system calls.
// Invariants:
//   1. Nobody but this user and who rules the machine (root, the owner of "/") can exchange a
//      directory or a symbolic link on the way to it: each belongs to one of them, and none lies in
//      a directory that others may write to, unless that is sticky (/tmp).
//   2. It belongs to this user, and nobody else may write to it. Root has no exception: a
//      directory of another user is refused.
//   3. Files are opened relative to the descriptor that was checked, never through a symbolic
//      link; only regular files of this user are opened, and new ones get their name when complete.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace pando {

class PrivateDirectory {
 public:
  // `path` is absolute. Where it is not there: made with mode 0700 if `make`, its parent must be;
  // else NotFound. InvalidArgument: no directory. PermissionDenied: invariant 1 or 2 does not hold;
  // says which directory, and what to do. `what` stands before the path in messages: "registry".
  static absl::StatusOr<PrivateDirectory> Open(const std::string& path, const char* what,
                                               bool make);

  const std::string& path() const { return path_; }

  // Opens a file for reading (O_RDONLY), or makes it with mode 0600 (O_RDWR | O_CREAT). NotFound;
  // PermissionDenied: something is there that this user has not made as a file.
  absl::StatusOr<UniqueFd> OpenFile(const std::string& name, int flags) const;
  // Makes the file with this content, mode 0600, or replaces what has that name, whatever it is:
  // a reader finds the old file or the whole new one.
  absl::Status Replace(const std::string& name, std::string_view content) const;
  // Removes a name; fine where there is none.
  absl::Status Remove(const std::string& name) const;
  // All names in it but "." and "..", unsorted.
  absl::StatusOr<std::vector<std::string>> List() const;

 private:
  PrivateDirectory(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string PathOf(const std::string& name) const { return path_ + "/" + name; }

  std::string path_;
  UniqueFd fd_;
};

}  // namespace pando
