#include "compute/cache/cached_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
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

void ExpectSameContents(const CachedNode& cached, const InternalNode& node) {
  ASSERT_EQ(cached.child_count(), node.entries.size() + 1);
  EXPECT_EQ(cached.low(), node.header.low);
  EXPECT_EQ(cached.high(), node.header.high);
  EXPECT_EQ(cached.ChildLow(0), node.header.low);
  EXPECT_EQ(cached.Child(0), node.header.leftmost);
  for (uint32_t i = 0; i < node.entries.size(); ++i) {
    ASSERT_EQ(cached.ChildLow(i + 1), node.entries[i].key);
    ASSERT_EQ(cached.Child(i + 1), node.entries[i].child);
  }
}

void ExpectLikeLinear(const InternalNode& node, const std::vector<std::string>& more_keys = {}) {
  const CachedNodePtr cached = Cache(node);
  ASSERT_NO_FATAL_FAILURE(ExpectSameContents(*cached, node));
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
  const CachedNodePtr cached = Cache(node);
  EXPECT_EQ(cached->self(), (Reference{RemoteAddress(1, 1024), 5}));
  EXPECT_EQ(cached->tree_id(), 9u);
  EXPECT_EQ(cached->level(), 3);
  EXPECT_EQ(cached->low(), "apple");
  EXPECT_EQ(cached->high(), "quince");
  EXPECT_GE(cached->bytes(), sizeof(CachedNode) + 3 * Reference::kWireBytes);
}

// Bytes of a node of four children: places, heads of two bytes, children.
constexpr size_t kFourWide = sizeof(CachedNode) + 3 * 2 + 4 * Reference::kWireBytes;
constexpr size_t FourPacked(size_t places) { return sizeof(CachedNode) + 8 * places + 3 * 2 + 16; }

TEST(CachedNode, ItsObjectIsSmall) { EXPECT_LE(sizeof(CachedNode), 72u); }

TEST(CachedNode, AChildTakesFourBytesAndItsPlaceEight) {
  InternalNode node = NodeOf({"a", "b", "c"});
  EXPECT_EQ(Cache(node)->bytes(), FourPacked(1) + 4) << "four lives";
  node.header.leftmost.life = 3;
  for (Separator& entry : node.entries) entry.child.life = 3;
  EXPECT_EQ(Cache(node)->bytes(), FourPacked(1));
  ExpectLikeLinear(node);
  // In any order, and anywhere.
  std::swap(node.entries.front().child, node.entries.back().child);
  EXPECT_EQ(Cache(node)->bytes(), FourPacked(1));
  ExpectLikeLinear(node);
  const RemoteAddress last(UINT16_MAX, RemoteAddress::kOffsetMask - 1023);
  for (const RemoteAddress far : {RemoteAddress(4, 4096), RemoteAddress(3, uint64_t{1} << 40),
                                  RemoteAddress(3, RemoteAddress::kOffsetMask - 1023), last,
                                  RemoteAddress(3, (uint64_t{1} << 38) + 4096)}) {
    node.entries.back().child.address = far;
    EXPECT_EQ(Cache(node)->bytes(), FourPacked(2)) << far.raw();
    ExpectLikeLinear(node);
  }
  // Not at a line: the unit is smaller then. And null, which no node on the wire has.
  for (const RemoteAddress odd :
       {RemoteAddress(3, 4104), RemoteAddress(3, 4097), RemoteAddress()}) {
    node.entries.back().child.address = odd;
    EXPECT_LE(Cache(node)->bytes(), FourPacked(2));
    ExpectLikeLinear(node);
  }
}

TEST(CachedNode, ChildrenThatFitNoPlaceAreKeptAsOnTheWire) {
  InternalNode node = NodeOf({"a", "b", "c"});
  // A unit of one byte: 2^44 of them can be told apart.
  node.entries[0].child.address = RemoteAddress(3, (uint64_t{1} << 44) - 1);
  EXPECT_EQ(Cache(node)->bytes(), FourPacked(2) + 4);
  ExpectLikeLinear(node);
  node.entries[1].child.address = RemoteAddress(3, uint64_t{1} << 44);
  EXPECT_EQ(Cache(node)->bytes(), kFourWide);
  ExpectLikeLinear(node);
}

TEST(CachedNode, AsManyPlacesAsThereAre) {
  std::set<std::string> separators;
  for (int i = 0; i < 100; ++i) separators.insert({'k', static_cast<char>(i)});
  for (const size_t places : {1, 2, 15, 16, 17, 100}) {
    for (const bool servers : {false, true}) {
      InternalNode node = NodeOf(separators);
      const auto place = [&](size_t i) {
        return servers
                   ? Reference{RemoteAddress(static_cast<ServerId>(i % places), i * 1024), 9}
                   : Reference{RemoteAddress(3, i * 1024), static_cast<uint32_t>(-(i % places))};
      };
      node.header.leftmost = place(100);
      for (size_t i = 0; i < 100; ++i) node.entries[i].child = place(i);
      const size_t heads = sizeof(CachedNode) + 100 * 2;
      const size_t wide = 101 * Reference::kWireBytes;
      const size_t lives = servers ? wide : 16 + 101 * 5;  // upper bits of two sorts
      EXPECT_EQ(Cache(node)->bytes() - heads,
                std::min(lives, places <= 16 ? places * 8 + 101 * 4 : wide));
      ExpectLikeLinear(node);
    }
  }
}

TEST(CachedNode, ManyLivesTakeAByteAChild) {
  std::set<std::string> separators;
  for (int i = 0; i < 100; ++i) separators.insert({'k', static_cast<char>(i)});
  InternalNode node = NodeOf(separators);
  const auto bytes_of_lives = [&](auto life_of) {
    node.header.leftmost.life = life_of(uint32_t{100});
    for (uint32_t i = 0; i < 100; ++i) node.entries[i].child.life = life_of(i);
    ExpectLikeLinear(node);
    return Cache(node)->bytes() - sizeof(CachedNode) - 100 * 2;
  };
  EXPECT_EQ(bytes_of_lives([](uint32_t i) { return i; }), 8 + 101 * 5u);
  EXPECT_EQ(bytes_of_lives([](uint32_t i) { return 200 + i; }), 2 * 8 + 101 * 5u);
  EXPECT_EQ(bytes_of_lives([](uint32_t i) { return UINT32_MAX - i; }), 8 + 101 * 5u);
  EXPECT_EQ(bytes_of_lives([](uint32_t i) { return i % 16 << 28 | i; }), 16 * 8 + 101 * 5u);
  EXPECT_EQ(bytes_of_lives([](uint32_t i) { return i % 17 << 8 | i; }),
            101 * Reference::kWireBytes);
  // As long as it takes less.
  EXPECT_EQ(bytes_of_lives([](uint32_t i) { return i % 13; }), 13 * 8 + 101 * 4u);
  EXPECT_EQ(bytes_of_lives([](uint32_t i) { return i % 14; }), 8 + 101 * 5u);
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
  std::vector<std::string> texts = {"a\xff", "aaaaaaaab", "b", "\x7f\xff", "\x80"};
  const std::string zeros(8, '\0');
  for (const size_t n : {1, 7, 8, 9}) texts.push_back(std::string(n, 'a'));
  for (const size_t n : {1, 7, 8}) texts.push_back("a" + zeros.substr(0, n));
  for (const size_t n : {1, 2}) texts.push_back(zeros.substr(0, n));
  for (const size_t n : {1, 8, 255}) texts.push_back(std::string(n, '\xff'));
  texts.push_back("aaaaaaaa" + zeros.substr(0, 1));
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

// How many bytes separators take: heads of two or four bytes, with texts or without.
size_t SeparatorBytes(const InternalNode& node) {
  InternalNode packed = node;
  packed.header.leftmost = Child(0);
  for (Separator& entry : packed.entries) entry.child = Child(0);
  return Cache(packed)->bytes() - sizeof(CachedNode) - 8 - (node.entries.size() + 1) * 4;
}

TEST(CachedNode, HeadsAreAllThatShortSuffixesNeed) {
  using namespace std::string_literals;
  struct Case {
    std::set<std::string> separators;
    size_t bytes;
  };
  const std::vector<Case> cases = {
      {{"prefix"}, 2},                                               // the only suffix is empty
      {{"prefix", "prefixa", "prefixab"}, 6},                        // two bytes
      {{"prefix", "prefixabcd", "prefixb"}, 12},                     // four
      {{"prefix\0\0"s, "prefix\0a"s, "prefixa\0"s, "prefixab"}, 8},  // zeros, but all as long
      {{"prefix\0a\0\0"s, "prefixab\0\0"s, "prefixabcd"}, 12},       // the same of four
      {{"prefix", "prefix\0abcd"s, "prefixb"}, 3 * (4 + 2) + 1},     // one has a rest
      {{"prefix", "prefixabcd\0"s, "prefixb"}, 3 * (4 + 2) + 1},     // which may be a zero
      {{"prefix", "prefix\0"s, "prefixb"}, 3 * (4 + 2) + 2},         // a zero, not all as long
      {{"prefixa", "prefixa\0"s, "prefixbcdef"}, 3 * (4 + 2) + 1 + 2 + 5}  // and one has a rest
  };
  for (const Case& one : cases) {
    const InternalNode node = NodeOf(one.separators);
    EXPECT_EQ(SeparatorBytes(node), one.bytes) << *one.separators.rbegin();
    ExpectLikeLinear(node, {"pref", "prefix", "prefix\0"s, "prefix\0\0\0"s, "prefixa\0\0\0\0"s,
                            "prefixabcd\0\0"s, "prefixb\0"s, "prefiy"});
  }
}

// What separators are made of in a round of the model.
struct Texts {
  std::string_view alphabet;
  size_t prefix_bytes = 0, bytes_min = 1, bytes_max = 1;
};

struct Places {
  uint64_t servers = 1, lives = 1, life_step = 1, offset_bits = 20;
};

Places RandomPlaces(Random* random) {
  return {.servers = random->Chance(0.9) ? 1 + random->Uniform(4) : 20,
          .lives = 1 + random->Uniform(random->Chance(0.5) ? 6 : 300),
          .life_step = random->Chance(0.5) ? 1u : 0x1fffffffu,
          .offset_bits = 20 + random->Uniform(29)};
}

Reference RandomChild(Random* random, const Places& places) {
  const uint64_t unit = random->Chance(0.9) ? 1024 : 64;
  const uint64_t offset = random->Uniform(uint64_t{1} << places.offset_bits) / unit * unit;
  return {RemoteAddress(static_cast<ServerId>(1 + random->Uniform(places.servers)), offset),
          static_cast<uint32_t>(random->Uniform(places.lives) * places.life_step)};
}

// A plain sorted map says where each key belongs.
TEST(CachedNode, LikeASortedMap) {
  const std::string_view any("\0\x01\x02z\x7f\x80\xfe\xff", 8), zeros("\0\x01", 2);
  Random random(7);
  for (int round = 0; round < 400; ++round) {
    const size_t bytes_max = std::vector<size_t>{1, 2, 3, 4, 5, 9, 255}[random.Uniform(7)];
    const Texts texts = {
        .alphabet = random.Chance(0.3) ? zeros : any,
        .prefix_bytes = std::vector<size_t>{0, 0, 1, 4, 5, 8, 9}[random.Uniform(7)],
        .bytes_min = random.Chance(0.4) ? bytes_max : 1,
        .bytes_max = bytes_max};
    const std::string prefix = RandomText(&random, texts.prefix_bytes, texts.alphabet);
    const auto text = [&] {
      const size_t bytes = texts.bytes_min + random.Uniform(texts.bytes_max - texts.bytes_min + 1);
      return (prefix + RandomText(&random, bytes, texts.alphabet)).substr(0, 255);
    };
    const Places places = RandomPlaces(&random);
    std::map<std::string, Reference> model;
    for (uint64_t tries = random.Uniform(80); tries > 0; --tries) {
      model.insert_or_assign(text(), RandomChild(&random, places));
    }
    InternalNode node;
    node.header.level = 1;
    node.header.leftmost = RandomChild(&random, places);
    for (const auto& [key, child] : model) node.entries.push_back({key, child});
    const CachedNodePtr cached = Cache(node);
    ASSERT_NO_FATAL_FAILURE(ExpectSameContents(*cached, node));
    for (int i = 0; i < 200; ++i) {
      std::string key =
          random.Chance(0.8) ? text() : RandomText(&random, 1 + random.Uniform(12), any);
      if (!model.empty() && random.Chance(0.5)) {  // near a separator
        key = std::next(model.begin(), static_cast<int>(random.Uniform(model.size())))->first;
        const std::vector<std::string> near = Around(key);
        key = near[random.Uniform(near.size())].substr(0, 255);
      }
      const auto above = model.upper_bound(key);
      const Reference& child =
          above == model.begin() ? node.header.leftmost : std::prev(above)->second;
      const uint32_t index = cached->ChildIndex(SearchKey(key));
      ASSERT_EQ(index, std::distance(model.begin(), above)) << testing::PrintToString(key);
      ASSERT_EQ(cached->Child(index), child);
    }
  }
}

// Consecutive numbers, and leaves on four servers in turn: of ten million leaves all that differs
// from these is their number.
TEST(CachedNode, BytesALeafOfConsecutiveKeysOnFourServers) {
  constexpr uint64_t kLeaves = 100'000, kLeavesAParent = 28, kLeafKeys = 37;
  size_t bytes = 0;
  for (uint64_t first = 0; first < kLeaves; first += kLeavesAParent) {
    const auto fence = [](uint64_t leaf) {
      std::string text(8, '\0');
      uint64_t key = (leaf + 10'000'000) * kLeafKeys;
      for (size_t i = 8; i > 0; --i, key >>= 8) text[i - 1] = static_cast<char>(key);
      return text;
    };
    const auto child = [](uint64_t leaf) {
      return Reference{RemoteAddress(static_cast<ServerId>(1 + leaf % 4), leaf / 4 * 1024), 1};
    };
    InternalNode node;
    node.header.level = 1;
    node.header.low = fence(first);
    node.header.high = fence(first + kLeavesAParent);
    node.header.leftmost = child(first);
    for (uint64_t leaf = first + 1; leaf < first + kLeavesAParent; ++leaf) {
      node.entries.push_back({fence(leaf), child(leaf)});
    }
    const CachedNodePtr cached = Cache(node);
    ASSERT_NO_FATAL_FAILURE(ExpectSameContents(*cached, node));
    bytes += cached->bytes();
  }
  EXPECT_LE(static_cast<double>(bytes) / kLeaves, 10.5);
}

TEST(CachedNode, OneSeparatorIsItsOwnPrefix) {
  ExpectLikeLinear(NodeOf({std::string(255, '\xff')}));
  ExpectLikeLinear(NodeOf({std::string(1, '\0')}));
  ExpectLikeLinear(NodeOf({"only one, longer than a head"}));
}

}  // namespace
}  // namespace pando
