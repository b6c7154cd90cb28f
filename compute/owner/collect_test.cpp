#include "compute/owner/collect.h"

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/sched/fake_endpoint.h"

namespace pando {
namespace {

constexpr size_t kCollected = 1'000;

std::string CollectKey(size_t n) {
  std::string key = std::to_string(n);
  return key.insert(0, 8 - key.size(), '0');
}

class CollectTest : public testing::Test {
 protected:
  CollectTest()
      : session_(std::make_unique<FakeEndpoint>(FakeEndpoint::Mode::kImmediate), &epochs_, 8, 1),
        range_({}, OwnRange::State::kServing, std::make_shared<Partition>()) {
    for (size_t n = 0; n < kCollected; ++n) range_.partition.Put(CollectKey(n), "v", n + 1);
  }
  std::string Collect(const CollectLimits& limits, std::string from = "", std::string to = "") {
    std::string next;
    session_.scheduler().Spawn([&] {
      OperationContext context(&session_, kNeverNs);
      next = CollectDirty(context, &range_, kCollected, from, to, limits, &items_);
      done_ = true;
    });
    session_.scheduler().Drain();
    return next;
  }

  EpochDomain epochs_;
  SessionContext session_;
  OwnRange range_;
  std::vector<FlushItem> items_;
  bool done_ = false;
};

TEST_F(CollectTest, OthersAreHeldUpByAFewRecords) {
  // What others find collected when it is their turn.
  std::vector<size_t> seen;
  session_.scheduler().Spawn([&] {
    while (!done_) {
      {
        std::lock_guard lock(range_.partition.mutex());
        seen.push_back(items_.size());
      }
      session_.scheduler().Yield();
    }
  });
  EXPECT_EQ(Collect({}), "");
  ASSERT_EQ(items_.size(), kCollected);
  for (size_t n = 0; n < kCollected; ++n) EXPECT_EQ(items_[n].key, CollectKey(n));
  seen.push_back(kCollected);
  for (size_t i = 1; i < seen.size(); ++i) EXPECT_LE(seen[i] - seen[i - 1], 8u);
}

TEST_F(CollectTest, EndsAtItsLimitsAndGoesOnThere) {
  EXPECT_EQ(Collect({.records_max = 100}), CollectKey(100));
  EXPECT_EQ(items_.size(), 100u);
  // What is being flushed is looked at in vain.
  EXPECT_EQ(Collect({.looks_max = 65}, ""), CollectKey(108));
  EXPECT_EQ(items_.size(), 108u);
  EXPECT_EQ(Collect({}, CollectKey(900), CollectKey(950)), "");
  EXPECT_EQ(items_.size(), 158u);
  EXPECT_EQ(items_.back().key, CollectKey(949));
  EXPECT_EQ(Collect({.below = 300}), "");
  EXPECT_EQ(items_.size(), 158u + 299 - 108);
}

}  // namespace
}  // namespace pando
