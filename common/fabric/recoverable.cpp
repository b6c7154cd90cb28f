#include "common/fabric/recoverable.h"

#include "absl/strings/cord.h"

namespace pando {
namespace {

constexpr char kUrl[] = "pando/reconnecting";

}  // namespace

absl::Status MarkRecoverable(absl::Status status) {
  if (!status.ok()) status.SetPayload(kUrl, absl::Cord());
  return status;
}

bool IsRecoverable(const absl::Status& status) { return status.GetPayload(kUrl).has_value(); }

}  // namespace pando
