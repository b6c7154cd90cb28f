#include "common/wire/value_cell.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/base/rule.h"
#include "common/wire/crc32c.h"
#include "common/wire/line.h"
#include "common/wire/node_format.h"

namespace pando {
namespace {

constexpr uint8_t kInline = 0, kInCell = 1;
constexpr uint32_t kExactLinesMax = 32;
constexpr int kSizesBits = 3;  // eight sizes a doubling

// In line 0, where nodes have `high`; the peer stays null (GlanceAtNode()).
constexpr uint32_t kKeyLengthOffset = wire::kHighLengthOffset;
constexpr uint32_t kValueLengthOffset = kKeyLengthOffset + 1;
constexpr uint32_t kChecksumOffset = kValueLengthOffset + 4;
static_assert(kChecksumOffset + 4 <= wire::kCrcOffset);

uint32_t ChecksumOf(uint32_t tree_id, uint32_t life, uint32_t value_bytes, std::string_view key,
                    std::string_view value) {
  std::byte fixed[13];
  wire::StoreAs(fixed, tree_id);
  wire::StoreAs(fixed + 4, life);
  wire::StoreAs(fixed + 8, static_cast<uint8_t>(key.size()));
  wire::StoreAs(fixed + 9, value_bytes);
  const uint32_t head = Crc32c(fixed, sizeof(fixed));
  return Crc32c(value.data(), value.size(), Crc32c(key.data(), key.size(), head));
}

bool IsCellOf(const std::byte* image, uint32_t tree_id, uint32_t life) {
  return wire::LoadAs<uint16_t>(image + wire::kMagicOffset) == kNodeMagic &&
         wire::LoadAs<uint8_t>(image + wire::kLevelOffset) == kCellLevel &&
         wire::LoadAs<uint32_t>(image + wire::kTreeOffset) == tree_id &&
         wire::LoadAs<uint32_t>(image + wire::kLifeOffset) == life;
}

}  // namespace

uint32_t CellLines(size_t key_bytes, size_t value_bytes) {
  const auto lines = static_cast<uint32_t>(
      (kCellHeaderBytes + key_bytes + value_bytes + kLineBytes - 1) / kLineBytes);
  if (lines <= kExactLinesMax) return lines;
  const int shift = std::bit_width(lines - 1) - 1 - kSizesBits;
  return (((lines - 1) >> shift) + 1) << shift;
}

bool IsCellSize(uint32_t lines) {
  if (lines < 2 || lines > kCellLinesMax) return false;
  if (lines <= kExactLinesMax) return true;
  const int shift = std::bit_width(lines - 1) - 1 - kSizesBits;
  return lines % (1u << shift) == 0;
}

void WriteCell(std::byte* image, uint32_t tree_id, uint32_t life, std::string_view key,
               std::string_view value, bool crc, CellReference* reference) {
  std::memset(image, 0, kCellHeaderBytes);
  wire::StoreAs(image + wire::kMagicOffset, kNodeMagic);
  wire::StoreAs(image + wire::kLevelOffset, kCellLevel);
  wire::StoreAs(image + wire::kStateOffset, static_cast<uint8_t>(NodeState::kLive));
  wire::StoreAs(image + wire::kTreeOffset, tree_id);
  wire::StoreAs(image + wire::kLifeOffset, life);
  const auto value_bytes = static_cast<uint32_t>(value.size());
  reference->value_bytes = value_bytes;
  reference->checksum = ChecksumOf(tree_id, life, value_bytes, key, value);
  wire::StoreAs(image + kKeyLengthOffset, static_cast<uint8_t>(key.size()));
  wire::StoreAs(image + kValueLengthOffset, value_bytes);
  wire::StoreAs(image + kChecksumOffset, reference->checksum);
  wire::SealLine(image, 0, 0, crc);
  std::byte* const body = image + kCellHeaderBytes;
  std::memcpy(body, key.data(), key.size());
  if (!value.empty()) std::memcpy(body + key.size(), value.data(), value.size());
  const size_t used = kCellHeaderBytes + key.size() + value.size();
  std::memset(image + used, 0, CellLines(key.size(), value.size()) * kLineBytes - used);
}

std::optional<std::string_view> ValueInCell(const std::byte* image, uint32_t tree_id,
                                            std::string_view key, const CellReference& reference) {
  const auto* const body = reinterpret_cast<const char*>(image + kCellHeaderBytes);
  const std::string_view value(body + key.size(), reference.value_bytes);
  const bool same = IsCellOf(image, tree_id, reference.cell.life) &&
                    wire::LoadAs<uint8_t>(image + kKeyLengthOffset) == key.size() &&
                    wire::LoadAs<uint32_t>(image + kValueLengthOffset) == reference.value_bytes &&
                    key == std::string_view(body, key.size()) &&
                    ChecksumOf(tree_id, reference.cell.life, reference.value_bytes, key, value) ==
                        reference.checksum;
  if (!same && RuleHolds(Rule::kK3)) return std::nullopt;
  return value;
}

std::optional<std::string_view> KeyOfCell(const std::byte* image, uint32_t bytes, uint32_t tree_id,
                                          uint32_t life) {
  const size_t key_bytes = wire::LoadAs<uint8_t>(image + kKeyLengthOffset);
  if (!IsCellOf(image, tree_id, life) || key_bytes == 0 || kCellHeaderBytes + key_bytes > bytes) {
    return std::nullopt;
  }
  return std::string_view(reinterpret_cast<const char*>(image + kCellHeaderBytes), key_bytes);
}

void StoreInline(std::string_view value, std::string* stored) {
  stored->assign(1, static_cast<char>(kInline));
  stored->append(value);
}

void StoreReference(const CellReference& reference, std::string* stored) {
  std::byte bytes[kStoredReferenceBytes];
  wire::StoreAs(bytes, kInCell);
  reference.cell.Store(bytes + 1);
  wire::StoreAs(bytes + 13, reference.value_bytes);
  wire::StoreAs(bytes + 17, reference.checksum);
  stored->assign(reinterpret_cast<const char*>(bytes), sizeof(bytes));
}

std::optional<StoredValue> ParseStored(std::string_view stored) {
  if (stored.empty()) return std::nullopt;
  StoredValue parsed;
  if (static_cast<uint8_t>(stored[0]) == kInline) {
    parsed.inlined = stored.substr(1);
    return parsed;
  }
  if (static_cast<uint8_t>(stored[0]) != kInCell || stored.size() != kStoredReferenceBytes) {
    return std::nullopt;
  }
  const auto* const bytes = reinterpret_cast<const std::byte*>(stored.data());
  CellReference& reference = parsed.reference.emplace();
  reference.cell = Reference::Load(bytes + 1);
  reference.value_bytes = wire::LoadAs<uint32_t>(bytes + 13);
  reference.checksum = wire::LoadAs<uint32_t>(bytes + 17);
  const RemoteAddress at = reference.cell.address;
  if (at.is_null() || at.offset() % kLineBytes != 0 || reference.value_bytes > kLargeValueBytesMax)
    return std::nullopt;
  return parsed;
}

}  // namespace pando
