// `pando doctor --litmus`: the litmus tests of an RDMA device (common/fabric/verbs/litmus.h).
#pragma once

#include "absl/status/status.h"
#include "compute/tool/commands.h"

namespace pando::tool {

// Prints what was seen. NotFound: no device; FailedPrecondition: Pando relies on what was seen not
// to hold.
absl::Status DoctorLitmus(const Settings& settings);

}  // namespace pando::tool
