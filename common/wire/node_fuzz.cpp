// Fuzz target: any bytes may be READ as a node. Nothing reads outside the image, and what
// Classify() accepts can be decoded, edited, split and written without losing anything.
#include <algorithm>
#include <array>
#include <span>

#include "common/base/check.h"
#include "common/base/fuzz.h"
#include "common/wire/test_images.h"

namespace pando {
namespace {

// An input: layout 1, options 1, key length 1, key, then patches of the image: offset 2, length 1,
// bytes.
constexpr int kCrc = 1, kReseal = 2, kInternal = 4, kZero = 8, kOwnLife = 16;  // options

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}
  uint8_t Byte() {
    const std::string_view byte = Bytes(1);
    return byte.empty() ? 0 : static_cast<uint8_t>(byte[0]);
  }
  std::string_view Bytes(size_t count) {
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(bytes.size());
    return bytes;
  }
  bool empty() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

const std::vector<NodeLayout>& Layouts() {
  static const std::vector<NodeLayout> layouts = {
      TestLayout(8, 8), TestLayout(60, 8, 1088), TestLayout(3, 5),         TestLayout(20, 1),
      TestLayout(1, 0), TestLayout(54, 1),       TestLayout(255, 1, 4096), TestLayout(15, 15)};
  return layouts;
}

TestImage BaseImage(const NodeLayout& layout, uint8_t options) {
  const bool crc = (options & kCrc) != 0;
  if (options & kZero) return TestImage(layout);
  if ((options & kInternal) == 0) {
    return TestLeaf(layout, TestHeader(0, "b", "p"), {{"b", ""}, {"h", ""}, {"o", ""}, {"i", ""}},
                    crc);
  }
  TestImage image(layout);
  InternalNode node{TestHeader(1, "b", "p"), {}};
  for (const char* key : {"c", "h", "k"}) node.Insert(key, {RemoteAddress(1, 64), 1});
  EncodeInternal(node, layout, image.data(), crc, image.data());
  return image;
}

// Readers that may be handed an image nobody accepted.
void ReadEverything(const TestImage& image, const NodeLayout& layout) {
  FenceScratch scratch;
  PANDO_CHECK_LE(LowFence(image.data(), layout, &scratch).size(), layout.key_bytes_max());
  PANDO_CHECK_LE(HighFence(image.data(), layout, &scratch).size(), layout.key_bytes_max());
  ReadHeader(image.data(), layout);
  LinesConsistent(image.data(), layout, true);
  std::vector<LeafEntry> entries;
  if (!ReadLeafEntries(image.data(), layout, &entries)) entries.clear();
  std::string value;
  for (uint32_t slot = 0; slot < layout.slot_count(); ++slot) {
    ReadSlotValue(image.data(), layout, slot, &value);
  }
}

void EditAcceptedLeaf(TestImage* image, const NodeLayout& layout, std::string_view key, bool crc) {
  std::vector<LeafEntry> before, after;
  LeafEditor editor(image->data(), layout, crc);
  if (!ReadLeafEntries(image->data(), layout, &before)) return;  // two slots of another key
  PANDO_CHECK_EQ(editor.used_slots(), before.size());
  const bool was_there = editor.Erase(key);
  if (!key.empty()) {
    const std::string value(layout.value_bytes_max(), 'v');
    PANDO_CHECK(editor.Put(key, value) || before.size() == layout.slot_count());
    editor.SealDirty(4096);
    LeafMatch match;
    const NodeHeader header = ReadHeader(image->data(), layout);
    const NodeVerdict verdict =
        Classify(image->data(), layout, {header.tree_id, 0, header.life, key}, crc, &match);
    PANDO_CHECK(verdict == NodeVerdict::kAccepted);
    PANDO_CHECK(match.slot >= 0 || before.size() == layout.slot_count());
  }
  PANDO_CHECK(ReadLeafEntries(image->data(), layout, &after));
  PANDO_CHECK(after.size() == before.size() + (was_there || key.empty() ? 0 : 1) ||
              before.size() == layout.slot_count());
  if (after.size() < 2) return;
  std::sort(after.begin(), after.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  const auto slots = static_cast<uint32_t>(after.size() - 1);
  const size_t cut = ChooseCuts(after, slots, key == after.back().key).front();
  const std::string separator = ShortestSeparator(after[cut - 1].key, after[cut].key);
  TestImage right(layout);
  WriteHeader(right.data(), layout, TestHeader(0, separator));
  FillLeaf(right.data(), layout, std::span(after).subspan(cut));
  SetHigh(image->data(), layout, separator);
  editor.ClearOutOfFence();
  const LeafEditor sibling(right.data(), layout, crc);
  PANDO_CHECK_EQ(editor.used_slots() + sibling.used_slots(), after.size());
  PANDO_CHECK(editor.used_slots() > 0 && sibling.used_slots() > 0);
  SealNodeLevel(image->data(), image->data(), layout, crc);
  PANDO_CHECK(LinesConsistent(image->data(), layout, crc));
}

void CheckInternal(TestImage* image, const NodeLayout& layout, std::string_view key, bool crc) {
  InternalNode node;
  if (!DecodeInternal(image->data(), layout, &node).ok()) return;
  PANDO_CHECK(!node.ChildFor(key).is_null());
  PANDO_CHECK(node.Fits(layout));
  EncodeInternal(node, layout, image->data(), crc, image->data());
  InternalNode again;
  PANDO_CHECK(DecodeInternal(image->data(), layout, &again).ok());
  PANDO_CHECK_EQ(again.entries.size(), node.entries.size());
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string patch("\x26\x00\x03zzz\x81\x00\x02\x11\x01",
                          11);  // the high fence, the first slot
  std::vector<std::string> seeds;
  for (size_t layout = 0; layout < Layouts().size(); ++layout) {
    for (const int options :
         {0, kCrc, kReseal, kReseal | kCrc | kOwnLife, kInternal | kReseal, kZero}) {
      std::string seed = {static_cast<char>(layout), static_cast<char>(options), 1, 'h'};
      seeds.push_back(seed);
      seeds.push_back(seed + patch);
    }
  }
  return seeds;
}

}  // namespace pando

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pando;
  Input input(data, size);
  const NodeLayout& layout = Layouts()[input.Byte() % Layouts().size()];
  const uint8_t options = input.Byte();
  const bool crc = (options & kCrc) != 0;
  const std::string_view key = input.Bytes(std::min<size_t>(input.Byte(), layout.key_bytes_max()));
  TestImage image = BaseImage(layout, options);
  while (!input.empty()) {
    const uint8_t low_byte = input.Byte();
    const size_t offset = (low_byte | input.Byte() << 8) % image.size();
    const std::string_view bytes =
        input.Bytes(std::min<size_t>(input.Byte(), image.size() - offset));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(image.data()) + offset);
  }
  if (options & kReseal) SealNodeLevel(image.data(), image.data(), layout, crc);

  ReadEverything(image, layout);
  NodeExpectation expectation = TestExpectation(key, (options & kInternal) != 0 ? 1 : 0);
  if (options & kOwnLife) expectation.life = LifeOf(image.data());
  LeafMatch match;
  const NodeVerdict verdict = Classify(image.data(), layout, expectation, crc, &match);
  if (verdict == NodeVerdict::kAccepted) {
    PANDO_CHECK(LinesConsistent(image.data(), layout, crc));
    if (expectation.level == 0) EditAcceptedLeaf(&image, layout, key, crc);
  }
  if (expectation.level != 0) CheckInternal(&image, layout, key, crc);
  return 0;
}
