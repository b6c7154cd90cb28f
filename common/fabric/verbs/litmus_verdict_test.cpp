#include "common/fabric/verbs/litmus_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pando {
namespace {

using testing::HasSubstr;
using testing::Not;

LockLitmus Lock(bool on_chip, ReleaseVerb release, uint64_t undone = 0) {
  return {.on_chip = on_chip,
          .release = release,
          .releases = 31'402,
          .undone = undone,
          .failed_cas = 1'234'567};
}

// A NIC where nothing was seen.
LitmusResult Nic(bool on_chip) {
  LitmusResult result;
  result.device = "mlx5_0 port 1, GID 10.0.0.1, MTU 4096";
  for (const bool chip : {false, true}) {
    if (chip && !on_chip) continue;
    result.locks.push_back(Lock(chip, ReleaseVerb::kWrite));
    result.locks.push_back(Lock(chip, ReleaseVerb::kCompareSwap));
  }
  result.releases = {{.on_chip = false, .release = ReleaseVerb::kCompareSwap, .taken = 5'000}};
  if (on_chip) {
    result.releases.push_back({.on_chip = true, .release = ReleaseVerb::kWrite, .taken = 6'000});
  }
  result.lines = {{.bytes = 64, .writes = 10, .reads = 20, .lines = 20},
                  {.bytes = 1024, .writes = 10, .reads = 20, .mixed = 3, .lines = 320}};
  return result;
}

TEST(LitmusVerdict, ANicWithMemoryOfItsOwnMayReleaseByWrite) {
  const LitmusVerdict verdict = JudgeLitmus(Nic(true));
  EXPECT_TRUE(verdict.write_unlock);
  EXPECT_TRUE(verdict.lines_atomic);
  EXPECT_TRUE(verdict.contradiction.ok()) << verdict.contradiction;
  EXPECT_THAT(DescribeLitmus(Nic(true)), HasSubstr("prove nothing"));
}

TEST(LitmusVerdict, LocksInHostMemoryAreReleasedByCas) {
  LitmusResult result = Nic(false);
  EXPECT_FALSE(JudgeLitmus(result).write_unlock);
  EXPECT_TRUE(JudgeLitmus(result).lines_atomic);
  // Nobody relies on what was undone there.
  result.locks[0].undone = 17;
  EXPECT_TRUE(JudgeLitmus(result).contradiction.ok());
  EXPECT_THAT(DescribeLitmus(result), HasSubstr("31,402 releases by WRITE, 17 undone"));
  EXPECT_THAT(DescribeLitmus(result), HasSubstr("1,234,567 CAS of others failed"));
  EXPECT_THAT(DescribeLitmus(result), HasSubstr("write_unlock no: a CAS that failed has undone"));
  // Nor does it count where the lock table lies on the NIC.
  result = Nic(true);
  result.locks[0].undone = 17;
  EXPECT_TRUE(JudgeLitmus(result).write_unlock);
}

TEST(LitmusVerdict, NicMemoryThatIsTakenIsNotPassedOffAsNone) {
  LitmusResult result = Nic(false);
  EXPECT_THAT(DescribeLitmus(result), HasSubstr("no lock in NIC memory: it has none"));
  result.on_chip_refused = true;
  EXPECT_THAT(DescribeLitmus(result), HasSubstr("were not tested"));
  EXPECT_THAT(DescribeLitmus(result), HasSubstr("end pando-memory"));
  EXPECT_THAT(DescribeLitmus(result), Not(HasSubstr("it has none")));
  EXPECT_FALSE(JudgeLitmus(result).write_unlock) << "nothing was seen of it";
}

TEST(LitmusVerdict, ReleasesUndoneInNicMemoryNeedAnotherStart) {
  LitmusResult result = Nic(true);
  result.locks[2].undone = 1;
  const LitmusVerdict verdict = JudgeLitmus(result);
  EXPECT_FALSE(verdict.write_unlock);
  EXPECT_EQ(verdict.contradiction.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(verdict.contradiction.message()), HasSubstr("--nodevice_memory"));
}

TEST(LitmusVerdict, DataThatAreOlderThanTheirLocksReleaseAreNotPutUpWith) {
  LitmusResult result = Nic(true);
  EXPECT_THAT(DescribeLitmus(result),
              HasSubstr("lock in NIC memory, released by WRITE: taken 6,000 times, 0 found older"));
  result.releases[1].stale = 1;
  EXPECT_EQ(JudgeLitmus(result).contradiction.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(JudgeLitmus(result).contradiction.message()),
              HasSubstr("--nodevice_memory"));
  result.releases[0].stale = 1;
  EXPECT_THAT(std::string(JudgeLitmus(result).contradiction.message()), HasSubstr("do not use it"));
}

TEST(LitmusVerdict, TornLinesAndWrongCasRuleANicOut) {
  LitmusResult torn = Nic(false);
  torn.lines[1].torn = 1;
  EXPECT_FALSE(JudgeLitmus(torn).lines_atomic);
  EXPECT_FALSE(JudgeLitmus(torn).contradiction.ok());
  LitmusResult undone = Nic(false);
  undone.locks[1].undone = 1;
  EXPECT_FALSE(JudgeLitmus(undone).contradiction.ok());
  LitmusResult wrong = Nic(false);
  wrong.locks[0].wrong_cas = 1;
  EXPECT_FALSE(JudgeLitmus(wrong).contradiction.ok());
  EXPECT_THAT(DescribeLitmus(wrong), HasSubstr("1 CAS were wrong"));
}

TEST(LitmusVerdict, ASoftwareDeviceIsNotTrustedForHavingShownNothing) {
  LitmusResult result = Nic(false);
  result.is_software = true;
  EXPECT_FALSE(JudgeLitmus(result).write_unlock);
  EXPECT_FALSE(JudgeLitmus(result).lines_atomic);
  result.locks[0].undone = 13;
  result.lines[0].torn = 1'628;
  EXPECT_TRUE(JudgeLitmus(result).contradiction.ok());
  EXPECT_THAT(DescribeLitmus(result), HasSubstr("lines_atomic no: lines were torn"));
  // Its releases by CAS have to hold all the same.
  result.locks[1].undone = 1;
  EXPECT_FALSE(JudgeLitmus(result).contradiction.ok());
  EXPECT_THAT(DescribeLitmus(result), Not(HasSubstr("write_unlock yes")));
}

}  // namespace
}  // namespace pando
