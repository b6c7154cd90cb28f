// How many files (sockets, too) a process may have open: RLIMIT_NOFILE.
// Thread safety: free functions, as the system calls.
#pragma once

#include <cstdint>

namespace pando {

struct FileLimit {
  uint64_t now = 0;   // the soft limit
  uint64_t most = 0;  // the hard one: what the process may raise it to by itself
};
FileLimit GetFileLimit();

// Raises the soft limit to the hard one, for this process and what it starts; what is allowed then.
// The usual 1,024 are kept low for programs that use select(), which these do not.
uint64_t RaiseFileLimit();

}  // namespace pando
