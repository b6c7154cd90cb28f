// The lock table in device memory, which nobody here has: the calls are faked, the registration and
// the verbs are real.
#include "common/fabric/verbs/lock_space.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "common/fabric/verbs/fake_device_memory.h"
#include "common/fabric/verbs/verbs_test_cluster.h"

namespace pando {
namespace {

constexpr uint64_t kBytes = 64 << 10;

class LockSpaceTest : public VerbsDeviceTest {
 protected:
  void SetUp() override {
    VerbsDeviceTest::SetUp();
    if (IsSkipped()) return;
    device_ = *VerbsDevice::Open({});
    loopback_ = *Loopback::Create(device_);
  }
  std::unique_ptr<LockSpace> Make(FakeDeviceMemory* calls, bool device_memory = true) {
    auto space = LockSpace::Create(device_, {kBytes, device_memory}, calls, loopback_.get());
    EXPECT_TRUE(space.ok()) << space.status();
    return space.ok() ? *std::move(space) : nullptr;
  }

  std::shared_ptr<VerbsDevice> device_;
  std::unique_ptr<Loopback> loopback_;
};

TEST_F(LockSpaceTest, DeviceMemoryIsZeroedAndNamedFromZero) {
  FakeDeviceMemory calls(kBytes);
  {
    const auto space = Make(&calls);
    EXPECT_TRUE(space->on_chip());
    EXPECT_TRUE(space->host_memory().empty());
    EXPECT_EQ(space->words(), kBytes / 8);
    EXPECT_EQ(space->space().address, 0u);
    std::vector<uint64_t> words(kBytes / 8, 1);
    ASSERT_TRUE(space->Read(0, words).ok());
    EXPECT_EQ(words, std::vector<uint64_t>(kBytes / 8, 0));
    EXPECT_EQ(*space->CompareSwap(kBytes / 8 - 1, 0, 77), 0u);
    EXPECT_EQ(*space->CompareSwap(kBytes / 8 - 1, 0, 78), 77u);
    ASSERT_TRUE(space->Read(kBytes / 8 - 2, std::span(words).first(2)).ok());
    EXPECT_EQ(words[0], 0u);
    EXPECT_EQ(words[1], 77u);
    EXPECT_EQ(std::memcmp(calls.data() + kBytes - 8, &words[1], 8), 0);
  }
  EXPECT_EQ(calls.frees, 1);
}

TEST_F(LockSpaceTest, HostMemoryIsTakenWhereTheDeviceCannot) {
  FakeDeviceMemory none(0), small(kBytes - 64), refuses(kBytes), unregistered(kBytes),
      broken(kBytes);
  refuses.fail_allocate = true;
  unregistered.fail_register = true;
  broken.fail_copy = true;
  for (FakeDeviceMemory* calls : {&none, &small, &refuses, &unregistered, &broken}) {
    const auto space = Make(calls);
    EXPECT_FALSE(space->on_chip());
    ASSERT_EQ(space->host_memory().size(), kBytes);
    EXPECT_EQ(*space->CompareSwap(3, 0, 5), 0u);
    EXPECT_EQ(reinterpret_cast<const uint64_t*>(space->host_memory().data())[3], 5u);
  }
  EXPECT_EQ(none.allocations + small.allocations, 0);
  // What was allocated and turned out to be of no use is given back.
  EXPECT_EQ(refuses.frees, 0);
  EXPECT_EQ(unregistered.frees, 1);
  EXPECT_EQ(broken.frees, 1);
}

TEST_F(LockSpaceTest, HostMemoryIsTakenWhereItIsAskedFor) {
  FakeDeviceMemory calls(kBytes);
  EXPECT_FALSE(Make(&calls, false)->on_chip());
  EXPECT_EQ(calls.allocations, 0);
}

TEST_F(LockSpaceTest, AServerOffersItsDeviceMemoryToClients) {
  FakeDeviceMemory calls(kBytes);
  EchoHandler handler;
  {
    VerbsServerThread server({.lock_bytes = kBytes, .device_memory_calls = &calls}, &handler);
    EXPECT_EQ(server.server().on_chip_bytes(), kBytes);
    EXPECT_TRUE(server.server().memory().locks.empty());
    EXPECT_EQ(server.server().memory().lock_words(), kBytes / 8);
    auto fabric = ConnectVerbs({server.location()});
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    EXPECT_EQ((*fabric)->capabilities().on_chip_bytes, kBytes);
    auto endpoint = *(*fabric)->Connect(1, 1);
    Chain chain(1);
    chain.CompareSwap(MemorySpace::kLocks, 4096, 0, 9);
    endpoint->Post(&chain);
    while (!chain.done()) {
      if (endpoint->Poll() == 0) endpoint->Wait(endpoint->clock().NowNs() + kSecondNs);
    }
    ASSERT_TRUE(chain.ok()) << chain.status();
    EXPECT_TRUE(chain.verb(0).swapped());
    EXPECT_EQ(reinterpret_cast<const uint64_t*>(calls.data())[512], 9u);
  }
  EXPECT_EQ(calls.frees, 1);
}

}  // namespace
}  // namespace pando
