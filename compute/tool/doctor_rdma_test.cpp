// The judgement of RDMA facts, without a device.
#include "compute/tool/doctor_rdma.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pando::tool {
namespace {

using testing::HasSubstr;
using testing::Not;

// One software device that is as it should be.
RdmaFacts Good() {
  GidFacts gid;
  gid.index = 1;
  gid.type = GidType::kRoceV2;
  gid.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};
  PortFacts port;
  port.state = "PORT_ACTIVE";
  port.active = true;
  port.mtu_bytes = 4096;
  port.interface = "eth0";
  port.gids = {gid};
  RdmaFacts facts;
  facts.needed = true;
  facts.devices = {{.name = "rxe0", .is_software = true, .ports = {port}}};
  facts.kernel_devices = {"rxe0"};
  facts.nodes = {{"/dev/infiniband/uverbs0", true}};
  facts.interface_mtu_bytes = {{"eth0", 4200}};
  facts.ethernet = "eth0";
  facts.rxe = KernelModule::kLoaded;
  return facts;
}

RdmaFacts NoDevice() {
  RdmaFacts facts = Good();
  facts.devices.clear();
  facts.kernel_devices.clear();
  facts.nodes.clear();
  facts.rxe = KernelModule::kAvailable;
  return facts;
}

PortFacts& Port(RdmaFacts& facts) { return facts.devices[0].ports[0]; }

// Nothing has to be fixed where RDMA is not needed; where it is, `fixes` things have to.
std::string Text(RdmaFacts facts, int fixes) {
  facts.needed = false;
  DoctorReport unneeded;
  JudgeRdma(facts, &unneeded);
  EXPECT_EQ(unneeded.fixes(), 0) << unneeded.text();
  facts.needed = true;
  DoctorReport report;
  JudgeRdma(facts, &report);
  EXPECT_EQ(report.fixes(), fixes) << report.text();
  return report.text();
}

TEST(DoctorRdma, AGoodDeviceIsDescribed) {
  const std::string text = Text(Good(), 0);
  EXPECT_THAT(text, HasSubstr("[ok]   RDMA device rxe0: software"));
  EXPECT_THAT(text, HasSubstr("rxe0 port 1: PORT_ACTIVE, Ethernet, MTU 4096"));
  EXPECT_THAT(text, HasSubstr("1 10.77.0.1 (RoCEv2)"));
  EXPECT_THAT(text, HasSubstr("--fabric=verbs uses rxe0 port 1"));
  EXPECT_THAT(text, HasSubstr("locked memory: unlimited"));
  EXPECT_THAT(text, Not(HasSubstr("[note]")));
  RdmaFacts nic = Good();
  nic.devices[0].is_software = false;
  nic.devices[0].on_chip_bytes = 256 << 10;
  EXPECT_THAT(Text(nic, 0), HasSubstr("a NIC, 256.0 KiB of memory of its own"));
}

TEST(DoctorRdma, NoSecretIsSaidWithWhatItMeans) {
  DoctorReport without, with;
  JudgeSecret(false, &without);
  EXPECT_THAT(without.text(), HasSubstr("[note] no secret: anybody who reaches the TCP port"));
  EXPECT_THAT(without.text(), HasSubstr("--secret_file"));
  EXPECT_EQ(without.fixes(), 0);
  JudgeSecret(true, &with);
  EXPECT_THAT(with.text(), Not(HasSubstr("[note]")));
}

TEST(DoctorRdma, NoDeviceHasTheCommandsThatMakeOne) {
  RdmaFacts facts = NoDevice();
  EXPECT_THAT(Text(facts, 1),
              HasSubstr("sudo modprobe rdma_rxe && sudo rdma link add rxe0 type rxe netdev eth0"));
  facts.rxe = KernelModule::kLoaded;
  EXPECT_THAT(Text(facts, 1), Not(HasSubstr("modprobe")));
  facts.ethernet.clear();
  EXPECT_THAT(Text(facts, 1), HasSubstr("no network interface is up"));
  facts.rxe = KernelModule::kMissing;
  EXPECT_THAT(Text(facts, 1), HasSubstr("scripts/softroce run"));
}

TEST(DoctorRdma, WhatHidesTheKernelsDevicesIsNamed) {
  RdmaFacts no_nodes = NoDevice();
  no_nodes.kernel_devices = {"mlx5_0"};
  EXPECT_THAT(Text(no_nodes, 1), HasSubstr("modprobe ib_uverbs"));
  RdmaFacts no_library = no_nodes;
  no_library.nodes = Good().nodes;
  EXPECT_THAT(Text(no_library, 1), HasSubstr("does not know the kernel's RDMA device mlx5_0"));
  RdmaFacts forbidden = Good();
  forbidden.nodes[0].may_use = false;
  forbidden.devices[0].may_open = false;
  forbidden.devices[0].ports.clear();
  const std::string text = Text(forbidden, 3);
  EXPECT_THAT(text, HasSubstr("sudo chmod 666 /dev/infiniband/uverbs0"));
  EXPECT_THAT(text, HasSubstr("rxe0 cannot be opened"));
}

TEST(DoctorRdma, APortThatIsOfNoUseIsToBeFixedWhereItIsNeeded) {
  RdmaFacts down = Good();
  Port(down).state = "PORT_DOWN";
  Port(down).active = false;
  EXPECT_THAT(Text(down, 1), HasSubstr("sudo ip link set eth0 up"));
  Port(down).ethernet = false;
  EXPECT_THAT(Text(down, 1), HasSubstr("opensm"));
  RdmaFacts no_address = Good();
  Port(no_address).gids.clear();
  EXPECT_THAT(Text(no_address, 1), HasSubstr("sudo ip address add ADDRESS/24 dev eth0"));
  RdmaFacts no_atomics = Good();
  no_atomics.devices[0].has_atomics = false;
  EXPECT_THAT(Text(no_atomics, 1), HasSubstr("no 64-bit atomics"));
  RdmaFacts other = Good();
  other.options.device = "mlx5_0";
  EXPECT_THAT(Text(other, 1), HasSubstr("no RDMA device is called 'mlx5_0'; there are rxe0"));
}

TEST(DoctorRdma, ASmallMtuIsOnlyNoted) {
  RdmaFacts facts = Good();
  Port(facts).mtu_bytes = 1024;
  facts.interface_mtu_bytes["eth0"] = 1500;
  const std::string text = Text(facts, 0);
  EXPECT_THAT(text, HasSubstr("that of eth0 is 1500"));
  EXPECT_THAT(text, HasSubstr("sudo ip link set eth0 mtu 4200"));
  Port(facts).ethernet = false;
  EXPECT_THAT(Text(facts, 0), Not(HasSubstr("ip link set")));
}

TEST(DoctorRdma, CapabilitiesCountInTheInitialUserNamespaceOnly) {
  EXPECT_TRUE(IsInitialUserNamespace("         0          0 4294967295\n"));
  EXPECT_FALSE(IsInitialUserNamespace("         0       1000          1\n"));  // rootless
  EXPECT_FALSE(IsInitialUserNamespace("         0          0      65536\n"));
  EXPECT_FALSE(IsInitialUserNamespace("      1000       1000          1\n"));
  EXPECT_FALSE(IsInitialUserNamespace(""));
}

TEST(DoctorRdma, LockedMemoryHasToSuffice) {
  RdmaFacts facts = Good();
  facts.locked_bytes_max = 8 << 20;
  const std::string text = Text(facts, 1);
  EXPECT_THAT(text, HasSubstr("up to 8.0 MiB"));
  EXPECT_THAT(text, HasSubstr("LimitMEMLOCK=infinity"));
  EXPECT_THAT(text, Not(HasSubstr("ulimit -l unlimited")));
  facts.may_raise_locked = true;
  EXPECT_THAT(Text(facts, 1), HasSubstr("-> ulimit -l unlimited; for good: "));
  facts.is_privileged = true;
  EXPECT_THAT(Text(facts, 0), HasSubstr("CAP_IPC_LOCK"));
  facts.is_privileged = false;
  facts.locked_bytes_max = uint64_t{4} << 30;
  EXPECT_THAT(Text(facts, 0), HasSubstr("[ok]   locked memory: up to 4.0 GiB"));
  // Without a device the limit is the smaller trouble.
  RdmaFacts none = NoDevice();
  none.locked_bytes_max = 8 << 20;
  EXPECT_THAT(Text(none, 1), HasSubstr("[note] locked memory"));
}

}  // namespace
}  // namespace pando::tool
