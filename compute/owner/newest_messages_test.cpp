#include "compute/owner/newest_messages.h"

#include <map>
#include <random>
#include <string>
#include <utility>

#include "gtest/gtest.h"

namespace pando {
namespace {

struct ExpectedMessage {
  std::string value;
  bool erased = false;
  Lsn lsn = kNoLsn;
};
using NewestOfAll = std::map<std::pair<uint32_t, std::string>, ExpectedMessage>;

void ExpectSame(const NewestMessages& messages, const NewestOfAll& model) {
  ASSERT_EQ(messages.size(), model.size());
  size_t i = 0;
  for (const auto& [place, expected] : model) {
    const NewestMessages::Message message = messages.At(i);
    ASSERT_EQ(messages.TreeOf(i), place.first);
    ASSERT_EQ(message.key, place.second);
    ASSERT_EQ(message.value, expected.value);
    ASSERT_EQ(message.erased, expected.erased);
    ASSERT_EQ(message.lsn, expected.lsn);
    ++i;
  }
}

// Keys of few bytes and few values of each: equal heads, keys that begin others, zeros at the end.
std::string RandomKey(std::mt19937_64& random) {
  std::string key(random() % 4 == 0 ? 6 + random() % 250 : 1 + random() % 11, '\0');
  for (char& byte : key) {
    const uint64_t dice = random() % 8;
    byte = dice < 5 ? '\0' : static_cast<char>(dice == 5 ? 0xff : 'a');
  }
  return key;
}

TEST(NewestMessagesTest, AModelAgrees) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    NewestMessages messages;
    NewestOfAll model;
    for (Lsn lsn = 1; lsn <= 1'000; ++lsn) {
      const std::string key = RandomKey(random);
      const std::string value(random() % 256, static_cast<char>('a' + random() % 26));
      const bool erased = random() % 4 == 0;
      const uint32_t tree = random() % 3 == 0 ? 70'000 : 7;
      messages.Add(lsn, {.kind = erased ? LogMessage::Kind::kErase : LogMessage::Kind::kPut,
                         .tree_id = tree,
                         .key = key,
                         .value = erased ? "" : std::string_view(value)});
      model[{tree, key}] = {.value = erased ? "" : value, .erased = erased, .lsn = lsn};
    }
    messages.Seal();
    ExpectSame(messages, model);
    for (int i = 0; i < 100; ++i) {
      const std::string key = i == 0 ? "" : RandomKey(random);
      for (const uint32_t tree : {6u, 7u, 8u, 70'000u, 70'001u}) {
        const auto before = std::distance(model.begin(), model.lower_bound({tree, key}));
        ASSERT_EQ(messages.LowerBound(tree, key), static_cast<size_t>(before));
      }
    }
  }
}

TEST(NewestMessagesTest, NothingIsNothing) {
  NewestMessages messages;
  messages.Seal();
  EXPECT_EQ(messages.size(), 0u);
  EXPECT_EQ(messages.LowerBound(1, ""), 0u);
  messages.Add(3, {.tree_id = 1, .key = "a", .value = "b"});
  messages.Clear();
  messages.Seal();
  EXPECT_EQ(messages.size(), 0u);
}

}  // namespace
}  // namespace pando
