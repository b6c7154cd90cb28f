#include "compute/cache/value_places.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace pando {
namespace {

constexpr size_t kPlaceBucketBytes = 128, kPlacesOfBucket = 5;

uint64_t HashOfPlaceKey(uint64_t n, uint32_t tree = 1) {
  return ValuePlaces::HashOf(tree, absl::StrCat("key", n));
}

// All of it says which one it is.
CellReference PlaceCellNumber(uint64_t n) {
  return {.cell = {RemoteAddress(static_cast<ServerId>(n % 7 + 1), (n + 1) * 64),
                   static_cast<uint32_t>(n * 3)},
          .value_bytes = static_cast<uint32_t>(n % (kLargeValueBytesMax + 1)),
          .checksum = static_cast<uint32_t>(n * 7)};
}

uint64_t PlaceNumberOf(const CellReference& cell) { return cell.cell.address.offset() / 64 - 1; }

// How many of so many are tried, where that share of them is right.
uint64_t TriedOf(ValuePlaces* places, uint64_t count, uint64_t right_of_100) {
  uint64_t tried = 0;
  for (uint64_t n = 0; n < count; ++n) {
    if (!places->Try(HashOfPlaceKey(0)).has_value()) continue;
    places->NoteTried(tried++ % 100 < right_of_100);
  }
  return tried;
}

TEST(ValuePlaces, WhereMostAreWrongFewAreTriedUntilMostAreRight) {
  ValuePlaces places(1 << 20);
  places.Remember(HashOfPlaceKey(0), PlaceCellNumber(0));
  EXPECT_EQ(TriedOf(&places, 5'000, 100), 5'000u);
  EXPECT_EQ(TriedOf(&places, 5'000, 50), 5'000u) << "half of them are worth it";
  EXPECT_LT(TriedOf(&places, 5'000, 0), 1'300u);
  EXPECT_LE(TriedOf(&places, 1'600, 0), 100u);
  EXPECT_GT(TriedOf(&places, 5'000, 100), 4'500u);
  EXPECT_EQ(TriedOf(&places, 5'000, 100), 5'000u);
}

TEST(ValuePlaces, GivesWhatItWasTold) {
  ValuePlaces places(1 << 20);
  for (uint64_t n = 0; n < 1000; ++n) places.Remember(HashOfPlaceKey(n), PlaceCellNumber(n));
  for (uint64_t n = 0; n < 1000; ++n)
    ASSERT_EQ(places.Find(HashOfPlaceKey(n)), PlaceCellNumber(n)) << n;
  EXPECT_EQ(places.Find(HashOfPlaceKey(1000)), std::nullopt);
  EXPECT_EQ(places.Find(HashOfPlaceKey(0, /*tree=*/2)), std::nullopt);
  EXPECT_NEAR(static_cast<double>(places.bytes()), 1000.0 * kPlaceBucketBytes / kPlacesOfBucket,
              30);
}

TEST(ValuePlaces, TheLongestValueAndTheLastAddressComeBack) {
  ValuePlaces places(kPlaceBucketBytes);
  const CellReference cell = {
      .cell = {RemoteAddress(0xffff, RemoteAddress::kOffsetMask - 63), UINT32_MAX},
      .value_bytes = kLargeValueBytesMax,
      .checksum = UINT32_MAX};
  places.Remember(HashOfPlaceKey(1), cell);
  EXPECT_EQ(places.Find(HashOfPlaceKey(1)), cell);
}

TEST(ValuePlaces, ALaterPlaceReplacesAnEarlierOneAndAForgottenOneIsGone) {
  ValuePlaces places(1 << 16);
  places.Remember(HashOfPlaceKey(1), PlaceCellNumber(1));
  places.Remember(HashOfPlaceKey(2), PlaceCellNumber(2));
  places.Remember(HashOfPlaceKey(1), PlaceCellNumber(3));
  EXPECT_EQ(places.Find(HashOfPlaceKey(1)), PlaceCellNumber(3));
  places.Forget(HashOfPlaceKey(1));
  places.Forget(HashOfPlaceKey(1));
  EXPECT_EQ(places.Find(HashOfPlaceKey(1)), std::nullopt);
  EXPECT_EQ(places.Find(HashOfPlaceKey(2)), PlaceCellNumber(2));
  EXPECT_EQ(places.bytes(), kPlaceBucketBytes / kPlacesOfBucket);
}

TEST(ValuePlaces, WhatIsFoundStaysAndWhatIsNotGoes) {
  ValuePlaces places(kPlaceBucketBytes);
  for (uint64_t n = 0; n < kPlacesOfBucket; ++n)
    places.Remember(HashOfPlaceKey(n), PlaceCellNumber(n));
  for (uint64_t n = 100; n < 200; ++n) {
    ASSERT_EQ(places.Find(HashOfPlaceKey(3)), PlaceCellNumber(3)) << n;
    places.Remember(HashOfPlaceKey(n), PlaceCellNumber(n));
    ASSERT_EQ(places.Find(HashOfPlaceKey(n)), PlaceCellNumber(n));
    ASSERT_EQ(places.bytes(), kPlacesOfBucket * (kPlaceBucketBytes / kPlacesOfBucket) + 3);
  }
}

TEST(ValuePlaces, NothingIsRememberedWithoutRoom) {
  ValuePlaces places(kPlaceBucketBytes - 1);
  EXPECT_FALSE(places.enabled());
  places.Remember(HashOfPlaceKey(1), PlaceCellNumber(1));
  places.Forget(HashOfPlaceKey(1));
  EXPECT_EQ(places.Find(HashOfPlaceKey(1)), std::nullopt);
  EXPECT_EQ(places.bytes(), 0u);
}

TEST(ValuePlaces, WhatIsFoundBesideWritersIsOfOneOfThem) {
  constexpr uint64_t kKeys = 8, kTurns = 40'000;
  ValuePlaces places(kPlaceBucketBytes);
  std::atomic<uint64_t> found{0}, wrong{0};
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint64_t turn = 0; turn < kTurns; ++turn) {
        const uint64_t key = (turn * 5 + t) % kKeys;
        const uint64_t hash = HashOfPlaceKey(key);
        if (turn % 4 == t) places.Remember(hash, PlaceCellNumber(turn / kKeys * kKeys + key));
        if (turn % 64 == t) places.Forget(hash);
        const auto cell = places.Find(hash);
        if (!cell.has_value()) continue;
        found.fetch_add(1, std::memory_order_relaxed);
        const uint64_t number = PlaceNumberOf(*cell);
        if (number % kKeys != key || *cell != PlaceCellNumber(number)) {
          wrong.fetch_add(1, std::memory_order_relaxed);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0u);
  EXPECT_GT(found.load(), kTurns / 10);
  EXPECT_LE(places.bytes(), kPlaceBucketBytes);
}

}  // namespace
}  // namespace pando
