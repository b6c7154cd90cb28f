#include "common/fabric/verbs/device_choice.h"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr uint32_t kMtuBytesMin = 256;
constexpr uint32_t kMtuBytesMax = 4096;

std::string Names(const std::vector<DeviceFacts>& devices) {
  return absl::StrJoin(devices, ", ", [](std::string* out, const DeviceFacts& device) {
    absl::StrAppend(out, device.name);
    for (const PortFacts& port : device.ports) {
      absl::StrAppend(out, " port ", port.number, " ", port.state);
    }
  });
}

// Lower is better.
int GidRank(const GidFacts& gid, bool ethernet) {
  if (!ethernet) return gid.type == GidType::kInfiniBand ? 0 : 1;
  // Link-local addresses (169.254.0.0/16, fe80::/10) lead nowhere beyond the own network.
  if (gid.type == GidType::kRoceV2) return (gid.IsIpv4() ? 0 : 1) + (gid.IsLinkLocal() ? 2 : 0);
  return gid.type == GidType::kRoceV1 ? 4 : 5;
}

absl::StatusOr<GidFacts> ChooseGid(const DeviceFacts& device, const PortFacts& port,
                                   int wanted_index) {
  const auto describe = [&] { return absl::StrCat(device.name, " port ", port.number); };
  if (port.gids.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat(describe(), " has no GID: does its network interface have an address?"));
  }
  if (wanted_index < 0) {
    return *std::min_element(port.gids.begin(), port.gids.end(),
                             [&](const GidFacts& a, const GidFacts& b) {
                               return GidRank(a, port.ethernet) < GidRank(b, port.ethernet);
                             });
  }
  for (const GidFacts& gid : port.gids) {
    if (gid.index == wanted_index) return gid;
  }
  return absl::NotFoundError(
      absl::StrCat(describe(), " has no GID with index ", wanted_index, "; there are ",
                   absl::StrJoin(port.gids, ", ", [](std::string* out, const GidFacts& gid) {
                     absl::StrAppend(out, gid.index, " (", FormatGid(gid), ")");
                   })));
}

absl::StatusOr<uint32_t> ChooseMtu(const PortFacts& port, uint32_t wanted_bytes) {
  if (wanted_bytes == 0) return port.mtu_bytes;
  if (!std::has_single_bit(wanted_bytes) || wanted_bytes < kMtuBytesMin ||
      wanted_bytes > kMtuBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("an RDMA MTU is 256, 512, 1024, 2048 or 4096 bytes, not ", wanted_bytes));
  }
  if (wanted_bytes > port.mtu_bytes) {
    return absl::FailedPreconditionError(absl::StrCat("the active MTU is ", port.mtu_bytes,
                                                      " bytes, less than ", wanted_bytes,
                                                      ": raise the MTU of the network interface"));
  }
  return wanted_bytes;
}

absl::Status ChooseMarks(const DeviceFacts& device, const VerbsDeviceOptions& options,
                         DeviceChoice* choice) {
  if (options.traffic_class < 0 || options.traffic_class > 255 || options.service_level < 0 ||
      options.service_level > 15) {
    return absl::InvalidArgumentError(
        absl::StrCat("a traffic class is 0 to 255 and a service level 0 to 15, not ",
                     options.traffic_class, " and ", options.service_level));
  }
  const auto partitions = static_cast<int64_t>(choice->port.partitions);
  if (options.pkey_index < 0 || options.pkey_index >= partitions) {
    return absl::NotFoundError(absl::StrCat(device.name, " port ", choice->port.number,
                                            " has no partition key with index ", options.pkey_index,
                                            "; it has ", partitions));
  }
  choice->traffic_class = static_cast<uint8_t>(options.traffic_class);
  choice->service_level = static_cast<uint8_t>(options.service_level);
  choice->pkey_index = static_cast<uint16_t>(options.pkey_index);
  return absl::OkStatus();
}

const PortFacts* FindPort(const DeviceFacts& device, int wanted) {
  for (const PortFacts& port : device.ports) {
    if (wanted == 0 ? port.active : port.number == wanted) return &port;
  }
  return nullptr;
}

// The port of a device that was asked for by name.
absl::StatusOr<PortFacts> PortOfGiven(const DeviceFacts& device, int wanted) {
  if (!device.has_atomics) {
    return absl::FailedPreconditionError(
        absl::StrCat("RDMA device ", device.name, " has no 64-bit atomics, which Pando needs"));
  }
  const PortFacts* const port = FindPort(device, wanted);
  if (port != nullptr && port->active) return *port;
  if (port == nullptr && wanted != 0) {
    return absl::NotFoundError(absl::StrCat("RDMA device ", device.name, " has no port ", wanted,
                                            "; it has ", device.ports.size()));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("no active port: ", Names({device}), ": is the cable in, the interface up?"));
}

}  // namespace

bool GidFacts::IsIpv4() const {
  static constexpr uint8_t kPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::memcmp(gid.data(), kPrefix, sizeof(kPrefix)) == 0;
}

bool GidFacts::IsLinkLocal() const {
  if (IsIpv4()) return gid[12] == 169 && gid[13] == 254;
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

std::string FormatGid(const GidFacts& gid) {
  char text[INET6_ADDRSTRLEN] = {};
  if (gid.IsIpv4()) {
    inet_ntop(AF_INET, gid.gid.data() + 12, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, gid.gid.data(), text, sizeof(text));
  }
  return text;
}

const char* GidTypeName(GidType type) {
  switch (type) {
    case GidType::kRoceV1:
      return "RoCEv1";
    case GidType::kRoceV2:
      return "RoCEv2";
    default:
      return "InfiniBand";
  }
}

absl::StatusOr<DeviceChoice> ChooseDevice(const std::vector<DeviceFacts>& devices,
                                          const VerbsDeviceOptions& options) {
  if (devices.empty()) {
    return absl::NotFoundError(
        "no RDMA device: run `pando doctor`, scripts/softroce makes one in software, or use "
        "--fabric=shm");
  }
  DeviceChoice choice;
  bool found = false;
  for (size_t i = 0; i < devices.size() && !found; ++i) {
    if (options.device.empty()) {
      const PortFacts* const port = FindPort(devices[i], options.port);
      if (port == nullptr || !port->active || !devices[i].has_atomics) continue;
      choice.port = *port;
    } else {
      if (devices[i].name != options.device) continue;
      PANDO_ASSIGN_OR_RETURN(choice.port, PortOfGiven(devices[i], options.port));
    }
    choice.device = i;
    found = true;
  }
  if (!found && !options.device.empty()) {
    return absl::NotFoundError(absl::StrCat("no RDMA device is called '", options.device,
                                            "'; there are ", Names(devices)));
  }
  if (!found) {
    return absl::FailedPreconditionError(
        absl::StrCat("no RDMA device with an active port and 64-bit atomics; there are ",
                     Names(devices), ": is the cable in, the interface up?"));
  }
  const DeviceFacts& device = devices[choice.device];
  PANDO_ASSIGN_OR_RETURN(choice.gid, ChooseGid(device, choice.port, options.gid_index));
  PANDO_ASSIGN_OR_RETURN(choice.mtu_bytes, ChooseMtu(choice.port, options.mtu_bytes));
  PANDO_RETURN_IF_ERROR(ChooseMarks(device, options, &choice));
  return choice;
}

}  // namespace pando
