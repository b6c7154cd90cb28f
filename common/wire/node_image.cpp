#include "common/wire/node_image.h"

#include <bitset>
#include <cstring>

#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/wire/line.h"
#include "common/wire/node_format.h"

namespace pando {

using wire::LoadAs;
using wire::StoreAs;

namespace wire {

uint8_t NextEv(const std::byte* lines, uint32_t line_count) {
  uint8_t ev = static_cast<uint8_t>(FrontEv(lines) + 1);
  if (line_count == 1) {  // the common case: one entry-level write
    if (ev == RearEv(lines)) ++ev;
    return ev;
  }
  std::bitset<256> taken;  // a group is at most 10 lines, so most values are free
  for (uint32_t i = 0; i < line_count; ++i) {
    taken.set(FrontEv(lines + i * kLineBytes)).set(RearEv(lines + i * kLineBytes));
  }
  while (taken.test(ev)) ++ev;
  return ev;
}

uint16_t NextNv(const std::byte* lines, uint32_t line_count) {
  const auto nv = [&](uint32_t i) { return Nv(lines + i * kLineBytes); };
  uint16_t newest = nv(0);
  for (uint32_t i = 1; i < line_count; ++i) {
    if (SeriallyNewer(nv(i), newest)) newest = nv(i);
  }
  const auto taken = [&](uint16_t value) {
    for (uint32_t i = 0; i < line_count; ++i) {
      if (nv(i) == value) return true;
    }
    return false;
  };
  uint16_t next = static_cast<uint16_t>(newest + 1);
  while (taken(next)) ++next;  // only over arbitrary bytes; at most line_count steps
  return next;
}

}  // namespace wire

NodeHeader ReadHeader(const std::byte* image, const NodeLayout& layout) {
  NodeHeader header;
  FenceScratch scratch;
  header.tree_id = LoadAs<uint32_t>(image + wire::kTreeOffset);
  header.level = LoadAs<uint8_t>(image + wire::kLevelOffset);
  header.state = static_cast<NodeState>(LoadAs<uint8_t>(image + wire::kStateOffset));
  header.life = LifeOf(image);
  header.right = RightOf(image);
  header.peer = Reference::Load(image + wire::kPeerOffset);
  header.leftmost = Reference::Load(image + wire::kLeftmostOffset);
  header.low = LowFence(image, layout, &scratch);
  header.high = HighFence(image, layout, &scratch);
  header.reserve.assign(reinterpret_cast<const char*>(image + wire::kReserveOffset),
                        NodeHeader::kReserveBytes);
  return header;
}

Reference RightOf(const std::byte* image) { return Reference::Load(image + wire::kRightOffset); }

NodeState StateOf(const std::byte* image) {
  return static_cast<NodeState>(LoadAs<uint8_t>(image + wire::kStateOffset));
}

Reference PeerOf(const std::byte* image) { return Reference::Load(image + wire::kPeerOffset); }

std::string_view ReserveOf(const std::byte* image) {
  return {reinterpret_cast<const char*>(image + wire::kReserveOffset), NodeHeader::kReserveBytes};
}

bool IsMarked(const std::byte* image) {
  return StateOf(image) != NodeState::kLive || LoadAs<uint64_t>(image + wire::kPeerOffset) != 0;
}

uint32_t LifeOf(const std::byte* image) { return LoadAs<uint32_t>(image + wire::kLifeOffset); }

std::string_view LowFence(const std::byte* image, const NodeLayout& layout, FenceScratch* scratch) {
  return ReadFence(image, layout, wire::LowField(layout), scratch->bytes);
}

std::string_view HighFence(const std::byte* image, const NodeLayout& layout,
                           FenceScratch* scratch) {
  return ReadFence(image, layout, wire::HighField(layout), scratch->bytes);
}

namespace {

void WriteFence(std::byte* image, const NodeLayout& layout, const wire::FenceField& field,
                std::string_view key) {
  PANDO_CHECK_LE(key.size(), layout.key_bytes_max());
  const auto length = static_cast<uint32_t>(key.size());
  const uint32_t in_line = std::min(length, field.inline_bytes);
  const uint32_t rest = length - in_line;
  StoreAs(image + field.length_offset, static_cast<uint8_t>(length));
  std::memset(image + field.offset, 0, field.inline_bytes);
  if (in_line > 0) std::memcpy(image + field.offset, key.data(), in_line);
  wire::WriteStream(image, field.rest_line, 0, rest, key.data() + in_line);
  wire::ZeroStream(image, field.rest_line, rest, field.rest_lines * kLinePayloadBytes - rest);
}

}  // namespace

void WriteHeader(std::byte* image, const NodeLayout& layout, const NodeHeader& header) {
  PANDO_CHECK_LE(header.reserve.size(), NodeHeader::kReserveBytes);
  StoreAs(image + wire::kMagicOffset, kNodeMagic);
  StoreAs(image + wire::kLevelOffset, header.level);
  StoreAs(image + wire::kStateOffset, static_cast<uint8_t>(header.state));
  StoreAs(image + wire::kTreeOffset, header.tree_id);
  StoreAs(image + wire::kLifeOffset, header.life);
  header.right.Store(image + wire::kRightOffset);
  header.peer.Store(image + wire::kPeerOffset);
  header.leftmost.Store(image + wire::kLeftmostOffset);
  std::memset(image + wire::kReserveOffset, 0, NodeHeader::kReserveBytes);
  std::memcpy(image + wire::kReserveOffset, header.reserve.data(), header.reserve.size());
  WriteFence(image, layout, wire::LowField(layout), header.low);
  WriteFence(image, layout, wire::HighField(layout), header.high);
}

void SetRight(std::byte* image, const Reference& right) { right.Store(image + wire::kRightOffset); }

void SetMarker(std::byte* image, NodeState state, const Reference& peer) {
  StoreAs(image + wire::kStateOffset, static_cast<uint8_t>(state));
  peer.Store(image + wire::kPeerOffset);
}

void SetHigh(std::byte* image, const NodeLayout& layout, std::string_view high) {
  WriteFence(image, layout, wire::HighField(layout), high);
}

void ClearBody(std::byte* image, const NodeLayout& layout) {
  wire::ZeroStream(image, layout.header_lines(), 0, layout.body_lines() * kLinePayloadBytes);
}

void SealNodeLevel(std::byte* image, const std::byte* old_image, const NodeLayout& layout,
                   bool crc) {
  const bool successor = RuleHolds(Rule::kF2);
  const uint16_t nv = successor ? wire::NextNv(old_image, layout.lines()) : 1;
  uint32_t line = 0;
  while (line < layout.lines()) {
    // Internal nodes share the leaf's groups.
    const uint32_t count = layout.LinesTogether(line);
    const uint8_t ev = successor ? wire::NextEv(old_image + line * kLineBytes, count) : 1;
    std::byte* const lines = image + line * kLineBytes;
    for (uint32_t i = 0; i < count; ++i, ++line) {
      wire::SealLine(lines + i * kLineBytes, ev, nv, crc, wire::CrcBefore(lines, i));
    }
  }
}

void SealEntryLevel(std::byte* image, uint32_t first_line, uint32_t line_count, bool crc) {
  std::byte* const lines = image + first_line * kLineBytes;
  const uint8_t ev = RuleHolds(Rule::kF2) ? wire::NextEv(lines, line_count) : wire::FrontEv(lines);
  for (uint32_t i = 0; i < line_count; ++i) {
    std::byte* const line = lines + i * kLineBytes;
    wire::SealLine(line, ev, wire::Nv(line), crc, wire::CrcBefore(lines, i));
  }
}

uint32_t NextLife(const std::byte* old_image) {
  const uint32_t life = LifeOf(old_image) + 1;
  return life == 0 ? 1 : life;
}

}  // namespace pando
