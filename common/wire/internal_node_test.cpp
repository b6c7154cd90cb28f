#include "common/wire/internal_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "common/wire/line.h"
#include "common/wire/test_images.h"

namespace pando {
namespace {

Reference Child(uint64_t n) {
  return {RemoteAddress(static_cast<ServerId>(n % 7), 64 * (n + 1)), 1};
}

InternalNode RandomNode(Random* random, const NodeLayout& layout) {
  std::set<std::string> keys;
  for (int i = 0; i < 400; ++i) keys.insert(TestKey(random, layout.key_bytes_max()));
  InternalNode node;
  node.header = TestHeader(1, *keys.begin(), *keys.rbegin());
  uint64_t n = 0;
  for (auto at = std::next(keys.begin()); at != std::prev(keys.end()); ++at) {
    InternalNode larger = node;
    larger.Insert(*at, Child(++n));
    if (!larger.Fits(layout)) break;
    node = std::move(larger);
  }
  return node;
}

TEST(InternalNodeTest, RoundTrips) {
  Random random(8);
  for (const NodeLayout& layout : TestLayouts()) {
    for (int round = 0; round < 10; ++round) {
      const InternalNode node = RandomNode(&random, layout);
      TestImage old_image(layout);
      for (uint32_t i = 0; i < old_image.size(); ++i)
        old_image.data()[i] = static_cast<std::byte>(random.Next());
      TestImage image(old_image);
      const bool crc = random.Chance(0.5);
      EncodeInternal(node, layout, round % 2 == 0 ? image.data() : old_image.data(), crc,
                     image.data());
      const std::string key = node.header.low;
      ASSERT_EQ(Classify(image.data(), layout, TestExpectation(key, 1), crc),
                NodeVerdict::kAccepted);
      InternalNode decoded;
      decoded.entries.resize(3);  // what a caller's node held before
      ASSERT_TRUE(DecodeInternal(image.data(), layout, &decoded).ok());
      ASSERT_EQ(decoded.header.low, node.header.low);
      ASSERT_EQ(decoded.header.high, node.header.high);
      ASSERT_EQ(decoded.header.leftmost, node.header.leftmost);
      ASSERT_EQ(decoded.entries.size(), node.entries.size());
      for (size_t i = 0; i < node.entries.size(); ++i) {
        ASSERT_EQ(decoded.entries[i].key, node.entries[i].key);
        ASSERT_EQ(decoded.entries[i].child, node.entries[i].child);
      }
    }
  }
}

TEST(InternalNodeTest, ChildForFollowsTheSeparators) {
  InternalNode node{TestHeader(1), {}};
  node.Insert("m", Child(2));
  node.Insert("d", Child(1));
  node.Insert(std::string("m\0", 2), Child(3));
  node.Insert("\xff", Child(4));
  ASSERT_TRUE(std::is_sorted(node.entries.begin(), node.entries.end(),
                             [](auto& a, auto& b) { return a.key < b.key; }));
  EXPECT_EQ(node.ChildFor(""), node.header.leftmost);
  EXPECT_EQ(node.ChildFor("c\xff"), node.header.leftmost);
  EXPECT_EQ(node.ChildFor("d"), Child(1));
  EXPECT_EQ(node.ChildFor("l"), Child(1));
  EXPECT_EQ(node.ChildFor("m"), Child(2));
  EXPECT_EQ(node.ChildFor(std::string("m\0", 2)), Child(3));
  EXPECT_EQ(node.ChildFor("n"), Child(3));
  EXPECT_EQ(node.ChildFor("\xff\xff"), Child(4));
  EXPECT_EQ(node.FindSeparator("d"), 0);
  EXPECT_EQ(node.FindSeparator("\xff"), 3);
  EXPECT_EQ(node.FindSeparator("e"), -1);
  EXPECT_EQ(node.FindSeparator(""), -1);
  EXPECT_EQ(node.StreamBytes(), 2u + (1 + 1 + 12) * 3 + (1 + 2 + 12));
}

TEST(InternalNodeTest, FanOutIsTheFormats) {
  const NodeLayout layout = TestLayout(8, 8);
  InternalNode node{TestHeader(1), {}};
  for (uint64_t i = 0;; ++i) {
    const uint64_t big_endian = __builtin_bswap64(i + 1);
    InternalNode larger = node;
    larger.Insert({reinterpret_cast<const char*>(&big_endian), 8}, Child(i));
    if (!larger.Fits(layout)) break;
    node = std::move(larger);
  }
  EXPECT_EQ(node.entries.size(), 37u);  // (14 * 56 - 2) / 21
}

// A sealed node whose stream begins with `bytes`.
absl::Status DecodeStream(const NodeLayout& layout, const NodeHeader& header, std::string bytes) {
  TestImage image(layout);
  WriteHeader(image.data(), layout, header);
  bytes.resize(layout.internal_payload_bytes(), '\0');
  wire::WriteStream(image.data(), layout.header_lines(), 0, static_cast<uint32_t>(bytes.size()),
                    bytes.data());
  SealNodeLevel(image.data(), image.data(), layout, false);
  InternalNode node;
  return DecodeInternal(image.data(), layout, &node);
}

std::string Entry(const std::string& key, const Reference& child) {
  std::string bytes(1, static_cast<char>(key.size()));
  bytes += key;
  char reference[Reference::kWireBytes];
  child.Store(reference);
  return bytes.append(reference, sizeof(reference));
}

TEST(InternalNodeTest, MalformedStreamsAreDataLoss) {
  for (const NodeLayout& layout : {TestLayout(8, 8), TestLayout(255, 255)}) {
    const NodeHeader header = TestHeader(1, "b", "p");
    const auto code = [&](const NodeHeader& h, uint16_t count, const std::string& entries) {
      return DecodeStream(layout, h,
                          std::string(reinterpret_cast<const char*>(&count), 2) + entries)
          .code();
    };
    constexpr auto kLoss = absl::StatusCode::kDataLoss;
    EXPECT_EQ(code(header, 0, ""), absl::StatusCode::kOk);
    EXPECT_EQ(code(header, 2, Entry("c", Child(1)) + Entry("d", Child(2))), absl::StatusCode::kOk);
    EXPECT_EQ(code(header, 65535, ""), kLoss);
    EXPECT_EQ(code(header, 3, Entry("c", Child(1)) + Entry("d", Child(2))),
              kLoss);  // a length of 0
    EXPECT_EQ(code(header, 2, Entry("d", Child(1)) + Entry("c", Child(2))), kLoss);
    EXPECT_EQ(code(header, 2, Entry("d", Child(1)) + Entry("d", Child(2))), kLoss);
    EXPECT_EQ(code(header, 1, Entry("b", Child(1))), kLoss);  // low itself
    EXPECT_EQ(code(header, 1, Entry("p", Child(1))), kLoss);  // high itself
    EXPECT_EQ(code(header, 1, Entry("q", Child(1))), kLoss);
    EXPECT_EQ(code(header, 1, Entry("c", Reference{})), kLoss);
    if (layout.key_bytes_max() < 255) {
      EXPECT_EQ(code(header, 1, Entry(std::string(layout.key_bytes_max() + 1, 'c'), Child(1))),
                kLoss);
    }
    NodeHeader leaf = header, orphan = header;
    leaf.level = 0;
    orphan.leftmost = {};
    EXPECT_EQ(code(leaf, 0, ""), kLoss);
    EXPECT_EQ(code(orphan, 0, ""), kLoss);

    // Entries that run over the stream's end.
    std::string many;
    uint16_t count = 0;
    const uint32_t key_bytes = layout.key_bytes_max();
    while (2 + many.size() < layout.internal_payload_bytes()) {
      const uint32_t big_endian = __builtin_bswap32(++count);
      std::string key = "c" + std::string(reinterpret_cast<const char*>(&big_endian), 4);
      key.resize(key_bytes, 'k');
      many += Entry(key, Child(count));
    }
    EXPECT_EQ(code(header, count, many.substr(0, layout.internal_payload_bytes() - 2)), kLoss);
  }
}

}  // namespace
}  // namespace pando
