#include "compute/owner/append_times.h"

#include "gtest/gtest.h"

namespace pando {
namespace {

constexpr Lsn kNext = 1000;

TEST(AppendTimesTest, ToldByTheNotesAroundIt) {
  AppendTimes times;
  EXPECT_EQ(times.After(5), 0);
  EXPECT_EQ(times.Before(50, kNext), kNext);
  times.Note(10, 1);
  times.Note(20, 1);  // nothing was appended meanwhile
  times.Note(30, 7);
  EXPECT_EQ(times.After(6), 20);
  EXPECT_EQ(times.After(7), 30);
  EXPECT_EQ(times.Before(20, kNext), 1u);
  EXPECT_EQ(times.Before(21, kNext), 7u);
  EXPECT_EQ(times.Before(31, kNext), kNext);
}

TEST(AppendTimesTest, WhatIsAppendedAgainIsAsOldAsAny) {
  AppendTimes times;
  times.Note(10, 1);
  times.Note(30, 7);
  times.NoteAppendedAgain();
  EXPECT_EQ(times.After(100), 10);
}

TEST(AppendTimesTest, WhatNobodyAsksForIsForgotten) {
  AppendTimes times;
  for (Lsn lsn = 1; lsn <= 9; lsn += 2) times.Note(static_cast<int64_t>(10 * lsn), lsn);
  times.Forget(/*below=*/6);
  EXPECT_EQ(times.After(4), 0);
  EXPECT_EQ(times.After(6), 50);
  EXPECT_EQ(times.Before(1, kNext), 5u);
  times.Forget(UINT64_MAX);
  EXPECT_EQ(times.After(kNext), 90);
}

// Nothing seems younger than it is, however many notes there were, and the newest stays.
TEST(AppendTimesTest, ManyNotesBecomeFewer) {
  AppendTimes times;
  constexpr Lsn kNotes = 10 * AppendTimes::kNotesMax;
  for (Lsn lsn = 1; lsn <= kNotes; ++lsn) times.Note(static_cast<int64_t>(10 * lsn), lsn);
  for (Lsn lsn = 1; lsn <= kNotes; ++lsn) {
    ASSERT_LE(times.After(lsn), static_cast<int64_t>(10 * lsn));
    ASSERT_GE(times.After(lsn), 10);
    ASSERT_GE(times.Before(static_cast<int64_t>(10 * lsn), kNext), lsn);
  }
}

}  // namespace
}  // namespace pando
