#include "common/fabric/verbs/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace pando {
namespace {

using testing::HasSubstr;

GidFacts Gid(int index, GidType type, bool ipv4) {
  GidFacts gid;
  gid.index = index;
  gid.type = type;
  if (ipv4) {
    gid.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};
  } else {
    gid.gid = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  }
  return gid;
}

DeviceFacts Device(const std::string& name, bool active, uint32_t mtu_bytes = 4096) {
  PortFacts port;
  port.state = active ? "PORT_ACTIVE" : "PORT_DOWN";
  port.active = active;
  port.mtu_bytes = mtu_bytes;
  port.gids = {Gid(0, GidType::kRoceV1, false), Gid(1, GidType::kRoceV2, false),
               Gid(2, GidType::kRoceV1, true), Gid(3, GidType::kRoceV2, true)};
  return {.name = name, .ports = {port}};
}

std::string Message(const absl::StatusOr<DeviceChoice>& choice) {
  return std::string(choice.status().message());
}

TEST(DeviceChoice, TheActiveDeviceAndRoceV2WithIpv4AreTheDefault) {
  const auto choice = ChooseDevice({Device("a", false), Device("b", true, 1024)}, {});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->device, 1u);
  EXPECT_EQ(choice->port.number, 1);
  EXPECT_EQ(choice->gid.index, 3);
  EXPECT_EQ(choice->mtu_bytes, 1024u);
  EXPECT_EQ(FormatGid(choice->gid), "10.77.0.1");
}

TEST(DeviceChoice, EachPartCanBeGiven) {
  const std::vector<DeviceFacts> devices = {Device("a", true), Device("b", true)};
  const auto choice =
      ChooseDevice(devices, {.device = "b", .port = 1, .gid_index = 1, .mtu_bytes = 1024});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->device, 1u);
  EXPECT_EQ(choice->gid.index, 1);
  EXPECT_EQ(choice->mtu_bytes, 1024u);
  EXPECT_EQ(FormatGid(choice->gid), "fe80::1");
}

TEST(DeviceChoice, NoDeviceSaysWhatToDo) {
  const auto choice = ChooseDevice({}, {});
  EXPECT_EQ(choice.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(choice), HasSubstr("--fabric=shm"));
}

TEST(DeviceChoice, WhatIsNotThereIsNamedBesideWhatIs) {
  const std::vector<DeviceFacts> devices = {Device("rxe0", true)};
  const auto device = ChooseDevice(devices, {.device = "mlx5_0"});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(device), HasSubstr("'mlx5_0'; there are rxe0 port 1 PORT_ACTIVE"));
  const auto port = ChooseDevice(devices, {.device = "rxe0", .port = 2});
  EXPECT_EQ(port.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(port), HasSubstr("no port 2"));
  const auto gid = ChooseDevice(devices, {.gid_index = 7});
  EXPECT_EQ(gid.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(gid), HasSubstr("3 (10.77.0.1)"));
}

TEST(DeviceChoice, WhatIsDownIsSaidToBeDown) {
  const std::vector<DeviceFacts> devices = {Device("rxe0", false)};
  for (const VerbsDeviceOptions& options : {VerbsDeviceOptions{}, {.device = "rxe0"}}) {
    const auto choice = ChooseDevice(devices, options);
    EXPECT_EQ(choice.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(Message(choice), HasSubstr("rxe0 port 1 PORT_DOWN"));
  }
}

TEST(DeviceChoice, DevicesWithoutAtomicsAreNotTaken) {
  std::vector<DeviceFacts> devices = {Device("siw0", true), Device("rxe0", true)};
  devices[0].has_atomics = false;
  const auto choice = ChooseDevice(devices, {});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->device, 1u);
  const auto given = ChooseDevice(devices, {.device = "siw0"});
  EXPECT_EQ(given.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(given), HasSubstr("atomics"));
}

TEST(DeviceChoice, MtusAreChecked) {
  const std::vector<DeviceFacts> devices = {Device("rxe0", true, 1024)};
  EXPECT_TRUE(absl::IsInvalidArgument(ChooseDevice(devices, {.mtu_bytes = 1500}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ChooseDevice(devices, {.mtu_bytes = 8192}).status()));
  const auto too_large = ChooseDevice(devices, {.mtu_bytes = 4096});
  EXPECT_EQ(too_large.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(too_large), HasSubstr("active MTU is 1024"));
}

TEST(DeviceChoice, APortWithoutAnAddressIsRefused) {
  std::vector<DeviceFacts> devices = {Device("rxe0", true)};
  devices[0].ports[0].gids.clear();
  EXPECT_EQ(ChooseDevice(devices, {}).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(DeviceChoice, InfiniBandTakesItsOwnGid) {
  std::vector<DeviceFacts> devices = {Device("ib0", true)};
  devices[0].ports[0].ethernet = false;
  devices[0].ports[0].gids = {Gid(0, GidType::kInfiniBand, false)};
  const auto choice = ChooseDevice(devices, {});
  ASSERT_TRUE(choice.ok()) << choice.status();
  EXPECT_EQ(choice->gid.index, 0);
  EXPECT_FALSE(choice->uses_global_route()) << "one subnet goes by local ids";
  devices[0].ports[0].needs_grh = true;
  EXPECT_TRUE(ChooseDevice(devices, {})->uses_global_route());
}

TEST(DeviceChoice, PacketsAreMarkedAsAsked) {
  std::vector<DeviceFacts> devices = {Device("mlx5_0", true)};
  const auto plain = ChooseDevice(devices, {});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_TRUE(plain->uses_global_route()) << "RoCE";
  EXPECT_EQ(plain->traffic_class + plain->service_level + plain->pkey_index, 0);
  devices[0].ports[0].partitions = 2;
  const auto marked =
      ChooseDevice(devices, {.traffic_class = 106, .service_level = 3, .pkey_index = 1});
  ASSERT_TRUE(marked.ok()) << marked.status();
  EXPECT_EQ(marked->traffic_class, 106);
  EXPECT_EQ(marked->service_level, 3);
  EXPECT_EQ(marked->pkey_index, 1);
  EXPECT_TRUE(absl::IsInvalidArgument(ChooseDevice(devices, {.traffic_class = 256}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ChooseDevice(devices, {.service_level = 16}).status()));
  const auto partition = ChooseDevice(devices, {.pkey_index = 2});
  EXPECT_EQ(partition.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(partition), HasSubstr("it has 2"));
}

}  // namespace
}  // namespace pando
