#include "common/fabric/link/frame.h"

#include "absl/strings/str_cat.h"

namespace pando {

absl::Status CheckFrameStart(const FrameStart& start, const FrameFormat& format) {
  if (start.magic != format.magic) {
    return absl::DataLossError(
        absl::StrCat("what arrives is no ", format.name, " control frame (wrong magic number)"));
  }
  if (start.version != format.version) {
    return absl::FailedPreconditionError(
        absl::StrCat("the other side speaks version ", start.version, " of the ", format.name,
                     " handshake, this side version ", format.version,
                     ": use the same release of Pando on both"));
  }
  if (start.length > format.body_bytes_max) {
    return absl::DataLossError(
        absl::StrCat(format.name, " control frame of ", start.length, " bytes is too long"));
  }
  if (start.type < 1 || start.type > format.last_type) {
    return absl::DataLossError(
        absl::StrCat(format.name, " control frame of unknown type ", start.type));
  }
  return absl::OkStatus();
}

}  // namespace pando
