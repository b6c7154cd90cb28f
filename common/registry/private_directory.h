// Directories that belong to one user. Thread safety: free functions, as the system calls.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace pando {

// Makes the directory with mode 0700 if it is not there; its parent must be. InvalidArgument: no
// directory. PermissionDenied: it belongs to somebody else, or others may write to it. `what`
// stands before its path in messages: "registry".
absl::Status EnsurePrivateDirectory(const std::string& path, const char* what);

}  // namespace pando
