#include "common/base/time_constants.h"

#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(TimeConstants, TheDefaultsHoldAndTheirFractionsToo) {
  for (const int64_t divisor : {1, 10, 100, 1000, 10'000}) {
    const TimeConstants times = TimeConstants().DividedBy(divisor);
    EXPECT_TRUE(times.Validate().ok()) << divisor << ": " << times.Validate();
    EXPECT_EQ(times.freed_rest_ns, kSecondNs / divisor);
  }
  EXPECT_EQ(TimeConstants().DividedBy(1'000'000).allocator_look_ns, kMicrosecondNs);
}

// Each invariant by itself.
TEST(TimeConstants, WhatDoesNotFitTogetherIsRefused) {
  const auto refused = [](auto change) {
    TimeConstants times;
    change(times);
    return absl::IsInvalidArgument(times.Validate());
  };
  EXPECT_FALSE(refused([](TimeConstants&) {}));
  EXPECT_TRUE(refused([](TimeConstants& t) { t.ping_max_ns = 0; }));
  EXPECT_TRUE(refused([](TimeConstants& t) { t.sweep_interval_ns = -1; }));
  EXPECT_TRUE(refused([](TimeConstants& t) { t.read_max_ns = t.freed_rest_ns / 2 + 1; }));
  EXPECT_TRUE(refused([](TimeConstants& t) { t.freed_rest_ns = 2 * t.read_max_ns - 2; }));
  EXPECT_TRUE(refused([](TimeConstants& t) { t.rest_grain_ns = t.freed_rest_ns; }));
  EXPECT_TRUE(refused([](TimeConstants& t) { t.allocator_look_ns = t.freed_rest_ns; }));
  EXPECT_TRUE(refused([](TimeConstants& t) { t.rest_ask_min_ns = t.freed_rest_ns; }));
  EXPECT_TRUE(refused([](TimeConstants& t) { t.cell_rest_ns = t.freed_rest_ns + 1; }));
  EXPECT_TRUE(refused([](TimeConstants& t) { t.lock_recovery_poll_ns = t.lock_recovery_ns; }));
  EXPECT_TRUE(refused([](TimeConstants& t) { t.call_attempt_ns = t.lock_recovery_ns; }));
}

}  // namespace
}  // namespace pando
