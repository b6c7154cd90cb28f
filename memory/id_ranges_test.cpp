#include "memory/id_ranges.h"

#include <set>

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace pando::memory {
namespace {

TEST(IdRangesTest, AgreesWithASetAndJoinsNeighbours) {
  Random random(1);
  IdRanges ranges;
  std::set<uint32_t> model;
  for (int i = 0; i < 2000; ++i) {
    const auto id = static_cast<uint32_t>(random.Uniform(500));
    ranges.Insert(id);
    model.insert(id);
    const auto probe = static_cast<uint32_t>(random.Uniform(502));
    ASSERT_EQ(ranges.Contains(probe), model.contains(probe)) << probe;
  }
  for (uint32_t id = 0; id < 500; ++id) ranges.Insert(id);
  EXPECT_EQ(ranges.range_count(), 1u);
  ranges.Insert(UINT32_MAX);
  EXPECT_TRUE(ranges.Contains(UINT32_MAX));
  EXPECT_FALSE(ranges.Contains(UINT32_MAX - 1));
}

}  // namespace
}  // namespace pando::memory
