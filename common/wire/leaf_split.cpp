// Leaves as wholes: splitting, merging and filling.

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/wire/leaf.h"
#include "common/wire/slot.h"

namespace pando {

using wire::LoadMeta;
using wire::PlaceOf;
using wire::SlotMeta;
using wire::SlotPlace;
using wire::SlotStart;

std::string ShortestSeparator(std::string_view left, std::string_view right) {
  PANDO_DCHECK(left < right);
  const auto differ = std::mismatch(left.begin(), left.end(), right.begin(), right.end());
  // `right` goes on behind the common prefix, since it is greater.
  return std::string(right.substr(0, (differ.second - right.begin()) + 1));
}

std::optional<std::string> LeafEditor::ChooseSeparator(std::string_view pending_key) const {
  std::vector<std::string> keys;
  keys.reserve(layout_.slot_count());
  char scratch[256];
  for (uint32_t slot = 0; slot < layout_.slot_count(); ++slot) {
    const SlotPlace place = PlaceOf(layout_, slot);
    const SlotMeta meta = LoadMeta(SlotStart(image_, place), layout_);
    if (!meta.used() || !meta.WellFormed(layout_)) continue;
    const std::string_view key = wire::SlotKey(image_, layout_, place, meta, scratch);
    if (InFence(key)) keys.emplace_back(key);
  }
  const size_t count = keys.size();
  std::sort(keys.begin(), keys.end());
  if (count < 2 || std::adjacent_find(keys.begin(), keys.end()) != keys.end()) return std::nullopt;
  const auto separator = [&](size_t moved) {  // keys[moved] is the first that moves
    return ShortestSeparator(keys[moved - 1], keys[moved]);
  };
  if (wire::KeyLess(keys.back(), pending_key)) {
    return separator(count - std::max<size_t>(1, count / 16));
  }
  const size_t middle = count / 2, slack = count / 12;
  std::string best = separator(middle);
  for (size_t i = 1; i <= slack; ++i) {  // the nearest of the shortest
    for (const size_t moved : {middle - i, middle + i}) {
      std::string other = separator(moved);
      if (other.size() < best.size()) best = std::move(other);
    }
  }
  return best;
}

void LeafEditor::MoveTo(std::string_view separator, LeafEditor* sibling) {
  PANDO_CHECK(sibling->layout_ == layout_);
  ClearBody(sibling->image_, layout_);
  char scratch[256];
  std::string value;
  for (uint32_t slot = 0; slot < layout_.slot_count(); ++slot) {
    const SlotPlace place = PlaceOf(layout_, slot);
    const SlotMeta meta = LoadMeta(SlotStart(image_, place), layout_);
    if (meta.empty()) continue;
    if (!meta.used() || !meta.WellFormed(layout_)) {
      ClearSlot(slot);
      continue;
    }
    const std::string_view key = wire::SlotKey(image_, layout_, place, meta, scratch);
    const bool in_fence = InFence(key);
    if (in_fence && wire::KeyLess(key, separator)) continue;
    if (in_fence) {
      ReadSlotValue(image_, layout_, slot, &value);
      sibling->WriteSlot(slot, key, value);
      if (!RuleHolds(Rule::kF5)) continue;
    }
    ClearSlot(slot);
  }
}

void LeafEditor::ClearOutOfFence() {
  char scratch[256];
  for (uint32_t slot = 0; slot < layout_.slot_count(); ++slot) {
    const SlotPlace place = PlaceOf(layout_, slot);
    const SlotMeta meta = LoadMeta(SlotStart(image_, place), layout_);
    if (meta.empty()) continue;
    const bool keeps = meta.used() && meta.WellFormed(layout_) &&
                       InFence(wire::SlotKey(image_, layout_, place, meta, scratch));
    if (!keeps) ClearSlot(slot);
  }
}

void LeafEditor::Absorb(const std::byte* right) {
  std::vector<LeafEntry> entries;
  PANDO_CHECK(ReadLeafEntries(right, layout_, &entries)) << "a key is there twice";
  for (const LeafEntry& entry : entries) {
    const int slot = FindFree(entry.key);
    PANDO_CHECK_GE(slot, 0) << "two leaves do not fit one";
    WriteSlot(static_cast<uint32_t>(slot), entry.key, entry.value);
  }
}

void FillLeaf(std::byte* image, const NodeLayout& layout, const std::vector<LeafEntry>& entries) {
  ClearBody(image, layout);
  LeafEditor editor(image, layout, /*crc=*/false);
  for (const LeafEntry& entry : entries) {
    PANDO_CHECK(editor.Put(entry.key, entry.value))
        << entries.size() << " entries do not fit a leaf";
  }
}

}  // namespace pando
