// Helpers of the tests of this room and of those that need images: layouts, keys, sealed nodes.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "common/wire/node_image.h"
#include "common/wire/node_layout.h"

namespace pando {

inline void PrintTo(NodeVerdict verdict, std::ostream* out) {  // for GoogleTest
  constexpr const char* kNames[] = {"accepted", "torn", "stale", "moved right", "moved left"};
  *out << kNames[static_cast<int>(verdict)];
}

// A node's bytes in a heap block of exactly that size, so that ASan sees every step over its end.
class TestImage {
 public:
  explicit TestImage(uint32_t bytes)
      : bytes_(bytes), data_(static_cast<std::byte*>(std::aligned_alloc(kLineBytes, bytes))) {
    PANDO_CHECK(data_ != nullptr);
    std::memset(data_.get(), 0, bytes);
  }
  explicit TestImage(const NodeLayout& layout) : TestImage(layout.node_bytes()) {}
  TestImage(const TestImage& other) : TestImage(other.bytes_) { *this = other; }
  TestImage& operator=(const TestImage& other) {
    PANDO_CHECK_EQ(bytes_, other.bytes_);
    std::memcpy(data_.get(), other.data_.get(), bytes_);
    return *this;
  }

  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::byte* line(uint32_t i) { return data_.get() + i * kLineBytes; }
  const std::byte* line(uint32_t i) const { return data_.get() + i * kLineBytes; }
  uint32_t size() const { return bytes_; }
  bool SameLine(const TestImage& other, uint32_t i) const {
    return std::memcmp(line(i), other.line(i), kLineBytes) == 0;
  }
  void CopyLine(const TestImage& other, uint32_t i) {
    std::memcpy(line(i), other.line(i), kLineBytes);
  }

 private:
  struct Free {
    void operator()(std::byte* data) const { std::free(data); }
  };
  uint32_t bytes_;
  std::unique_ptr<std::byte, Free> data_;
};

inline NodeLayout TestLayout(uint32_t key_bytes_max, uint32_t value_bytes_max,
                             uint32_t node_bytes = 0, bool windows = false) {
  auto layout = NodeLayout::Create(key_bytes_max, value_bytes_max, node_bytes, windows);
  PANDO_CHECK(layout.ok()) << layout.status();
  return *layout;
}

// With windows: groups of one line with several slots or one, of several lines with several slots,
// of many lines each.
inline std::vector<NodeLayout> WindowLayouts() {
  return {TestLayout(8, 8, 0, true),     TestLayout(8, 8, 2048, true),
          TestLayout(24, 8, 0, true),    TestLayout(60, 8, 0, true),
          TestLayout(60, 8, 1024, true), TestLayout(20, 30, 1024, true),
          TestLayout(255, 255, 0, true)};
}

// Every kind of slot: packed and wide meta, one to many a line, two to ten lines each, small and
// odd nodes.
inline std::vector<NodeLayout> TestLayouts() {
  return {TestLayout(8, 8),
          TestLayout(8, 8, 4096),
          TestLayout(60, 8),
          TestLayout(60, 8, 1088),
          TestLayout(255, 255),
          TestLayout(1, 0),
          TestLayout(3, 5),
          TestLayout(15, 15),
          TestLayout(16, 0),
          TestLayout(20, 1),
          TestLayout(11, 34),
          TestLayout(53, 0),
          TestLayout(54, 1),
          TestLayout(7, 9),
          TestLayout(204, 40, 8192),
          TestLayout(8, 8, 0, true),
          TestLayout(24, 8, 0, true),
          TestLayout(60, 8, 0, true),
          TestLayout(60, 8, 1024, true),
          TestLayout(255, 255, 0, true)};
}

inline NodeHeader TestHeader(uint8_t level = 0, std::string low = "", std::string high = "") {
  NodeHeader header;
  header.tree_id = 7;
  header.level = level;
  header.state = NodeState::kLive;
  header.life = 3;
  header.right = high.empty() ? Reference{} : Reference{RemoteAddress(2, 8192), 11};
  header.leftmost = level == 0 ? Reference{} : Reference{RemoteAddress(1, 4096), 5};
  header.low = std::move(low);
  header.high = std::move(high);
  return header;
}

inline NodeExpectation TestExpectation(std::string_view key, uint8_t level = 0) {
  return {/*tree_id=*/7, level, /*life=*/3, key};
}

// A sealed leaf over fresh memory.
inline TestImage TestLeaf(const NodeLayout& layout, const NodeHeader& header,
                          const std::vector<LeafEntry>& entries, bool crc = false) {
  TestImage image(layout);
  WriteHeader(image.data(), layout, header);
  FillLeaf(image.data(), layout, entries);
  SealNodeLevel(image.data(), TestImage(layout).data(), layout, crc);
  return image;
}

// What a leaf holds, each key once.
inline std::map<std::string, std::string> Contents(const TestImage& image,
                                                   const NodeLayout& layout) {
  std::vector<LeafEntry> entries;
  PANDO_CHECK(ReadLeafEntries(image.data(), layout, &entries));
  std::map<std::string, std::string> contents;
  for (LeafEntry& entry : entries) contents.emplace(std::move(entry.key), std::move(entry.value));
  PANDO_CHECK_EQ(contents.size(), entries.size());
  return contents;
}

inline std::string TestBytes(Random* random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random->Next());
  return bytes;
}

// Keys that collide in what implementations like to compare first: long common prefixes, 0x00 and
// 0xff bytes, one key a prefix of the other, all lengths.
inline std::string TestKey(Random* random, uint32_t key_bytes_max) {
  const auto size = 1 + random->Uniform(key_bytes_max);
  switch (random->Uniform(5)) {
    case 0:
      return std::string(size, '\0');
    case 1:
      return std::string(size, '\xff');
    case 2: {  // up to 200 bytes in common
      std::string key(std::min<size_t>(size, 200), 'p');
      key += TestBytes(random, size - key.size());
      if (random->Chance(0.5)) key.back() = static_cast<char>(random->Uniform(4));
      return key;
    }
    case 3: {
      std::string key(size, 'a');
      for (char& byte : key) byte = "\0a\xff"[random->Uniform(3)];
      return key;
    }
    default:
      return TestBytes(random, size);
  }
}

}  // namespace pando
