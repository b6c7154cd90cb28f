#include "memory/start_up.h"

#include "common/base/clock.h"
#include "common/base/units.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::memory {
namespace {

using testing::AllOf;
using testing::HasSubstr;

HostMemory Machine(uint64_t available_bytes, uint64_t huge_free_bytes = 0) {
  return {.bounds = {{"this machine", 32 * kGiB, available_bytes}},
          .huge_free_bytes = huge_free_bytes};
}

ServerFabricOptions Server(uint64_t bytes, bool huge_pages = false, int numa_node = -1) {
  ServerFabricOptions options;
  options.main_bytes = bytes;
  options.huge_pages = huge_pages;
  options.numa_node = numa_node;
  return options;
}

TEST(FitIntoHostTest, NoMoreThanIsAvailable) {
  ServerFabricOptions server = Server(4 * kGiB);
  const uint64_t mapped = MappedBytes(server);
  EXPECT_GT(mapped, 4 * kGiB) << "locks and endpoints count as well";
  EXPECT_LT(mapped, 4 * kGiB + 16 * kMiB);
  EXPECT_TRUE(FitIntoHost(Machine(mapped), false, &server).ok());
  const absl::Status refused = FitIntoHost(Machine(mapped - 1), false, &server);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("this machine has 32.0 GiB"), HasSubstr("--memory_overcommit")));
  EXPECT_TRUE(FitIntoHost(Machine(mapped - 1), true, &server).ok());
  server.endpoints_max = 65'536;
  EXPECT_GT(MappedBytes(server), mapped + 128 * kMiB);
}

TEST(FitIntoHostTest, HugePagesAreNotTakenFromWhatIsAvailable) {
  ServerFabricOptions server = Server(4 * kGiB, /*huge_pages=*/true, /*numa_node=*/1);
  EXPECT_TRUE(FitIntoHost(Machine(0, 5 * kGiB), false, &server).ok());
  EXPECT_TRUE(server.huge_pages);
}

TEST(FitIntoHostTest, HugePagesThatTheNodeLacksAreNotUsed) {
  ServerFabricOptions server = Server(4 * kGiB, /*huge_pages=*/true, /*numa_node=*/1);
  EXPECT_TRUE(FitIntoHost(Machine(5 * kGiB, kGiB), false, &server).ok());
  EXPECT_FALSE(server.huge_pages) << "the first touch of a page that is not there is a SIGBUS";
  server.huge_pages = true;
  EXPECT_FALSE(FitIntoHost(Machine(3 * kGiB, kGiB), false, &server).ok());
  // Without a node the kernel may find more where they may be overcommitted.
  server = Server(4 * kGiB, /*huge_pages=*/true);
  EXPECT_TRUE(FitIntoHost(Machine(5 * kGiB, kGiB), false, &server).ok());
  EXPECT_TRUE(server.huge_pages);
}

TEST(ConnectionsWithinTest, TwoDescriptorsEach) {
  EXPECT_EQ(ConnectionsWithin(1'048'576, 1024), 1024u);
  EXPECT_EQ(ConnectionsWithin(1024, 1024), 488u);
  EXPECT_EQ(ConnectionsWithin(10, 1024), 0u);
}

class RegistryPatienceTest : public testing::Test {
 protected:
  absl::Status Try(int64_t wait_ms, int answers_after) {
    return RegistryPatience(1, wait_ms)
        .Try(
            [this, answers_after] {
              return ++attempts_ > answers_after ? then_ : absl::UnavailableError("gone");
            },
            &stop_);
  }

  int attempts_ = 0;
  absl::Status then_;
  volatile std::sig_atomic_t stop_ = 0;
};

TEST_F(RegistryPatienceTest, WaitsAsLongAsItIsToldTo) {
  EXPECT_TRUE(Try(60'000, 3).ok());
  EXPECT_EQ(attempts_, 4);
  const int64_t start_ns = RealClock().NowNs();
  const absl::Status gone = Try(300, 1000);
  EXPECT_EQ(gone.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(gone.message()), AllOf(HasSubstr("--registry_wait"), HasSubstr("gone")));
  EXPECT_GE(RealClock().NowNs() - start_ns, 300 * kMillisecondNs);
  attempts_ = 0;
  EXPECT_FALSE(Try(0, 1000).ok());
  EXPECT_EQ(attempts_, 1);
}

TEST_F(RegistryPatienceTest, WhatIsNoQuestionOfTimeEndsItAtOnce) {
  then_ = absl::AlreadyExistsError("a live server has this id");
  EXPECT_EQ(Try(60'000, 1), then_);
  EXPECT_EQ(attempts_, 2);
  stop_ = 1;
  attempts_ = 0;
  EXPECT_EQ(Try(60'000, 1000).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(attempts_, 1);
}

}  // namespace
}  // namespace pando::memory
