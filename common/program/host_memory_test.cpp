#include "common/program/host_memory.h"

#include <filesystem>
#include <fstream>

#include "common/base/temporary_directory.h"
#include "common/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A machine of 16 GiB, 10 of them available, with 8 huge pages, 5 of them free and one promised.
class HostMemoryTest : public testing::Test {
 protected:
  HostMemoryTest() {
    Write("/proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:   10485760 kB\n"
          "HugePages_Total:       8\nHugePages_Free:        5\nHugePages_Rsvd:        1\n"
          "HugePages_Surp:        0\nHugepagesize:       2048 kB\n");
    Write("/proc/self/cgroup", "0::/\n");
  }
  void Write(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(
        (root_.path() + path).substr(0, root_.path().size() + path.rfind('/')));
    std::ofstream(root_.path() + path) << content;
  }
  HostMemory Read(int numa_node = -1) { return ReadHostMemory(numa_node, root_.path()); }
  void ExpectFits(uint64_t bytes, int numa_node = -1) {
    EXPECT_TRUE(CheckMemory(bytes, Read(numa_node)).ok()) << CheckMemory(bytes, Read(numa_node));
    const absl::Status more = CheckMemory(bytes + 1, Read(numa_node));
    EXPECT_EQ(more.code(), absl::StatusCode::kResourceExhausted) << FormatBytes(bytes);
  }
  std::string Refusal(uint64_t bytes, int numa_node = -1) {
    return std::string(CheckMemory(bytes, Read(numa_node)).message());
  }

  const TemporaryDirectory root_;
};

TEST_F(HostMemoryTest, WhatIsAvailableFits) {
  ExpectFits(10 * kGiB);
  EXPECT_THAT(Refusal(2048 * kGiB), AllOf(HasSubstr("2.0 TiB of memory"), HasSubstr("this machine"),
                                          HasSubstr("16.0 GiB"), HasSubstr("10.0 GiB of it")));
  EXPECT_EQ(Read().huge_free_bytes, 4 * 2 * kMiB);
}

TEST_F(HostMemoryTest, TheNodeThatWasAskedForBounds) {
  Write("/sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal:        8388608 kB\nNode 1 MemFree:         1048576 kB\n"
        "Node 1 Active(file):     524288 kB\nNode 1 Inactive(file):  524288 kB\n"
        "Node 1 SReclaimable:    1048576 kB\n");
  Write("/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "3\n");
  Write("/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "2\n");
  ExpectFits(3 * kGiB, 1);
  EXPECT_THAT(Refusal(4 * kGiB, 1), AllOf(HasSubstr("NUMA node 1"), HasSubstr("8.0 GiB")));
  ExpectFits(10 * kGiB, -1);
  // Free on the machine is not free on the node.
  EXPECT_EQ(Read(1).huge_free_bytes, 3 * 2 * kMiB);
  EXPECT_EQ(Read(0).huge_free_bytes, 2 * 2 * kMiB);
  EXPECT_EQ(Read(2).huge_free_bytes, 0u);
}

TEST_F(HostMemoryTest, ControlGroupsBoundAlsoThoseAbove) {
  Write("/proc/self/cgroup", "0::/user.slice/user-1000.slice/pando\n");
  const std::string slice = "/sys/fs/cgroup/user.slice/user-1000.slice";
  Write(slice + "/pando/memory.max", "max\n");
  ExpectFits(10 * kGiB);
  Write(slice + "/memory.max", absl::StrCat(4 * kGiB, "\n"));
  ExpectFits(4 * kGiB);
  // A file's cached pages are given back.
  Write(slice + "/memory.current", absl::StrCat(3 * kGiB, "\n"));
  Write(slice + "/memory.stat",
        absl::StrCat("anon 5\ninactive_file ", kGiB, "\nactive_file ", kGiB, "\n"));
  ExpectFits(3 * kGiB);
  EXPECT_THAT(Refusal(4 * kGiB),
              HasSubstr("control group /user.slice/user-1000.slice has 4.0 GiB"));
  Write(slice + "/pando/memory.max", absl::StrCat(kGiB, "\n"));
  Write(slice + "/pando/memory.current", absl::StrCat(2 * kGiB, "\n"));
  ExpectFits(0);
}

TEST_F(HostMemoryTest, ControlGroupsOfTheFirstVersionBoundToo) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", absl::StrCat(2 * kGiB, "\n"));
  Write("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", absl::StrCat(kGiB, "\n"));
  Write("/sys/fs/cgroup/memory/docker/abc/memory.stat",
        absl::StrCat("total_inactive_file ", kGiB / 2, "\n"));
  ExpectFits(3 * kGiB / 2);
}

// In a container the path may be the host's, and the group's own files lie at the top.
TEST_F(HostMemoryTest, AContainersGroupIsFoundAtTheTop) {
  Write("/proc/self/cgroup", "0::/../../system.slice/docker-1.scope\n");
  Write("/sys/fs/cgroup/memory.max", absl::StrCat(kGiB, "\n"));
  ExpectFits(kGiB);
}

TEST_F(HostMemoryTest, WhatCannotBeReadRefusesNothing) {
  const HostMemory nothing = ReadHostMemory(3, root_.path() + "/nowhere");
  EXPECT_TRUE(CheckMemory(uint64_t{1} << 60, nothing).ok());
  EXPECT_EQ(nothing.huge_free_bytes, 0u);
}

TEST_F(HostMemoryTest, ThisMachineSaysSomething) {
  const HostMemory host = ReadHostMemory(-1);
  ASSERT_FALSE(host.bounds.empty());
  EXPECT_TRUE(CheckMemory(1, host).ok()) << CheckMemory(1, host);
  EXPECT_FALSE(CheckMemory(host.bounds[0].total_bytes + 1, host).ok());
}

}  // namespace
}  // namespace pando
