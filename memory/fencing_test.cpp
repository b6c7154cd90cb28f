#include "memory/fencing.h"

#include <cstring>

#include "common/wire/dead_table.h"
#include "common/wire/lock_word.h"
#include "gtest/gtest.h"
#include "memory/test_support.h"

namespace pando::memory {
namespace {

constexpr ClientId kAnna = {1, 10};
constexpr ClientId kBert = {2, 11};
// Of the same slot of the table as Anna.
constexpr ClientId kCarl = {1 + kDeadSlots, 12};

class FencingTest : public testing::Test {
 protected:
  uint64_t Entry(const ClientId& client) {
    uint64_t entry;
    std::memcpy(
        &entry,
        memory_.main() + region_.superblock().dead_offset + DeadEntryOffset(client.compute_server),
        sizeof(entry));
    return entry;
  }
  bool IsPublished(const ClientId& client) { return SaysDead(Entry(client), WordOf(client)); }

  PlainMemory memory_;
  Region region_ = *Region::Format(memory_.memory(), {});
  uint64_t* const words_ = memory_.lock_words();
  const uint32_t word_count_ = region_.superblock().lock_words;
};

TEST_F(FencingTest, FreesTheWordsOfThatLifeWhateverTheirModeAndNoOthers) {
  words_[0] = WordOf(kAnna);
  words_[500] = WordOf(kAnna, 7);
  words_[word_count_ - 1] = WordOf(kAnna);
  words_[1] = WordOf(kBert);
  words_[2] = WordOf({kAnna.compute_server, kAnna.incarnation + 1});
  words_[3] = WordOf({kAnna.compute_server + 1, kAnna.incarnation});
  Fencing fencing(&region_, 0);
  EXPECT_FALSE(fencing.Step()->has_value()) << "nobody is dead";
  fencing.Add(kAnna);
  EXPECT_TRUE(fencing.IsPending(kAnna));
  EXPECT_EQ(*fencing.Step(), kAnna);
  EXPECT_TRUE(fencing.idle());
  EXPECT_TRUE(IsPublished(kAnna));
  EXPECT_EQ(fencing.words_cleared(), 3u);
  for (const uint32_t index : {0u, 500u, word_count_ - 1}) EXPECT_EQ(words_[index], 0u) << index;
  EXPECT_EQ(words_[1], WordOf(kBert));
  EXPECT_EQ(words_[2], WordOf({kAnna.compute_server, kAnna.incarnation + 1})) << "a later life";
  EXPECT_EQ(words_[3], WordOf({kAnna.compute_server + 1, kAnna.incarnation}));
}

TEST_F(FencingTest, StepByStepADeathIsPublishedBeforeItsFirstWordIsFreed) {
  for (uint32_t i = 0; i < word_count_; ++i) words_[i] = WordOf(kAnna);
  Fencing fencing(&region_, 100);
  fencing.Add(kAnna);
  EXPECT_FALSE(IsPublished(kAnna));
  EXPECT_FALSE(fencing.Step()->has_value());
  EXPECT_TRUE(IsPublished(kAnna));
  for (uint32_t i = 0; i < word_count_; ++i) ASSERT_EQ(words_[i], WordOf(kAnna)) << i;
  // A waiter that has read the table takes a word over: it is no longer Anna's to free.
  words_[300] = WordOf(kBert);
  uint32_t steps = 1;
  while (!fencing.Step()->has_value()) {
    ++steps;
    ASSERT_LE(fencing.words_cleared(), uint64_t{100} * steps);
    ASSERT_TRUE(fencing.IsPending(kAnna));
  }
  EXPECT_GE(steps, word_count_ / 100);
  EXPECT_EQ(fencing.words_cleared(), word_count_ - 1);
  EXPECT_EQ(words_[300], WordOf(kBert));
}

TEST_F(FencingTest, AnEntryIsNotOverwrittenWhileAWordOfItsLifeIsLeft) {
  words_[word_count_ - 1] = WordOf(kAnna);
  Fencing fencing(&region_, 64);
  fencing.Add(kAnna);
  fencing.Add(kCarl);
  while (words_[word_count_ - 1] != 0) {
    (void)fencing.Step();
    ASSERT_TRUE(IsPublished(kAnna));
    ASSERT_TRUE(fencing.IsPending(kCarl));
  }
  while (*fencing.Step() != kCarl) ASSERT_FALSE(fencing.idle());
  EXPECT_TRUE(IsPublished(kCarl));
  EXPECT_FALSE(IsPublished(kAnna)) << "they share a slot";
}

}  // namespace
}  // namespace pando::memory
