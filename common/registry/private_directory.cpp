#include "common/registry/private_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace pando {

absl::Status EnsurePrivateDirectory(const std::string& path, const char* what) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("making ", what, " ", path));
  }
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(what, " ", path));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(what, " ", path, " is no directory"));
  }
  if (info.st_uid != geteuid() && geteuid() != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat(what, " ", path, " belongs to user ", info.st_uid));
  }
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        what, " ", path, ": others may write to it; chmod 700 it or use another directory"));
  }
  return absl::OkStatus();
}

}  // namespace pando
