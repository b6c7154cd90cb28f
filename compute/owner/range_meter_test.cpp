#include "compute/owner/range_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/random.h"

namespace pando {
namespace {

constexpr int64_t kTickNs = kSecondNs / 4;

TEST(RangeMeter, CountsOperationsASecond) {
  RangeMeter meter;
  int64_t now_ns = kSecondNs;
  meter.Tick(now_ns);
  for (int tick = 0; tick < 20; ++tick) {
    for (int i = 0; i < 250; ++i) meter.Note("key");
    meter.Tick(now_ns += kTickNs);
  }
  EXPECT_NEAR(meter.operations_per_s(), 1000, 1);
  for (int tick = 0; tick < 20; ++tick) meter.Tick(now_ns += kTickNs);
  EXPECT_LT(meter.operations_per_s(), 1);
}

// One of 32 operations stands for all of them, here in turns with others that are noted one by one.
TEST(RangeMeter, OneMayStandForMany) {
  RangeMeter meter;
  int64_t now_ns = kSecondNs;
  meter.Tick(now_ns);
  for (int tick = 0; tick < 20; ++tick) {
    for (int i = 0; i < 50; ++i) {
      meter.Note("b", 32);
      for (int single = 0; single < 32; ++single) meter.Note("a");
    }
    meter.Tick(now_ns += kTickNs);
  }
  EXPECT_NEAR(meter.operations_per_s(), 50 * 64 * 4, 10);
  const auto border = meter.ChooseBorder("", 0.5);
  ASSERT_TRUE(border.has_value());
  EXPECT_EQ(border->key, "b");
  EXPECT_NEAR(border->below, 0.5, 0.25);
}

// What a range is said to come with counts until it is known better.
TEST(RangeMeter, ExpectsWhatItWasTold) {
  RangeMeter meter;
  meter.Expect(500);
  meter.Tick(kSecondNs);
  EXPECT_EQ(meter.operations_per_s(), 500);
  meter.Tick(kSecondNs + kTickNs);
  EXPECT_EQ(meter.operations_per_s(), 250);
}

TEST(RangeMeter, WithoutSamplesThereIsNoBorder) {
  RangeMeter meter;
  EXPECT_FALSE(meter.ChooseBorder("", 0.5).has_value());
  meter.Note("a");
  meter.Tick(kSecondNs);
  EXPECT_FALSE(meter.ChooseBorder("", 0.5).has_value());
  for (char key = 'a'; key < 'd'; ++key) meter.Note(std::string(1, key));
  EXPECT_FALSE(meter.ChooseBorder("", 0.5).has_value()) << "too few";
}

// Fills the samples with what is noted in a tick.
void Fill(RangeMeter* meter, const std::vector<std::string>& keys) {
  for (int tick = 0; tick < 6; ++tick) {
    for (const std::string& key : keys) meter->Note(key);
    meter->Tick(kSecondNs + tick * kTickNs);
  }
}

TEST(RangeMeter, TheBorderIsWhereTheShareIs) {
  Random random(1);
  for (const double share : {0.1, 0.3, 0.5, 0.8}) {
    RangeMeter meter;
    std::vector<std::string> keys;
    for (int i = 0; i < 20'000; ++i) {
      keys.push_back(std::string(1, static_cast<char>(random.Uniform(256))) +
                     std::string(1, static_cast<char>(random.Uniform(256))));
    }
    Fill(&meter, keys);
    const auto border = meter.ChooseBorder("", share);
    ASSERT_TRUE(border.has_value());
    const double place = static_cast<uint8_t>(border->key[0]) / 256.0;
    const double miss = std::min(std::abs(place - share), std::abs(1 - place - share));
    EXPECT_LT(miss, 0.2) << "with 64 samples";
    EXPECT_NEAR(border->below, place, 0.2);
  }
}

// The range's own lower border is none, and neither is a key alone.
TEST(RangeMeter, ABorderDividesTheRange) {
  RangeMeter meter;
  Fill(&meter, std::vector<std::string>(1000, "hot"));
  EXPECT_FALSE(meter.ChooseBorder("", 0.5).has_value());
  EXPECT_FALSE(meter.ChooseBorder("hot", 0.5).has_value());
  RangeMeter two;
  std::vector<std::string> keys(1000, std::string(1, '\0'));
  for (size_t i = 0; i < keys.size(); i += 4) keys[i] = std::string(240, '\xff');
  Fill(&two, keys);
  const auto border = two.ChooseBorder(std::string(1, '\0'), 0.5);
  ASSERT_TRUE(border.has_value());
  EXPECT_EQ(border->key, std::string(240, '\xff'));
  EXPECT_FALSE(two.ChooseBorder(std::string(240, '\xff'), 0.5).has_value());
}

TEST(RangeMeter, PartsKnowWhatTheWholeKnew) {
  RangeMeter meter;
  std::vector<std::string> keys;
  for (int i = 0; i < 4'000; ++i) keys.push_back(std::string(1, static_cast<char>('a' + i % 20)));
  Fill(&meter, keys);
  const double rate = meter.operations_per_s();
  const auto border = meter.ChooseBorder("", 0.25);
  ASSERT_TRUE(border.has_value());
  RangeMeter lower, upper;
  meter.DivideAt(border->key, &lower, &upper);
  EXPECT_NEAR(lower.operations_per_s(), rate * border->below, 1);
  EXPECT_NEAR(lower.operations_per_s() + upper.operations_per_s(), rate, 1);
  const auto next = (border->below > 0.5 ? lower : upper).ChooseBorder("", 0.5);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->key<border->key, border->below> 0.5) << "it is in its own part";
}

}  // namespace
}  // namespace pando
