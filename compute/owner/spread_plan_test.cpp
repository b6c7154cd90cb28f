// Members that spread what they have to do (rule O13), without a cluster: rounds of a quarter of a
// second, ranges of keys, loads by key.
#include "compute/owner/spread_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "common/base/random.h"

namespace pando {
namespace {

constexpr size_t kRangesMax = 64;  // of a member
constexpr int kStepsMax = 8;
constexpr int kHoldRounds = 8;

// Keys are places in [0, 1); `load` says how many operations are below one.
class Model {
 public:
  using Below = std::function<double(double)>;

  Model(size_t members, uint64_t seed) : plans_(members), loads_(members), random_(seed) {
    ranges_.push_back({0, 1, 0, -100});
  }
  void SetLoad(Below below) { below_ = std::move(below); }
  // A member that has nothing.
  void Join() {
    plans_.emplace_back();
    loads_.push_back(0);
  }
  // Returns how many ranges have moved.
  size_t Round() {
    ++round_;
    size_t moves = 0;
    std::fill(loads_.begin(), loads_.end(), 0);
    for (Range& range : ranges_) {
      // Counted: with an error, half of it new.
      range.rate += (Noisy(below_(range.high) - below_(range.low)) - range.rate) / 2;
      loads_[range.owner] += range.rate;
    }
    for (size_t member = 0; member < plans_.size(); ++member) moves += Spread(member);
    return moves;
  }
  double MaxOverMean() const {
    std::vector<double> loads(plans_.size(), 0);
    for (const Range& range : ranges_) loads[range.owner] += below_(range.high) - below_(range.low);
    const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
    return *std::max_element(loads.begin(), loads.end()) /
           (sum / static_cast<double>(loads.size()));
  }
  double MinOverMean() const {
    std::vector<double> loads(plans_.size(), 0);
    for (const Range& range : ranges_) loads[range.owner] += below_(range.high) - below_(range.low);
    const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
    return *std::min_element(loads.begin(), loads.end()) /
           (sum / static_cast<double>(loads.size()));
  }
  size_t ranges() const { return ranges_.size(); }

 private:
  struct Range {
    double low, high;
    size_t owner;
    int came;
    double rate = 0;
  };
  double Noisy(double load) { return load * (1 + 0.1 * (random_.NextDouble() - 0.5)); }
  size_t Spread(size_t member) {
    std::vector<double> others;
    std::vector<size_t> who;
    for (size_t i = 0; i < plans_.size(); ++i) {
      if (i == member) continue;
      others.push_back(loads_[i]);
      who.push_back(i);
    }
    if (!plans_[member].IsDue(loads_[member], others)) return 0;
    size_t moves = 0;
    for (int step = 0; step < kStepsMax; ++step) {
      std::vector<SpreadRange> own;
      std::vector<size_t> places;
      for (size_t i = 0; i < ranges_.size(); ++i) {
        if (ranges_[i].owner != member) continue;
        own.push_back({ranges_[i].rate, round_ - ranges_[i].came >= kHoldRounds, true});
        places.push_back(i);
      }
      for (SpreadRange& range : own) range.may_split = own.size() < kRangesMax;
      const SpreadStep next = SpreadPlan::Next(loads_[member], own, others, random_.NextDouble());
      if (next.kind == SpreadStep::Kind::kNothing) break;
      Range& range = ranges_[places[next.range]];
      if (next.kind == SpreadStep::Kind::kGive) {
        loads_[member] -= range.rate;
        others[next.to] += range.rate;
        loads_[who[next.to]] += range.rate;
        range.owner = who[next.to];
        range.came = round_;
        ++moves;
        continue;
      }
      // At a sampled place: somewhere near the one that was wanted.
      const double share = std::clamp(next.share + 0.1 * (random_.NextDouble() - 0.5), 0.05, 0.95);
      const double from = below_(range.low), to = below_(range.high);
      double low = range.low, high = range.high;
      for (int i = 0; i < 60; ++i) {
        const double middle = (low + high) / 2;
        (below_(middle) - from < share * (to - from) ? low : high) = middle;
      }
      Range upper = range;
      upper.low = range.high = high;
      upper.rate = range.rate * (1 - share);
      range.rate *= share;
      ranges_.push_back(upper);
    }
    return moves;
  }

  std::vector<SpreadPlan> plans_;
  std::vector<double> loads_;
  std::vector<Range> ranges_;
  Below below_;
  Random random_;
  int round_ = 0;
};

constexpr int kRoundsASecond = 4;

TEST(SpreadPlan, WhoJoinsHasItsShareWithinTenSeconds) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Model model(1, seed);
    model.SetLoad([](double key) { return 40'000 * key; });
    for (size_t members = 2; members <= 8; ++members) {
      model.Join();
      for (int round = 0; round < 10 * kRoundsASecond; ++round) model.Round();
      EXPECT_LE(model.MaxOverMean(), 1.25) << members << " members, seed " << seed;
      EXPECT_GE(model.MinOverMean(), 0.75) << members << " members, seed " << seed;
    }
  }
}

TEST(SpreadPlan, AHotspotThatMovesIsSpreadWithinFiveSeconds) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    Model model(4, seed);
    for (int place = 0; place < 20; ++place) {
      // Nine of ten operations are in a twentieth of the keys.
      const double begin = 0.95 * random.NextDouble();
      model.SetLoad([begin](double key) {
        return 4'000 * key + 36'000 * std::clamp((key - begin) / 0.05, 0.0, 1.0);
      });
      for (int round = 0; round < 20 * kRoundsASecond; ++round) {
        model.Round();
        if (round >= 5 * kRoundsASecond) {
          ASSERT_LE(model.MaxOverMean(), 1.5) << "place " << place << ", seed " << seed;
        }
      }
    }
    EXPECT_LE(model.ranges(), 4 * kRangesMax);
  }
}

TEST(SpreadPlan, WhatIsSpreadStays) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Model model(5, seed);
    model.SetLoad([](double key) { return 30'000 * std::pow(key, 0.3); });
    for (int round = 0; round < 10 * kRoundsASecond; ++round) model.Round();
    size_t moves = 0;
    for (int round = 0; round < 100 * kRoundsASecond; ++round) moves += model.Round();
    EXPECT_LE(moves, 3u) << "in a hundred seconds in which nothing has changed, seed " << seed;
  }
}

TEST(SpreadPlan, NobodyGivesWithoutAReason) {
  SpreadPlan plan;
  for (int round = 0; round < 10; ++round) {
    EXPECT_FALSE(plan.IsDue(1000, {})) << "it is alone";
    EXPECT_FALSE(plan.IsDue(50, {0, 0})) << "that is no load";
    EXPECT_FALSE(plan.IsDue(1200, {1000, 1000})) << "a little more than others";
    EXPECT_FALSE(plan.IsDue(1000, {0, 9000})) << "another one has too much";
  }
  EXPECT_FALSE(plan.IsDue(2000, {1000}));
  EXPECT_FALSE(plan.IsDue(2000, {1000}));
  EXPECT_TRUE(plan.IsDue(2000, {1000})) << "three times in a row";
}

// A key alone has more than can go: nothing is gained by giving it to somebody else.
TEST(SpreadPlan, ARangeThatCannotBeSplitStays) {
  const SpreadStep step =
      SpreadPlan::Next(10'000, {{.operations_per_s = 9'990, .may_split = false}}, {0}, 0.5);
  EXPECT_EQ(step.kind, SpreadStep::Kind::kNothing);
}

// What has just come stays a while, whatever it looks like.
TEST(SpreadPlan, WhatHasJustComeStays) {
  const std::vector<SpreadRange> ranges = {{.operations_per_s = 3'000, .may_go = false},
                                           {.operations_per_s = 7'000, .may_split = false}};
  EXPECT_EQ(SpreadPlan::Next(10'000, ranges, {0}, 0).kind, SpreadStep::Kind::kNothing);
}

// Who is next to nobody's load gets what it lacks, in proportion.
TEST(SpreadPlan, ThoseWithLessGetMore) {
  const std::vector<SpreadRange> ranges = {{.operations_per_s = 500}};
  size_t to_empty = 0;
  for (int i = 0; i < 100; ++i) {
    const SpreadStep step = SpreadPlan::Next(6'000, ranges, {0, 2'000, 4'000}, i / 100.0);
    ASSERT_EQ(step.kind, SpreadStep::Kind::kGive);
    EXPECT_NE(step.to, 2u) << "it has more than the mean";
    to_empty += step.to == 0 ? 1 : 0;
  }
  EXPECT_EQ(to_empty, 75u);
}

}  // namespace
}  // namespace pando
