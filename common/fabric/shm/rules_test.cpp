// Rule F7 switched off: a WRITE whose writer is killed is not made whole. Built with
// PANDO_BROKEN_VARIANTS, apart from the room's other tests.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "common/base/rule.h"
#include "common/fabric/shm/intent.h"
#include "common/fabric/shm/shm_region.h"
#include "common/fabric/shm/word_copy.h"
#include "gtest/gtest.h"

#ifndef PANDO_BROKEN_VARIANTS
#error "this test needs the variants"
#endif

namespace pando {
namespace {

constexpr uint32_t kWriteBytes = 128;
constexpr uint64_t kOldWord = 0x1111111111111111, kNewWord = 0x2222222222222222;

class ShmRulesTest : public testing::Test {
 protected:
  enum class Seen { kOld, kNew, kTorn, kMayNotTrace };

  ShmRulesTest() {
    auto region = ShmRegion::Create(*ShmGeometry::Create(1 << 20, 4096, kWriteBytes, 1), false, -1);
    EXPECT_TRUE(region.ok()) << region.status();
    region_ = *std::move(region);
    data_.fill(kNewWord);
    verb_.kind = VerbKind::kWrite;
    verb_.bytes = kWriteBytes;
    verb_.piece_count = 1;
    verb_.pieces[0] = {reinterpret_cast<std::byte*>(data_.data()), kWriteBytes, 0};
  }

  // A child process WRITEs, is killed after so many instructions, and the server looks after it.
  // `ended`: it was through by then.
  Seen KillAfter(int steps, bool* ended) {
    for (uint32_t at = 0; at < kWriteBytes; at += kWordBytes) StoreWord(Target() + at, kOldWord);
    const pid_t child = fork();
    if (child == 0) {
      if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(1);
      raise(SIGSTOP);
      ExecuteWithIntent(region_.intent(0), verb_, Target());
      raise(SIGSTOP);
      _exit(0);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    if (!WIFSTOPPED(status)) return Seen::kMayNotTrace;
    *ended = false;
    for (int done = 0; done < steps && !*ended; ++done) {
      EXPECT_EQ(ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr), 0);
      EXPECT_EQ(waitpid(child, &status, 0), child);
      *ended = !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTRAP;  // the second SIGSTOP
    }
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(CompleteIntent(region_, 0).ok());
    uint32_t words = 0;
    for (uint32_t at = 0; at < kWriteBytes; at += kWordBytes) {
      words += LoadWord(Target() + at) == kNewWord ? 1 : 0;
    }
    return words == 0 ? Seen::kOld : words == kWriteBytes / kWordBytes ? Seen::kNew : Seen::kTorn;
  }
  std::byte* Target() { return region_.space(MemorySpace::kMain); }

  // How often a WRITE is torn, killed after every third instruction; -1: no tracing here.
  int CountTorn() {
    int torn = 0;
    bool ended = false;
    for (int steps = 0; !ended; steps += 3) {
      const Seen seen = KillAfter(steps, &ended);
      if (seen == Seen::kMayNotTrace) return -1;
      torn += seen == Seen::kTorn ? 1 : 0;
    }
    return torn;
  }

  ShmRegion region_;
  std::array<uint64_t, kWriteBytes / kWordBytes> data_;
  Verb verb_;
};

TEST_F(ShmRulesTest, F7) {
  const int with = CountTorn();
  if (with < 0) GTEST_SKIP() << "ptrace is not permitted here";
  EXPECT_EQ(with, 0);
  BreakRule(Rule::kF7);
  EXPECT_GT(CountTorn(), 0);
  BreakRule(Rule::kNone);
}

}  // namespace
}  // namespace pando
