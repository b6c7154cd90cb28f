#include "common/fabric/nic/nic.h"

#include <gtest/gtest.h>

namespace pando {
namespace {

NicProfile Profile() {
  NicProfile profile;
  profile.link.gbits = 100;
  profile.link.header_bytes = 100;
  profile.link.packet_bytes = 1000;
  profile.pcie.gbits = 80;
  profile.atomics.buckets = 4;
  profile.nic.send_ns = 8.48;
  return profile;
}

TEST(BusyUntilTest, WhoComesLaterIsServedLater) {
  BusyUntil engine;
  EXPECT_EQ(engine.Take(100, 10), 100);
  EXPECT_EQ(engine.Take(105, 10), 110);  // waits
  EXPECT_EQ(engine.Take(500, 10), 500);  // idle meanwhile
  EXPECT_EQ(engine.free_at(), 510);
}

TEST(BusyUntilTest, WhatArrivesInOneGoHasBegunBefore) {
  BusyUntil link;
  EXPECT_EQ(link.TakeUntil(100, 30), 100);  // was on it from 70 on
  EXPECT_EQ(link.TakeUntil(110, 30), 130);  // shares it: 30 behind the first
}

TEST(HeldUpTest, KeepsTheOrder) {
  HeldUp held_up;
  uint32_t in = 0, out = 0;
  // Never empty for long, and longer than its capacity at some time.
  for (int round = 0; round < 100; ++round) {
    for (int i = 0; i < 7; ++i) held_up.Push({in++, 1});
    for (int i = 0; i < (round < 50 ? 5 : 8) && !held_up.empty(); ++i) {
      EXPECT_EQ(held_up.front().flight, out++);
      held_up.Pop();
    }
  }
  while (!held_up.empty()) {
    EXPECT_EQ(held_up.front().flight, out++);
    held_up.Pop();
  }
  EXPECT_EQ(in, out);
}

TEST(NicTimesTest, EveryPacketHasHeaders) {
  const NicTimes times(Profile());
  EXPECT_EQ(times.send, 8480);
  EXPECT_EQ(times.Serialise(0), 8'000);         // 100 bytes at 80 ps
  EXPECT_EQ(times.Serialise(1000), 88'000);     // 1,100
  EXPECT_EQ(times.Serialise(1001), 1201 * 80);  // a second packet
  EXPECT_EQ(times.OverPcie(10), 1'000);
  EXPECT_EQ(times.bucket_mask, 3u);
}

}  // namespace
}  // namespace pando
