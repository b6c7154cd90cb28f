#include "common/wire/root_record.h"

#include <cstring>

#include "common/base/rule.h"
#include "common/wire/line.h"

namespace pando {
namespace {

constexpr uint32_t kRootMagic = 0x544f4f52;  // "ROOT"
constexpr uint32_t kMagicOffset = kLinePayloadOffset;
constexpr uint32_t kTreeOffset = kMagicOffset + 4;
constexpr uint32_t kRootOffset = kTreeOffset + 4;
constexpr uint32_t kLevelOffset = kRootOffset + Reference::kWireBytes;
constexpr uint32_t kFlagsOffset = kLevelOffset + 1;
static_assert(kFlagsOffset < kLinePayloadOffset + kLinePayloadBytes);

constexpr uint8_t kFlagDropped = 1;

}  // namespace

RootVerdict DecodeRootRecord(const std::byte* line, uint32_t tree_id, bool crc,
                             RootRecord* record) {
  const bool whole = wire::FrontEv(line) == wire::RearEv(line) || !RuleHolds(Rule::kF1);
  if (!whole || (crc && !wire::LineCrcHolds(line))) return RootVerdict::kTorn;
  const Reference root = Reference::Load(line + kRootOffset);
  if (wire::LoadAs<uint32_t>(line + kMagicOffset) != kRootMagic ||
      wire::LoadAs<uint32_t>(line + kTreeOffset) != tree_id || root.is_null()) {
    return RootVerdict::kStale;
  }
  record->tree_id = tree_id;
  record->root = root;
  record->level = wire::LoadAs<uint8_t>(line + kLevelOffset);
  record->dropped = (wire::LoadAs<uint8_t>(line + kFlagsOffset) & kFlagDropped) != 0;
  return RootVerdict::kAccepted;
}

void EncodeRootRecord(const RootRecord& record, const std::byte* old_line, bool crc,
                      std::byte* line) {
  const bool successor = RuleHolds(Rule::kF2);
  const uint8_t ev = successor ? wire::NextEv(old_line, 1) : 1;
  const uint16_t nv = successor ? wire::NextNv(old_line, 1) : 1;
  std::memset(line, 0, kLineBytes);
  wire::StoreAs(line + kMagicOffset, kRootMagic);
  wire::StoreAs(line + kTreeOffset, record.tree_id);
  record.root.Store(line + kRootOffset);
  wire::StoreAs(line + kLevelOffset, record.level);
  wire::StoreAs(line + kFlagsOffset, record.dropped ? kFlagDropped : uint8_t{0});
  wire::SealLine(line, ev, nv, crc);
}

}  // namespace pando
