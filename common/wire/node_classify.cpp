// Rule V1: the one place that says what an image is.

#include "common/base/rule.h"
#include "common/wire/line.h"
#include "common/wire/node_format.h"
#include "common/wire/node_image.h"
#include "common/wire/slot.h"
#include "common/wire/window.h"

namespace pando {
namespace {

using wire::LoadAs;

// Front and rear EV of each line agree, and all lines carry line 0's NV.
bool VersionsConsistent(const std::byte* image, const NodeLayout& layout) {
  const uint32_t lines = layout.lines();
  // One load for NV and rear EV: the last byte of the checksum, before them, does not count.
  constexpr uint32_t kTailOffset = wire::kNvOffset - 1;
  const uint32_t nv = uint32_t{wire::Nv(image)} << 8;
  const uint32_t counts = RuleHolds(Rule::kF1) ? 0xffffff00 : 0x00ffff00;
  uint32_t difference = 0;
#pragma GCC unroll 4
  for (uint32_t i = 0; i < lines; ++i) {
    const std::byte* line = image + i * kLineBytes;
    difference |= (LoadAs<uint32_t>(line + kTailOffset) ^ uint32_t{wire::FrontEv(line)} << 24) ^ nv;
  }
  return (difference & counts) == 0;
}

// The checksums hold, those of a slot's lines one after the other.
bool ChecksumsHold(const std::byte* image, const NodeLayout& layout) {
  uint32_t line = 0;
  while (line < layout.lines()) {
    const std::byte* const lines = image + line * kLineBytes;
    const uint32_t together = layout.LinesTogether(line);
    for (uint32_t i = 0; i < together; ++i, ++line) {
      if (!wire::LineCrcHolds(lines + i * kLineBytes, wire::CrcBefore(lines, i))) return false;
    }
  }
  return true;
}

// All lines of one slot carry one EV.
bool GroupsConsistent(const std::byte* image, const NodeLayout& layout) {
  const uint32_t lines_per_group = layout.lines_per_group();
  if (lines_per_group == 1) return true;
  for (uint32_t group = 0; group < layout.group_count(); ++group) {
    const std::byte* lines = image + layout.FirstLineOfGroup(group) * kLineBytes;
    for (uint32_t i = 1; i < lines_per_group; ++i) {
      if (wire::FrontEv(lines + i * kLineBytes) != wire::FrontEv(lines)) return false;
    }
  }
  return true;
}

bool LineIsWhole(const std::byte* line, bool crc, uint32_t before) {
  const bool versions = wire::FrontEv(line) == wire::RearEv(line) || !RuleHolds(Rule::kF1);
  return versions && (!crc || wire::LineCrcHolds(line, before));
}

// Line 0 is of the node meant.
bool IsNodeMeant(const std::byte* image, const NodeExpectation& expectation) {
  const auto state = static_cast<NodeState>(LoadAs<uint8_t>(image + wire::kStateOffset));
  return LoadAs<uint16_t>(image + wire::kMagicOffset) == kNodeMagic &&
         LoadAs<uint8_t>(image + wire::kLevelOffset) == expectation.level &&
         LoadAs<uint32_t>(image + wire::kTreeOffset) == expectation.tree_id &&
         (LifeOf(image) == expectation.life || !RuleHolds(Rule::kF3)) &&
         (state == NodeState::kLive || state == NodeState::kMerging);
}

// The fence's first eight bytes as KeyPrefix() gives them. The eight bytes at its place are of the
// image whatever its length.
uint64_t FencePrefix(const std::byte* image, const wire::FenceField& field) {
  const uint32_t length = wire::StoredLength(image, field);
  const auto word = LoadAs<uint64_t>(image + field.offset);
  return __builtin_bswap64(length >= 8 ? word : word & ((uint64_t{1} << (8 * length)) - 1));
}

// kAccepted where the fences cover the key. kStale: the fences are none.
NodeVerdict CompareFences(const std::byte* image, const NodeLayout& layout, std::string_view key) {
  const wire::FenceField low_field = wire::LowField(layout), high_field = wire::HighField(layout);
  const uint32_t high_bytes = wire::StoredLength(image, high_field);
  if (wire::StoredLength(image, low_field) > layout.key_bytes_max() ||
      high_bytes > layout.key_bytes_max()) {
    return NodeVerdict::kStale;
  }
  // Mostly the first eight bytes decide.
  const uint64_t key_prefix = wire::KeyPrefix(key);
  if (key_prefix > FencePrefix(image, low_field) &&
      (high_bytes == 0 || key_prefix < FencePrefix(image, high_field))) {
    return NodeVerdict::kAccepted;
  }
  FenceScratch low_scratch, high_scratch;
  const std::string_view low = wire::ReadFence(image, layout, low_field, low_scratch.bytes);
  const std::string_view high = wire::ReadFence(image, layout, high_field, high_scratch.bytes);
  if (!high.empty() && !wire::KeyLess(low, high)) return NodeVerdict::kStale;
  if (wire::KeyLess(key, low)) return NodeVerdict::kMovedLeft;
  if (!high.empty() && !wire::KeyLess(key, high)) return NodeVerdict::kMovedRight;
  return NodeVerdict::kAccepted;
}

}  // namespace

bool LinesConsistent(const std::byte* image, const NodeLayout& layout, bool crc) {
  return VersionsConsistent(image, layout) && (!crc || ChecksumsHold(image, layout)) &&
         GroupsConsistent(image, layout);
}

NodeVerdict Classify(const std::byte* image, const NodeLayout& layout,
                     const NodeExpectation& expectation, bool crc, LeafMatch* match) {
  if (match != nullptr) match->slot = -1;
  if (!VersionsConsistent(image, layout)) {
    // A reference to a life exists only once that has been written as a whole: a line 0 that is
    // whole, and not the node meant, is that life's end or comes after it, and the rest may stay
    // torn.
    const bool another = LineIsWhole(image, crc, 0) && !IsNodeMeant(image, expectation);
    return another && RuleHolds(Rule::kF1) ? NodeVerdict::kStale : NodeVerdict::kTorn;
  }
  // Before the slots: a node that serves another tree now has slots of another size. Line 0 says
  // so, and is whole by itself.
  if (crc && !wire::LineCrcHolds(image)) return NodeVerdict::kTorn;
  if (!IsNodeMeant(image, expectation)) return NodeVerdict::kStale;
  if (crc && !ChecksumsHold(image, layout)) return NodeVerdict::kTorn;
  if (!GroupsConsistent(image, layout)) return NodeVerdict::kTorn;
  const NodeVerdict verdict = CompareFences(image, layout, expectation.key);
  if (verdict != NodeVerdict::kAccepted || expectation.level != 0) return verdict;

  const wire::SlotScan scan = wire::ScanSlots(image, layout, expectation.key);
  if (scan.malformed) return NodeVerdict::kStale;
  if (scan.matches > 1 && RuleHolds(Rule::kV1)) return NodeVerdict::kTorn;
  if (match != nullptr) match->slot = scan.slot;
  return NodeVerdict::kAccepted;
}

// --- Windows (rule N2).

namespace {

// Line 0 is whole, of the node meant, and says that the key is below its high fence.
bool Line0Covers(const std::byte* image, const NodeLayout& layout,
                 const NodeExpectation& expectation, bool crc) {
  if (!LineIsWhole(image, crc, 0) || !IsNodeMeant(image, expectation)) return false;
  const wire::FenceField field = wire::HighField(layout);
  const uint32_t high_bytes = wire::StoredLength(image, field);
  if (high_bytes > std::min(layout.key_bytes_max(), kHighInLine0)) return false;
  char scratch[kHighInLine0];
  return high_bytes == 0 ||
         wire::KeyLess(expectation.key, wire::ReadFence(image, layout, field, scratch));
}

// Each line whole, all of the group's of one write, and of line 0's epoch of fences.
bool GroupHolds(const std::byte* image, const NodeLayout& layout, uint32_t group, bool crc) {
  const std::byte* const lines = image + layout.FirstLineOfGroup(group) * kLineBytes;
  for (uint32_t i = 0; i < layout.lines_per_group(); ++i) {
    const std::byte* const line = lines + i * kLineBytes;
    if (!LineIsWhole(line, crc, wire::CrcBefore(lines, i))) return false;
    if (wire::Nv(line) != wire::Nv(image) && RuleHolds(Rule::kN2Nv)) return false;
    if (wire::FrontEv(line) != wire::FrontEv(lines) && RuleHolds(Rule::kN2Ev)) return false;
  }
  return true;
}

uint32_t GroupsOf(const NodeLayout& layout, WindowPart part) {
  return part == WindowPart::kNear ? layout.near_groups() : layout.window_groups();
}

}  // namespace

WindowVerdict ClassifyWindow(const std::byte* image, const NodeLayout& layout,
                             const NodeExpectation& expectation, bool crc, LeafMatch* match,
                             WindowPart part) {
  match->slot = -1;
  if (!Line0Covers(image, layout, expectation, crc)) return WindowVerdict::kUnclear;
  const uint32_t home = wire::HomeOf(layout, expectation.key);
  uint32_t matches = 0;
  uint8_t flags = 0;
  char scratch[256];
  for (uint32_t i = 0; i < GroupsOf(layout, part); ++i) {
    const uint32_t group = wire::GroupBehind(layout, home, i);
    if (!GroupHolds(image, layout, group, crc)) return WindowVerdict::kUnclear;
    if (i < wire::kFlagGroupsMax) {
      flags |= wire::SpillFlagsOf(image, layout, group) & wire::SpillFlag(i);
    }
    const uint32_t first = group * layout.slots_per_group();
    for (uint32_t slot = first; slot < first + layout.slots_per_group(); ++slot) {
      const wire::SlotPlace place = wire::PlaceOf(layout, slot);
      const wire::SlotMeta meta = wire::LoadMeta(wire::SlotStart(image, place), layout);
      if (!meta.used()) continue;
      if (!meta.WellFormed(layout)) return WindowVerdict::kUnclear;
      if (meta.key_bytes != expectation.key.size() ||
          wire::SlotKey(image, layout, place, meta, scratch) != expectation.key) {
        continue;
      }
      match->slot = static_cast<int>(slot);
      ++matches;
    }
  }
  if (matches == 1) return WindowVerdict::kFound;
  if (matches > 1) return WindowVerdict::kUnclear;
  if (part == WindowPart::kNear && RuleHolds(Rule::kN2Near)) return WindowVerdict::kFlagged;
  return flags == 0 ? WindowVerdict::kAbsent : WindowVerdict::kFlagged;
}

bool IsNear(const NodeLayout& layout, std::string_view key, uint32_t slot) {
  return wire::Distance(layout, wire::HomeOf(layout, key), layout.GroupOfSlot(slot)) <
         layout.near_groups();
}

WindowRuns WindowOf(const NodeLayout& layout, std::string_view key, WindowPart part) {
  const uint32_t home = wire::HomeOf(layout, key), groups = GroupsOf(layout, part);
  const uint32_t before_end = std::min(groups, layout.group_count() - home);
  const auto run = [&](uint32_t group, uint32_t count) {
    return WindowRuns::Run{layout.FirstLineOfGroup(group), count * layout.lines_per_group()};
  };
  WindowRuns window{{run(home, before_end), {}}, 1};
  if (before_end < groups) window.runs[window.count++] = run(0, groups - before_end);
  return window;
}

WindowReads ReadsOf(const WindowRuns& window) {
  constexpr uint32_t kLinesBetween = 1;
  WindowReads reads{.runs = {{.first_line = 0, .line_count = 1}}, .count = 1};
  WindowRuns::Run& first = reads.runs[0];
  // One that goes round is the nearest to line 0.
  for (uint32_t i = window.count; i-- > 0;) {
    const WindowRuns::Run& run = window.runs[i];
    if (run.first_line <= first.line_count + kLinesBetween) {
      first.line_count = run.first_line + run.line_count;
    } else {
      reads.runs[reads.count++] = run;
    }
  }
  return reads;
}

}  // namespace pando
