// What `pando` exits with, whatever the command: one table from status to code, for scripts to rely
// on. The codes above 2 are those of sysexits.h.
// Thread safety: pure functions.
#pragma once

#include <array>

#include "absl/status/status.h"

namespace pando::tool {

enum ExitCode : int {
  kDone = 0,   // found, done, everything holds
  kNo = 1,     // no such key or tree; not equal; not in a state in which this can be done
  kUsage = 2,  // the command line, or what it names, is wrong
  // Servers or registry: gone, closed to us, full or too slow; this machine: full; outcome unknown.
  kUnavailable = 69,
  kBug = 70,      // of ours
  kDamaged = 74,  // data are damaged or lost, or a file could not be read or written
};

ExitCode ExitCodeOf(absl::StatusCode code);

// The same for people.
struct ExitCodeText {
  ExitCode code;
  const char* text;
};
inline constexpr std::array<ExitCodeText, 6> kExitCodeTexts = {{
    {kDone, "done; get: found; check: everything holds"},
    {kNo,
     "no such key or tree, or not as it has to be (a tree with other options; doctor: something "
     "has to be fixed)"},
    {kUsage, "the command line, or a key, value or file that it names, is invalid"},
    {kUnavailable,
     "memory servers or registry are unavailable, full or too slow, or refuse this user, or this "
     "machine has too little memory; the outcome of a write that was under way is unknown"},
    {kBug, "a bug in pando"},
    {kDamaged,
     "damaged or lost data (check: something is wrong with a tree), or a file could not be read or "
     "written"},
}};

}  // namespace pando::tool
