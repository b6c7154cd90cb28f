#include "compute/owner/lending.h"

#include <gtest/gtest.h>

#include "common/base/clock.h"

namespace pando {
namespace {

constexpr int64_t kLease = 4 * kMillisecondNs, kAfter = 250 * kMillisecondNs;
constexpr int64_t kStart = 1000 * kMillisecondNs;

// Looked at as often as a member does; true: it would be flushed.
bool Pass(Lending* lending, int64_t* now_ns, int64_t for_ns, bool is_clean = true) {
  bool flushes = false;
  for (const int64_t end = *now_ns + for_ns; *now_ns < end; *now_ns += kAfter) {
    flushes = lending->Look(*now_ns, kAfter, is_clean) || flushes;
  }
  return flushes;
}

TEST(Lending, OfWhatNobodyWritesFor) {
  Lending lending;
  int64_t now = kStart;
  EXPECT_FALSE(lending.Lend(now, kLease, kAfter, /*is_clean=*/true)) << "it has just come";
  Pass(&lending, &now, 3 * kAfter);
  EXPECT_TRUE(lending.Lend(now, kLease, kAfter, /*is_clean=*/true));
  EXPECT_FALSE(lending.Lend(now, kLease, kAfter, /*is_clean=*/false));
  EXPECT_FALSE(lending.Lend(now, kLease, /*after_ns=*/-1, /*is_clean=*/true));
  EXPECT_EQ(lending.until_ns(), now + Lending::WaitNs(kLease));
  // A write waits, and nothing is lent meanwhile.
  EXPECT_FALSE(lending.MayWrite());
  EXPECT_FALSE(lending.Lend(now, kLease, kAfter, /*is_clean=*/true));
  EXPECT_FALSE(lending.MayWrite());
  lending.Over();
  EXPECT_TRUE(lending.MayWrite());
  EXPECT_FALSE(lending.Lend(now, kLease, kAfter, /*is_clean=*/true)) << "it was just written";
}

TEST(Lending, WheneverItIsClean) {
  Lending lending;
  EXPECT_TRUE(lending.Lend(kStart, kLease, /*after_ns=*/0, /*is_clean=*/true));
  EXPECT_TRUE(lending.Lend(kStart + 5, kLease, /*after_ns=*/0, /*is_clean=*/true));
  EXPECT_EQ(lending.until_ns(), kStart + 5 + Lending::WaitNs(kLease));
  // Readers that come all the time do not keep a write waiting.
  EXPECT_FALSE(lending.MayWrite());
  EXPECT_FALSE(lending.Lend(kStart + 6, kLease, /*after_ns=*/0, /*is_clean=*/true));
  EXPECT_EQ(lending.until_ns(), kStart + 5 + Lending::WaitNs(kLease));
  // One that has given up keeps no reader waiting.
  lending.Look(lending.until_ns(), /*after_ns=*/0, /*is_clean=*/true);
  EXPECT_TRUE(lending.Lend(kStart + kAfter, kLease, /*after_ns=*/0, /*is_clean=*/true));
}

TEST(Lending, IsFlushedIfSomebodyHasAsked) {
  Lending lending;
  int64_t now = kStart;
  EXPECT_FALSE(Pass(&lending, &now, 4 * kAfter, /*is_clean=*/false)) << "nobody wants it";
  EXPECT_FALSE(lending.Lend(now, kLease, kAfter, /*is_clean=*/false));
  EXPECT_TRUE(lending.Look(now, kAfter, /*is_clean=*/false));
  EXPECT_FALSE(lending.Look(now, kAfter, /*is_clean=*/false)) << "once each time that one asks";
  EXPECT_FALSE(lending.Look(now, kAfter, /*is_clean=*/true));
  EXPECT_TRUE(lending.Lend(now, kLease, kAfter, /*is_clean=*/true));
}

// How long nobody writes before it is lent, after so many writes that had to wait.
int64_t QuietNs(Lending* lending, int64_t* now_ns) {
  const int64_t from_ns = *now_ns;
  while (!lending->Lend(*now_ns, kLease, kAfter, /*is_clean=*/true)) {
    lending->Look(*now_ns, kAfter, /*is_clean=*/true);
    *now_ns += kAfter;
  }
  return *now_ns - from_ns;
}

TEST(Lending, WritesThatComeSoonAfterWaitLessAndLess) {
  Lending lending;
  int64_t now = kStart, quiet = 0;
  for (int i = 0; i < 20; ++i) {
    const int64_t next = QuietNs(&lending, &now);
    EXPECT_GE(next, quiet);
    quiet = next;
    EXPECT_FALSE(lending.MayWrite());
    lending.NoteWait(now, kLease);
    lending.NoteWait(now, kLease);  // another one, at the same time
    lending.Over();
  }
  EXPECT_GE(quiet, 256 * kAfter);
  EXPECT_LE(quiet, 260 * kAfter);
  // Once it was lent for long it is lent sooner again.
  for (int i = 0; i < 8; ++i) {
    QuietNs(&lending, &now);
    Pass(&lending, &now, 2 * kAfter);
    EXPECT_TRUE(lending.Lend(now, kLease, kAfter, /*is_clean=*/true));
    EXPECT_FALSE(lending.MayWrite());
    lending.NoteWait(now, kLease);
    lending.Over();
  }
  EXPECT_LE(QuietNs(&lending, &now), 3 * kAfter);
}

}  // namespace
}  // namespace pando
