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
};

// NotFound: no device at all, or not the given one, port or GID (says what there is).
// FailedPrecondition: what was given, or everything there is, is down or without atomics.
// InvalidArgument: an MTU that is none.
absl::StatusOr<DeviceChoice> ChooseDevice(const std::vector<DeviceFacts>& devices,
                                          const VerbsDeviceOptions& options);

// "10.77.0.1" or "fe80::1".
std::string FormatGid(const GidFacts& gid);
// "RoCEv2".
const char* GidTypeName(GidType type);

}  // namespace pando
