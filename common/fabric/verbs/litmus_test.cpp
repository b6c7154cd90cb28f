// What a device has to do for Pando, whatever else it does. Needs an RDMA device.
#include "common/fabric/verbs/litmus.h"

#include <gtest/gtest.h>

#include "common/fabric/verbs/fake_device_memory.h"
#include "common/fabric/verbs/litmus_verdict.h"
#include "common/fabric/verbs/verbs_test_cluster.h"

namespace pando {
namespace {

class LitmusTest : public VerbsDeviceTest {
 protected:
  // Tests so many locks.
  static absl::StatusOr<LitmusResult> Run(const LitmusOptions& options, size_t locks) {
    absl::StatusOr<LitmusResult> result = RunLitmus(options);
    EXPECT_TRUE(result.ok()) << result.status();
    if (result.ok()) {
      EXPECT_EQ(result->locks.size(), locks);
    }
    return result;
  }
  static void ExpectSoundLock(const LockLitmus& lock, bool on_chip, ReleaseVerb release) {
    EXPECT_EQ(lock.on_chip, on_chip);
    EXPECT_EQ(lock.release, release);
    EXPECT_GT(lock.releases, 0u);
    EXPECT_EQ(lock.wrong_cas, 0u);
    if (release == ReleaseVerb::kCompareSwap) {
      EXPECT_EQ(lock.undone, 0u);
    }
  }
};

TEST_F(LitmusTest, ReleasesByCasHold) {
  FakeDeviceMemory none(0);
  const auto result = Run({.test_ms = 300, .device_memory_calls = &none}, 2);
  ASSERT_FALSE(HasFailure());
  ExpectSoundLock(result->locks[0], false, ReleaseVerb::kWrite);
  ExpectSoundLock(result->locks[1], false, ReleaseVerb::kCompareSwap);
  ASSERT_EQ(result->releases.size(), 1u);
  EXPECT_GT(result->releases[0].taken, 0u);
  EXPECT_EQ(result->releases[0].stale, 0u);
  EXPECT_EQ(result->releases[0].release, ReleaseVerb::kCompareSwap);
  ASSERT_EQ(result->lines.size(), 2u);
  EXPECT_EQ(result->lines[0].bytes, 64u);
  EXPECT_EQ(result->lines[1].bytes, 1024u);
  for (const LinesLitmus& lines : result->lines) {
    EXPECT_GT(lines.writes, 0u);
    EXPECT_EQ(lines.lines, lines.reads * lines.bytes / 64);
    EXPECT_LE(lines.torn, lines.lines);
  }
  EXPECT_TRUE(JudgeLitmus(*result).contradiction.ok()) << DescribeLitmus(*result);
}

TEST_F(LitmusTest, LocksInDeviceMemoryAreTestedToo) {
  FakeDeviceMemory calls(4096);
  const auto result = Run({.test_ms = 100, .device_memory_calls = &calls}, 4);
  ASSERT_FALSE(HasFailure());
  ExpectSoundLock(result->locks[2], true, ReleaseVerb::kWrite);
  ExpectSoundLock(result->locks[3], true, ReleaseVerb::kCompareSwap);
  ASSERT_EQ(result->releases.size(), 2u);
  EXPECT_TRUE(result->releases[1].on_chip);
  EXPECT_GT(result->releases[1].taken, 0u);
  EXPECT_EQ(result->releases[1].stale, 0u);
  EXPECT_EQ(calls.frees, calls.allocations);
  EXPECT_FALSE(result->on_chip_refused);
}

TEST_F(LitmusTest, DeviceMemoryThatOthersHaveIsSaidToBeTaken) {
  FakeDeviceMemory taken(4096);
  taken.fail_allocate = true;
  const auto result = RunLitmus({.test_ms = 20, .device_memory_calls = &taken});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->locks.size(), 2u);
  EXPECT_TRUE(result->on_chip_refused);
}

TEST_F(LitmusTest, ADeviceThatIsNotThereIsNotFound) {
  EXPECT_EQ(RunLitmus({.device = {.device = "no-such"}}).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace pando
