#include "compute/cache/cached_node.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/base/random.h"

namespace pando {
namespace {

struct Deleter {
  void operator()(CachedNode* node) const { CachedNode::Destroy(node); }
};
using CachedNodePtr = std::unique_ptr<CachedNode, Deleter>;

Reference Child(size_t i) {
  return {RemoteAddress(3, 4096 + i * 1024), static_cast<uint32_t>(i + 7)};
}

InternalNode NodeOf(const std::set<std::string>& separators, std::string low = "",
                    std::string high = "") {
  InternalNode node;
  node.header.level = 1;
  node.header.leftmost = Child(0);
  node.header.low = std::move(low);
  node.header.high = std::move(high);
  for (const std::string& key : separators) {
    node.entries.push_back({key, Child(node.entries.size() + 1)});
  }
  return node;
}

CachedNodePtr Cache(const InternalNode& node) {
  return CachedNodePtr(CachedNode::Create(9, {RemoteAddress(1, 1024), 5}, node));
}

// The child of the last separator that is not above the key.
uint32_t LinearChildIndex(const InternalNode& node, const std::string& key) {
  uint32_t index = 0;
  while (index < node.entries.size() && node.entries[index].key <= key) ++index;
  return index;
}

std::string RandomText(Random* random, size_t bytes, std::string_view alphabet) {
  std::string text(bytes, '\0');
  for (char& c : text) c = alphabet[random->Uniform(alphabet.size())];
  return text;
}

// Keys around every separator: itself, its prefixes and extensions, its neighbours.
std::vector<std::string> Around(const std::string& separator) {
  std::vector<std::string> keys = {separator, separator + '\0', separator + '\xff'};
  for (size_t n = 1; n < separator.size(); n = n < 10 ? n + 1 : n * 2) {
    keys.push_back(separator.substr(0, n));
  }
  for (const int delta : {-1, 1}) {
    std::string neighbour = separator;
    neighbour.back() = static_cast<char>(neighbour.back() + delta);
    keys.push_back(neighbour);
    neighbour = separator;
    neighbour.front() = static_cast<char>(neighbour.front() + delta);
    keys.push_back(neighbour);
  }
  return keys;
}

void ExpectLikeLinear(const InternalNode& node, const std::vector<std::string>& more_keys = {}) {
  const CachedNodePtr cached = Cache(node);
  ASSERT_EQ(cached->child_count(), node.entries.size() + 1);
  std::vector<std::string> keys = more_keys;
  keys.push_back(std::string(1, '\0'));
  keys.push_back(std::string(255, '\xff'));
  for (const Separator& entry : node.entries) {
    for (std::string& key : Around(entry.key)) keys.push_back(std::move(key));
  }
  for (const std::string& key : keys) {
    const uint32_t index = cached->ChildIndex(SearchKey(key));
    ASSERT_EQ(index, LinearChildIndex(node, key)) << testing::PrintToString(key);
    ASSERT_EQ(cached->Child(index), node.ChildFor(key)) << testing::PrintToString(key);
  }
}

TEST(CachedNode, KeepsWhatTheNodeSays) {
  InternalNode node = NodeOf({"melon", "pear"}, "apple", "quince");
  node.header.level = 3;
  node.header.right = Child(40);
  const CachedNodePtr cached = Cache(node);
  EXPECT_EQ(cached->self(), (Reference{RemoteAddress(1, 1024), 5}));
  EXPECT_EQ(cached->right(), Child(40));
  EXPECT_EQ(cached->tree_id(), 9u);
  EXPECT_EQ(cached->level(), 3);
  EXPECT_EQ(cached->low(), "apple");
  EXPECT_EQ(cached->high(), "quince");
  EXPECT_GE(cached->bytes(), sizeof(CachedNode) + 3 * Reference::kWireBytes);
}

TEST(CachedNode, ChildrenOfOneLifeTakeLess) {
  InternalNode node = NodeOf({"fig", "melon", "pear"});
  const size_t wide_bytes = Cache(node)->bytes();
  node.header.leftmost.life = 3;
  for (Separator& entry : node.entries) entry.child.life = 3;
  EXPECT_EQ(Cache(node)->bytes(), wide_bytes - 4 * 8);
  ExpectLikeLinear(node);
  // In any order, but not anywhere.
  std::swap(node.entries.front().child, node.entries.back().child);
  EXPECT_EQ(Cache(node)->bytes(), wide_bytes - 4 * 8);
  ExpectLikeLinear(node);
  for (const RemoteAddress far : {RemoteAddress(4, 4096), RemoteAddress(3, uint64_t{1} << 40),
                                  RemoteAddress(3, 4104), RemoteAddress()}) {
    node.entries.back().child.address = far;
    EXPECT_EQ(Cache(node)->bytes(), wide_bytes);
    ExpectLikeLinear(node);
  }
}

TEST(CachedNode, CoversItsFences) {
  const CachedNodePtr inner = Cache(NodeOf({"m"}, "b", "y"));
  EXPECT_FALSE(inner->Covers(SearchKey("a\xff")));
  EXPECT_TRUE(inner->Covers(SearchKey("b")));
  EXPECT_TRUE(inner->Covers(SearchKey("xzzz")));
  EXPECT_FALSE(inner->Covers(SearchKey("y")));
  const CachedNodePtr root = Cache(NodeOf({"m"}));
  EXPECT_TRUE(root->Covers(SearchKey(std::string(1, '\0'))));
  EXPECT_TRUE(root->Covers(SearchKey(std::string(255, '\xff'))));
}

TEST(CachedNode, CoversLikeAComparisonOfBytes) {
  using namespace std::string_literals;
  const std::vector<std::string> texts = {"a",
                                          "a\0"s,
                                          "a\0\0\0\0\0\0\0"s,
                                          "a\0\0\0\0\0\0\0\0"s,
                                          "a\xff",
                                          "aaaaaaa",
                                          "aaaaaaaa",
                                          "aaaaaaaa\0"s,
                                          "aaaaaaaab",
                                          "b",
                                          "\0"s,
                                          "\0\0"s,
                                          "\x7f\xff",
                                          "\x80",
                                          "\xff",
                                          std::string(8, '\xff'),
                                          std::string(255, '\xff'),
                                          "aaaaaaaaa"};
  for (const std::string& low : texts) {
    for (const std::string& high : texts) {
      if (high <= low) continue;
      const CachedNodePtr bounded = Cache(NodeOf({}, low, high));
      const CachedNodePtr to_the_end = Cache(NodeOf({}, low, ""));
      for (const std::string& key : texts) {
        EXPECT_EQ(bounded->Covers(SearchKey(key)), low <= key && key < high);
        EXPECT_EQ(to_the_end->Covers(SearchKey(key)), low <= key);
      }
    }
  }
}

TEST(CachedNode, WithoutSeparatorsEverythingIsInTheLeftmostChild) {
  ExpectLikeLinear(NodeOf({}), {"a", std::string(8, '\xff')});
}

TEST(CachedNode, EveryNumberOfSeparators) {
  std::set<std::string> separators;
  for (int i = 0; i < 70; ++i) {
    ExpectLikeLinear(NodeOf(separators));
    separators.insert(std::string(1, static_cast<char>(3 * i + 1)));
  }
}

TEST(CachedNode, RandomKeysOfAllLengths) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    std::set<std::string> separators;
    const size_t count = 1 + random.Uniform(64);
    while (separators.size() < count) {
      separators.insert(RandomText(&random, 1 + random.Uniform(255), {"\0\x01z\x7f\x80\xff", 6}));
    }
    ExpectLikeLinear(NodeOf(separators));
  }
}

TEST(CachedNode, HeadsAreComparedAsUnsignedBytes) {
  std::set<std::string> separators;
  for (int i = 0; i < 256; i += 5) {
    separators.insert(std::string{static_cast<char>(i), '\0', '\xff'});
    separators.insert(std::string(8, static_cast<char>(i)));
  }
  ExpectLikeLinear(NodeOf(separators));
}

TEST(CachedNode, TiesOnTheHeadLookAtTheRest) {
  // The same eight bytes, then a difference; and texts that differ only in trailing zeros, whose
  // padded heads are equal.
  std::set<std::string> separators = {"a", "z"};
  for (int i = 0; i < 30; ++i) separators.insert("middle!!" + std::string(1, 'a' + i % 26) + "x");
  for (size_t zeros = 0; zeros < 12; ++zeros) separators.insert("tie" + std::string(zeros, '\0'));
  ExpectLikeLinear(NodeOf(separators), {"middle!!", "middle", "tie", "tid\xff", "tif"});
}

TEST(CachedNode, LongCommonPrefixes) {
  Random random(2);
  for (const size_t prefix_bytes : {1, 7, 8, 9, 200, 240}) {
    const std::string prefix = RandomText(&random, prefix_bytes, "prefix\xff");
    std::set<std::string> separators = {prefix};  // one is the shared prefix itself
    while (separators.size() < 40) {
      separators.insert(prefix + RandomText(&random, random.Uniform(14) + 1, {"\0\x01\xff", 3}));
    }
    std::vector<std::string> keys = {prefix.substr(0, prefix_bytes - 1), "\xff\xff", "a"};
    std::string below = prefix, above = prefix;
    below[prefix_bytes / 2] = static_cast<char>(below[prefix_bytes / 2] - 1);
    above[prefix_bytes / 2] = static_cast<char>(above[prefix_bytes / 2] + 1);
    for (const std::string& other : {below, above}) {
      keys.push_back(other);
      keys.push_back(other.substr(0, prefix_bytes / 2 + 1));
      keys.push_back(other + std::string(15, '\0'));
    }
    ExpectLikeLinear(NodeOf(separators), keys);
  }
}

TEST(CachedNode, OneSeparatorIsItsOwnPrefix) {
  ExpectLikeLinear(NodeOf({std::string(255, '\xff')}));
  ExpectLikeLinear(NodeOf({std::string(1, '\0')}));
  ExpectLikeLinear(NodeOf({"only one, longer than a head"}));
}

}  // namespace
}  // namespace pando
