#include "common/program/rdma_flags.h"

#include <gflags/gflags.h>

#include <bit>

DEFINE_string(device, "", "RDMA device; default: the first with an active port");
DEFINE_int32(port, 0, "port of the RDMA device, 1 to 255; not given: the first active one");
DEFINE_int32(gid_index, -1,
             "index of that port's GID, 0 to 255; -1: RoCEv2 with an IPv4 address where there is "
             "one");
DEFINE_int32(mtu, 0,
             "MTU of the RDMA path, bytes: 256, 512, 1024, 2048 or 4096; 0: the active one");
DEFINE_int32(traffic_class, 0,
             "traffic class of RDMA packets, 0 to 255: on RoCE the DSCP times 4, by which switches "
             "tell lossless traffic");
DEFINE_int32(
    service_level, 0,
    "service level of RDMA packets, 0 to 15: virtual lanes of InfiniBand, priority of RoCE");
DEFINE_int32(pkey_index, 0,
             "InfiniBand: index of the partition key in the port's table, 0 to 65535");

namespace pando {
namespace {

void CheckRange(const ProgramInfo& program, const char* name, int value, int last) {
  if (value >= 0 && value <= last) return;
  ExitWithUsageError(program, std::string("--") + name + " is 0 to " + std::to_string(last) +
                                  ", not " + std::to_string(value));
}

}  // namespace

const char kRdmaFlagsSource[] = __FILE__;

RdmaPath RdmaPathFromFlags(const ProgramInfo& program) {
  const bool port_given = !gflags::GetCommandLineFlagInfoOrDie("port").is_default;
  if (port_given && (FLAGS_port < 1 || FLAGS_port > 255)) {
    ExitWithUsageError(program, "--port is 1 to 255, not " + std::to_string(FLAGS_port) +
                                    "; without it the first active one is taken");
  }
  if (FLAGS_gid_index < -1 || FLAGS_gid_index > 255) {
    ExitWithUsageError(program, "--gid_index is 0 to 255, or -1 to have one chosen, not " +
                                    std::to_string(FLAGS_gid_index));
  }
  const auto mtu = static_cast<uint32_t>(FLAGS_mtu);
  if (mtu != 0 && (mtu < 256 || mtu > 4096 || !std::has_single_bit(mtu))) {
    ExitWithUsageError(
        program, "--mtu is 256, 512, 1024, 2048 or 4096 bytes, or 0 for the active one, not " +
                     std::to_string(FLAGS_mtu));
  }
  CheckRange(program, "traffic_class", FLAGS_traffic_class, 255);
  CheckRange(program, "service_level", FLAGS_service_level, 15);
  CheckRange(program, "pkey_index", FLAGS_pkey_index, 65'535);
  return {.device = FLAGS_device,
          .port = FLAGS_port,
          .gid_index = FLAGS_gid_index,
          .mtu_bytes = mtu,
          .traffic_class = FLAGS_traffic_class,
          .service_level = FLAGS_service_level,
          .pkey_index = FLAGS_pkey_index};
}

}  // namespace pando
