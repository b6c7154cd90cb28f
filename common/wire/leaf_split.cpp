// Leaves as wholes: splitting, merging and filling.

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/wire/leaf.h"
#include "common/wire/slot.h"
#include "common/wire/window.h"

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

std::vector<size_t> ChooseCuts(const std::vector<LeafEntry>& sorted, uint32_t slot_count,
                               bool ascending) {
  const size_t count = sorted.size(), slots = slot_count;
  PANDO_CHECK_GT(count, slots);
  const size_t even = EntriesWhenCut(slot_count);
  const size_t nearly_full = std::max(even, slots - std::max<size_t>(1, slots / 16));
  const size_t fill = ascending ? nearly_full : even;
  const size_t leaves = (count + fill - 1) / fill;
  const size_t most = (count + leaves - 1) / leaves;
  const size_t slack = std::min(count / leaves / 6, (slots - most) / 2);
  const auto separator_bytes = [&](size_t cut) {
    return ShortestSeparator(sorted[cut - 1].key, sorted[cut].key).size();
  };
  std::vector<size_t> cuts;
  for (size_t leaf = 1; leaf < leaves; ++leaf) {
    if (ascending) {
      cuts.push_back(leaf * fill);
      continue;
    }
    const size_t middle = leaf * count / leaves;
    size_t best = middle;
    for (size_t i = 1; i <= slack; ++i) {  // the nearest of the shortest
      for (const size_t cut : {middle - i, middle + i}) {
        if (separator_bytes(cut) < separator_bytes(best)) best = cut;
      }
    }
    cuts.push_back(best);
  }
  return cuts;
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
  if (RuleHolds(Rule::kN7)) ComputeSpillFlags();
}

void LeafEditor::Add(std::string_view key, std::string_view value) {
  PANDO_CHECK(!key.empty() && key.size() <= layout_.key_bytes_max());
  PANDO_CHECK_LE(value.size(), layout_.value_bytes_max());
  const int slot = FindFree(key);
  PANDO_CHECK_GE(slot, 0) << "more entries than a leaf has room for";
  WriteSlot(static_cast<uint32_t>(slot), key, value);
  if (layout_.window_groups() != 0) NotePlaced(static_cast<uint32_t>(slot), key);
}

void LeafEditor::Absorb(const std::byte* right) {
  std::vector<LeafEntry> entries;
  PANDO_CHECK(ReadLeafEntries(right, layout_, &entries)) << "a key is there twice";
  AddAll(entries);
}

void FillLeaf(std::byte* image, const NodeLayout& layout, std::span<const LeafEntry> entries) {
  ClearBody(image, layout);
  LeafEditor editor(image, layout, /*crc=*/false);
  editor.AddAll(entries);
  if (RuleHolds(Rule::kN7New)) return;  // the variant has what somebody left there
  for (uint32_t group = 0; layout.window_groups() > 0 && group < layout.group_count(); ++group) {
    wire::SetSpillFlags(image, layout, group, 0);
  }
}

}  // namespace pando
