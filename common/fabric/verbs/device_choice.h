// Which device, port, GID and MTU to use: found, and each can be given. Pure functions over facts,
// so that machines without an RDMA device test them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pando {

struct VerbsDeviceOptions {
  std::string device;      // as `ibv_devices` names it; "": the first with an active port
  int port = 0;            // counts from 1; 0: the first active one
  int gid_index = -1;      // -1: RoCEv2 with an IPv4 address where there is one
  uint32_t mtu_bytes = 0;  // 256 to 4096, a power of two; 0: what is active
  // What switches sort packets by: RoCE's traffic class (DSCP times 4; 0 to 255), the service level
  // (0 to 15).
  int traffic_class = 0, service_level = 0;
  int pkey_index = 0;  // InfiniBand: of the partition key in the port's table
};

enum class GidType : uint8_t { kInfiniBand, kRoceV1, kRoceV2 };

struct GidFacts {
  int index = 0;
  GidType type = GidType::kInfiniBand;
  std::array<uint8_t, 16> gid = {};

  // ::ffff:a.b.c.d
  bool IsIpv4() const;
  bool IsLinkLocal() const;
};

struct PortFacts {
  int number = 1;
  std::string state;  // as ibv_port_state_str says
  bool active = false;
  bool ethernet = true;
  uint32_t mtu_bytes = 1024;  // the active one
  bool needs_grh = false;     // InfiniBand: every packet has to have a global route
  uint32_t partitions = 1;    // partition keys in the port's table
  std::string interface;      // the network interface behind it; "": InfiniBand, or unknown
  std::vector<GidFacts> gids;
};

struct DeviceFacts {
  std::string name;
  bool may_open = true;      // by this user; else nothing below is known
  bool is_software = false;  // VerbsDevice::is_software()
  bool has_atomics = true;
  uint64_t on_chip_bytes = 0;  // memory on the NIC itself
  std::vector<PortFacts> ports;
};

struct DeviceChoice {
  size_t device = 0;  // index into the facts
  PortFacts port;
  GidFacts gid;
  uint32_t mtu_bytes = 1024;
  uint8_t traffic_class = 0, service_level = 0;
  uint16_t pkey_index = 0;

  // Packets have a global route header: always on RoCE, on InfiniBand where the port asks for it.
  bool uses_global_route() const { return port.ethernet || port.needs_grh; }
};

// NotFound: no device at all, or not the given one, port, GID or partition key (says what there
// is). FailedPrecondition: what was given, or everything there is, is down or without atomics.
// InvalidArgument: an MTU, traffic class or service level that is none.
absl::StatusOr<DeviceChoice> ChooseDevice(const std::vector<DeviceFacts>& devices,
                                          const VerbsDeviceOptions& options);

// "10.77.0.1" or "fe80::1".
std::string FormatGid(const GidFacts& gid);
// "RoCEv2".
const char* GidTypeName(GidType type);

}  // namespace pando
