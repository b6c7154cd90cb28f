#include "compute/tool/exit_code.h"

namespace pando::tool {

const char kExitCodesText[] =
    "  0   done; get: found; check: everything holds\n"
    "  1   no such key or tree, or not as it has to be (a tree with other options; doctor: "
    "something\n"
    "      has to be fixed)\n"
    "  2   the command line, or a key, value or file that it names, is no good\n"
    "  69  memory servers or registry are unavailable, full or too slow, or do not let this user "
    "in;\n"
    "      of a write that was under way the outcome is not known\n"
    "  70  a bug of pando\n"
    "  74  damaged or lost data (check: something is wrong with a tree), or a file could not be "
    "read\n"
    "      or written";

ExitCode ExitCodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return kDone;
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
      return kNo;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return kUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kUnimplemented:  // by this build, or by the servers
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnknown:  // the outcome
      return kUnavailable;
    case absl::StatusCode::kDataLoss:
      return kDamaged;
    case absl::StatusCode::kInternal:
    default:
      return kBug;
  }
}

}  // namespace pando::tool
