// --device, --port, --gid_index, --mtu, --traffic_class, --service_level and --pkey_index: which
// RDMA path a program uses, and how its packets are marked. A library of its own
// (pando_rdma_flags): a program without it does not have these flags.
#pragma once

#include <cstdint>
#include <string>

#include "common/program/command_line.h"

namespace pando {

// As RdmaOptions of the client and VerbsDeviceOptions of the fabric: what is not given is found.
struct RdmaPath {
  std::string device;
  int port = 0;
  int gid_index = -1;
  uint32_t mtu_bytes = 0;
  int traffic_class = 0, service_level = 0, pkey_index = 0;
};

// For ProgramInfo::shared_source, so that --help lists these flags.
extern const char kRdmaFlagsSource[];

// After ParseCommandLine(). Exits with 2 where a value cannot be right on any device.
RdmaPath RdmaPathFromFlags(const ProgramInfo& program);

}  // namespace pando
