#include "compute/tool/doctor_litmus.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/fabric/verbs/litmus.h"
#include "common/fabric/verbs/litmus_verdict.h"

namespace pando::tool {

absl::Status DoctorLitmus(const Settings& settings) {
  LitmusOptions options;
  options.device = DeviceOptions(settings.rdma);
  options.test_ms = settings.litmus_seconds * 1'000;
  PANDO_ASSIGN_OR_RETURN(const LitmusResult result, RunLitmus(options));
  PANDO_RETURN_IF_ERROR(Print(DescribeLitmus(result)));
  return JudgeLitmus(result).contradiction;
}

}  // namespace pando::tool
