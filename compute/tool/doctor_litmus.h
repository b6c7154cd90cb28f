// `pando doctor --litmus`: the litmus tests of an RDMA device (common/fabric/verbs/litmus.h).
#pragma once

#include "absl/status/status.h"
#include "common/fabric/verbs/device_choice.h"
#include "compute/tool/commands.h"

namespace pando::tool {

inline VerbsDeviceOptions DeviceOptions(const RdmaOptions& rdma) {
  return {rdma.device,        rdma.port,          rdma.gid_index, rdma.mtu_bytes,
          rdma.traffic_class, rdma.service_level, rdma.pkey_index};
}

// Prints what was seen. NotFound: no device; FailedPrecondition: Pando relies on what was seen not
// to hold.
absl::Status DoctorLitmus(const Settings& settings);

}  // namespace pando::tool
