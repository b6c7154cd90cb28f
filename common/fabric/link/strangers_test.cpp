#include "common/fabric/link/strangers.h"

#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(StrangersTest, WhoOpensManyPushesOutHisOwn) {
  Strangers strangers({.max = 100, .origin_max = 10});
  EXPECT_FALSE(strangers.Add(1, "anna", 50).has_value());
  for (PeerId peer = 1000; peer < 1010; ++peer) {
    EXPECT_FALSE(strangers.Add(peer, "mallory", 50).has_value());
  }
  for (PeerId peer = 1010; peer < 5000; ++peer) {
    EXPECT_EQ(strangers.Add(peer, "mallory", 50), peer - 10) << "his oldest";
  }
  EXPECT_TRUE(strangers.Contains(1));
  EXPECT_EQ(strangers.size(), 11u);
}

TEST(StrangersTest, WhereAllPlacesAreTakenTheOriginWithMostMakesRoom) {
  Strangers strangers({.max = 12, .origin_max = 10});
  for (PeerId peer = 1; peer <= 3; ++peer) strangers.Add(peer, "anna", 50);
  for (PeerId peer = 11; peer <= 19; ++peer) strangers.Add(peer, "mallory", 50);
  EXPECT_EQ(strangers.Add(4, "bert", 50), 11u);
  EXPECT_EQ(strangers.Add(5, "carl", 50), 12u);
  EXPECT_EQ(strangers.Evict(), 13u) << "no descriptor is left";
  EXPECT_EQ(strangers.size(), 11u);
  while (strangers.Evict().has_value()) {
  }
  EXPECT_EQ(strangers.size(), 0u);
  EXPECT_EQ(strangers.next_ns(), kNeverNs);
}

TEST(StrangersTest, EachHasItsTime) {
  Strangers strangers({});
  EXPECT_EQ(strangers.next_ns(), kNeverNs);
  strangers.Add(1, "a", 100);
  strangers.Add(2, "a", 50);
  strangers.Add(3, "b", 70);
  EXPECT_EQ(strangers.next_ns(), 50);
  EXPECT_FALSE(strangers.TakeLate(49).has_value());
  strangers.Extend(2, 80);
  strangers.Extend(9, 1);  // nobody
  strangers.Remove(9);
  EXPECT_EQ(strangers.TakeLate(90), 3u);
  EXPECT_EQ(strangers.TakeLate(90), 2u);
  EXPECT_FALSE(strangers.TakeLate(90).has_value());
  strangers.Remove(1);
  EXPECT_EQ(strangers.size(), 0u);
}

}  // namespace
}  // namespace pando
