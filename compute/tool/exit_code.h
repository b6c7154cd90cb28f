// What `pando` exits with, whatever the command: one table from status to code, for scripts to rely
// on. The codes above 2 are those of sysexits.h.
// Thread safety: pure functions.
#pragma once

#include "absl/status/status.h"

namespace pando::tool {

enum ExitCode : int {
  kDone = 0,          // found, done, everything holds
  kNo = 1,            // no such key or tree; not equal; not in a state in which this can be done
  kUsage = 2,         // the command line, or what it names, is wrong
  kUnavailable = 69,  // servers or registry: gone, closed to us, full or too slow; outcome unknown
  kBug = 70,          // of ours
  kDamaged = 74,      // data are damaged or lost, or a file could not be read or written
};

ExitCode ExitCodeOf(absl::StatusCode code);

// The same for people: lines for --help.
extern const char kExitCodesText[];

}  // namespace pando::tool
