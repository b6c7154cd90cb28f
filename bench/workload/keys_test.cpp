#include "bench/workload/keys.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <string>

#include "common/base/temporary_directory.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

TEST(KeysTest, IntegersAreBigEndianAndDiffer) {
  const auto ordered = *Keys::Create({.kind = "ordered"}, 1'000);
  EXPECT_EQ(ordered->Make(258), std::string("\0\0\0\0\0\0\1\2", 8));
  EXPECT_LT(ordered->Make(255), ordered->Make(256));
  const auto random = *Keys::Create({}, 1'000);
  std::set<std::string> seen;
  for (uint64_t i = 0; i < 10'000; ++i) seen.insert(random->Make(i));
  EXPECT_EQ(seen.size(), 10'000u);
  EXPECT_EQ(seen.begin()->size(), 8u);
  EXPECT_EQ(random->key_bytes_max(), 8u);
}

TEST(KeysTest, IntegersOfOtherLengths) {
  for (uint32_t key_bytes : {1u, 2u, 3u, 16u, 255u}) {
    const auto keys = *Keys::Create({.key_bytes = key_bytes}, 200);
    std::set<std::string> seen;
    for (uint64_t i = 0; i < 200; ++i) seen.insert(keys->Make(i));
    EXPECT_EQ(seen.size(), 200u);
    EXPECT_EQ(seen.begin()->size(), key_bytes);
  }
  EXPECT_TRUE(Keys::Create({.key_bytes = 1}, 256).ok());
  EXPECT_FALSE(Keys::Create({.key_bytes = 1}, 257).ok());
  EXPECT_FALSE(Keys::Create({.key_bytes = 256}, 1).ok());
}

// The keys other YCSB ports make of the numbers 0 and 1.
TEST(KeysTest, UserKeysAreYcsbs) {
  const auto keys = *Keys::Create({.kind = "user"}, 10);
  EXPECT_EQ(keys->Make(0), "user6284781860667377211");
  EXPECT_EQ(keys->Make(1), "user8517097267634966620");
  EXPECT_EQ(keys->key_bytes_max(), 23u);
  EXPECT_FALSE(Keys::Create({.kind = "user", .key_bytes = 8}, 10).ok());
  EXPECT_TRUE(Keys::Create({.kind = "user", .key_bytes = 30}, 10).ok());
}

class WordsTest : public ::testing::Test {
 protected:
  WordsTest() { std::ofstream(file_) << "pear\napple\n\npear\nfig's\nlast without newline"; }

  const TemporaryDirectory directory_;
  const std::string file_ = directory_.path() + "/words";
};

TEST_F(WordsTest, KeepsTheOrderAndEachWordOnce) {
  const auto words = *ReadWords(file_);
  EXPECT_EQ(words, (std::vector<std::string>{"pear", "apple", "fig's", "last without newline"}));
}

TEST_F(WordsTest, InsertsBeyondTheFileAreNumbered) {
  const auto keys = *Keys::Create({.kind = "words", .words_file = file_}, 4);
  EXPECT_EQ(keys->Make(1), "apple");
  EXPECT_EQ(keys->Make(5), "apple~5");
  EXPECT_EQ(keys->Make(UINT64_MAX).size(), 21u);
  EXPECT_EQ(keys->key_bytes_max(), 21u);
  EXPECT_FALSE(Keys::Create({.kind = "words", .words_file = file_}, 5).ok());
  EXPECT_FALSE(Keys::Create({.kind = "words", .key_bytes = 10, .words_file = file_}, 1).ok());
}

// Nobody has said anything of --key_bytes.
TEST_F(WordsTest, AWordTooLongForAKeyIsNamedAsThat) {
  std::ofstream(file_, std::ios::app) << "\n" << std::string(302, 'x') << "\n";
  const std::string why(Keys::Create({.kind = "words", .words_file = file_}, 1).status().message());
  EXPECT_EQ(why, "keys of kind 'words' have up to 302 bytes: keys have at most 255");
}

TEST(KeysTest, BadOptionsAreClear) {
  EXPECT_FALSE(Keys::Create({.kind = "uuid"}, 1).ok());
  EXPECT_EQ(Keys::Create({.kind = "words", .words_file = "/nowhere/words"}, 1).status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace pando::bench
