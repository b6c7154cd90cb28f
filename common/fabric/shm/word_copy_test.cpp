#include "common/fabric/shm/word_copy.h"

#include <array>
#include <cstring>
#include <vector>

#include "common/fabric/shm/timed_copy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(WordCopy, CopiesAnyRunOfWords) {
  alignas(64) std::array<std::byte, 320> shared, back;
  std::array<std::byte, 321> local;
  for (size_t i = 0; i < local.size(); ++i) local[i] = static_cast<std::byte>(i * 13 + 1);
  for (size_t offset = 0; offset < 128; offset += 8) {
    for (size_t bytes = 0; bytes + offset <= shared.size(); bytes += 8) {
      shared.fill(std::byte{0});
      back.fill(std::byte{0xcc});
      CopyToShared(shared.data() + offset, local.data() + 1,
                   bytes);  // private memory needs no alignment
      CopyFromShared(back.data(), shared.data() + offset, bytes);
      ASSERT_EQ(std::memcmp(back.data(), local.data() + 1, bytes), 0);
      ASSERT_TRUE(bytes == back.size() || back[bytes] == std::byte{0xcc});
      ASSERT_TRUE(offset == 0 || shared[offset - 1] == std::byte{0});
      ASSERT_TRUE(offset + bytes == shared.size() || shared[offset + bytes] == std::byte{0});
    }
  }
}

// A clock that advances by what the test says at each reading, then by 1 ns.
class ScriptedClock {
 public:
  explicit ScriptedClock(std::vector<int64_t> steps) : steps_(std::move(steps)) {}
  int64_t operator()() const {
    time_ns_ += readings_ < steps_.size() ? steps_[readings_] : 1;
    ++readings_;
    return time_ns_;
  }
  size_t readings() const { return readings_; }

 private:
  const std::vector<int64_t> steps_;
  mutable int64_t time_ns_ = 0;
  mutable size_t readings_ = 0;
};

class TimedCopyTest : public testing::Test {
 protected:
  TimedCopyTest() : to_(kBytes) {
    for (size_t i = 0; i < shared_.size(); ++i) shared_[i] = i * 77;
  }
  bool Copy(const ScriptedClock& clock, size_t offset, size_t bytes) {
    int64_t time_ns = 0;
    const auto* from = reinterpret_cast<const std::byte*>(shared_.data()) + offset;
    const bool done = TimedCopy::Copy(to_.data(), from, bytes, clock, &time_ns);
    EXPECT_TRUE(!done || std::memcmp(to_.data(), from, bytes) == 0);
    return done;
  }

  static constexpr size_t kBytes = 8 * TimedCopy::kSegmentBytes;
  static constexpr int64_t kLimit = TimedCopy::kWindowNs;
  alignas(64) std::array<uint64_t, kBytes / 8> shared_;
  std::vector<std::byte> to_;
};

TEST_F(TimedCopyTest, LooksAtTheClockOnceASegment) {
  const ScriptedClock a({}), b({}), c({});
  EXPECT_TRUE(Copy(a, 0, 1024));
  EXPECT_EQ(a.readings(), 1u);
  EXPECT_TRUE(Copy(b, 0, 1032));
  EXPECT_EQ(b.readings(), 2u);
  EXPECT_TRUE(Copy(c, 0, kBytes));
  EXPECT_EQ(c.readings(), 8u);
  for (size_t offset = 0; offset < 72; offset += 8) {
    EXPECT_TRUE(Copy(ScriptedClock({}), offset, 4096)) << offset;
  }
}

TEST_F(TimedCopyTest, AnInterruptedCopyIsMadeAgain) {
  const ScriptedClock at_once({kLimit}), late({kLimit + 1}), later({1, 1, 1, kLimit + 1});
  EXPECT_TRUE(Copy(at_once, 0, 1024));
  EXPECT_EQ(at_once.readings(), 1u);
  EXPECT_TRUE(Copy(late, 0, 1024));
  EXPECT_EQ(late.readings(), 2u);
  EXPECT_TRUE(Copy(later, 0, kBytes));
  EXPECT_EQ(later.readings(), 4u + 8u);
}

// A slot may lie on both sides of a segment's end.
TEST_F(TimedCopyTest, NeighboursAreTimedTogether) {
  const ScriptedClock slow({1, kLimit / 2, kLimit / 2 + 1}),
      slow_apart({1, kLimit - 1, 1, kLimit - 1});
  EXPECT_TRUE(Copy(slow, 0, 4 * 1024));
  EXPECT_EQ(slow.readings(), 3u + 4u);
  EXPECT_TRUE(Copy(slow_apart, 0, 4 * 1024));
  EXPECT_EQ(slow_apart.readings(), 4u) << "a long READ may take longer than a short one";
}

// Under a profiler or an emulator every copy is slow.
TEST_F(TimedCopyTest, ASlowCopyCountsWhenASecondLookAgrees) {
  const ScriptedClock slow(std::vector<int64_t>(1000, kLimit + 1));
  EXPECT_TRUE(Copy(slow, 0, 1024));
  EXPECT_EQ(slow.readings(), static_cast<size_t>(TimedCopy::kTriesMax) + 1);
}

TEST_F(TimedCopyTest, GivesUpOnMemoryThatChangesUnderEverySlowCopy) {
  int64_t time_ns = 0;
  size_t readings = 0;
  const auto clock = [&] {
    ++shared_[3];
    return static_cast<int64_t>(++readings) * (kLimit + 1);
  };
  const auto* from = reinterpret_cast<const std::byte*>(shared_.data());
  EXPECT_FALSE(TimedCopy::Copy(to_.data(), from, 64, clock, &time_ns));
  EXPECT_EQ(readings, 2 * static_cast<size_t>(TimedCopy::kTriesMax));
}

}  // namespace
}  // namespace pando
