#include "memory/id_source.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace pando::memory {
namespace {

// What a registry keeps; it may be away.
struct Kept {
  uint32_t mark = 0;
  bool away = false;
  int asked = 0;
  KeepIdMark Keep() {
    return [this](uint32_t next) -> absl::Status {
      ++asked;
      if (away) return absl::UnavailableError("nobody answers");
      EXPECT_GE(next, mark);
      mark = next;
      return absl::OkStatus();
    };
  }
};

TEST(IdSourceTest, NoIdIsGivenOutTwiceByLivesThatEndAnywhere) {
  Kept kept{.mark = 5};
  std::set<uint32_t> given;
  for (int life = 0; life < 50; ++life) {
    IdSource ids(kept.mark, kept.Keep());
    for (uint32_t n = 0; n < static_cast<uint32_t>(life) * 201; ++n) {
      const auto id = ids.Peek();
      ASSERT_TRUE(id.ok()) << id.status();
      ids.Take();
      ASSERT_TRUE(given.insert(*id).second) << *id << " in life " << life;
      ASSERT_LT(*id, kept.mark) << "given out before it was kept";
      ASSERT_TRUE(ids.MayHaveIssued(*id));
    }
  }
  EXPECT_LT(kept.asked, 200) << "a mark covers a block";
}

TEST(IdSourceTest, ALifeThatGivesNothingOutKeepsNoMark) {
  Kept kept;
  const IdSource ids(7, kept.Keep());
  EXPECT_EQ(kept.asked, 0);
}

TEST(IdSourceTest, ARegistryThatIsAwayIsNoticedOnlyWhenTheBlockIsUsedUp) {
  Kept kept;
  IdSource ids(1, kept.Keep());
  ASSERT_TRUE(ids.Peek().ok());
  kept.away = true;
  uint32_t given = 0;
  while (ids.Peek().ok()) {
    ids.Take();
    ASSERT_LE(++given, IdSource::kBlock);
  }
  EXPECT_EQ(given, IdSource::kBlock);
  EXPECT_EQ(ids.Peek().status().code(), absl::StatusCode::kUnavailable);
  EXPECT_LE(kept.asked, 16) << "joins wait for each";
  kept.away = false;
  EXPECT_EQ(*ids.Peek(), IdSource::kBlock + 1);
}

TEST(IdSourceTest, GoesOnAboveWhatOthersHaveMet) {
  Kept kept;
  IdSource ids(1, kept.Keep());
  ids.RaiseAbove(1'000'000);
  EXPECT_EQ(*ids.Peek(), 1'000'001u);
  EXPECT_GT(kept.mark, 1'000'001u);
  ids.RaiseAbove(10);
  EXPECT_EQ(*ids.Peek(), 1'000'001u) << "never lower";
}

TEST(IdSourceTest, NobodyEndsTheSequence) {
  Kept kept;
  for (int life = 0; life < 4; ++life) {
    IdSource ids(std::max(kept.mark, 1u), kept.Keep());
    const uint32_t first = *ids.Peek();
    for (const uint32_t lie : {UINT32_MAX, UINT32_MAX - 1, UINT32_MAX / 8 * 7}) {
      EXPECT_FALSE(ids.IsBelievable(lie));
      ids.RaiseAbove(lie);
      EXPECT_EQ(*ids.Peek(), first);
    }
    ids.RaiseAbove(first + IdSource::kMadeUpFrom - 1);
    EXPECT_EQ(*ids.Peek(), first + IdSource::kMadeUpFrom);
    ids.RaiseAbove(first + IdSource::kMadeUpFrom);
    EXPECT_EQ(*ids.Peek(), first + IdSource::kMadeUpFrom) << "not bit by bit either";
  }
  IdSource ids(1);
  ids.RaiseAbove(UINT32_MAX - 2, /*proved=*/true);
  EXPECT_EQ(*ids.Peek(), UINT32_MAX - 1);
}

TEST(IdSourceTest, EndsWithAStatus) {
  IdSource ids(UINT32_MAX - 1);
  ASSERT_TRUE(ids.Peek().ok());
  ids.Take();
  EXPECT_EQ(ids.Peek().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(IdSourceTest, WithoutAMarkTheClockAndChanceDecide) {
  constexpr int64_t kOneDay2026 = 1'790'000'000;
  EXPECT_GT(FirstIdWithoutMark(kOneDay2026, 0), FirstIdWithoutMark(kOneDay2026 - 86'400, 0));
  EXPECT_EQ(FirstIdWithoutMark(0, 0), 1u) << "a clock before 2024";
  std::set<uint32_t> firsts;
  for (uint64_t random = 0; random < 1000; ++random) {
    firsts.insert(FirstIdWithoutMark(0, random * 7'919'191));
  }
  EXPECT_EQ(firsts.size(), 1000u);
  EXPECT_LT(FirstIdWithoutMark(INT64_MAX, UINT64_MAX), UINT32_MAX / 2);
  EXPECT_TRUE(IdSource(FirstIdWithoutMark(kOneDay2026, 0))
                  .IsBelievable(FirstIdWithoutMark(kOneDay2026, UINT64_MAX) + 100'000'000))
      << "of an earlier life without a mark";
}

}  // namespace
}  // namespace pando::memory
