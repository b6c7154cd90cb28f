// Layout of a memory server's region.
//
//   0                  superblock (one 4 KiB page)
//   root_offset        root records: kRootRecordsMax lines of 64 bytes (used on the catalog server)
//   dead_offset        the dead (dead_table.h): one 4 KiB page
//   chunk_offset       chunks of chunk_bytes each, to the end of the region
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"

namespace pando {

inline constexpr uint64_t kSuperblockMagic = 0x6b6c6f66646e6170;
inline constexpr uint32_t kFormatVersion = 2;
inline constexpr uint32_t kRootRecordsMax = 256;  // one root lock word each (lock_word.h)

// Feature masks: an unknown incompatible bit is refused at open, an unknown read-compatible bit
// allows reads only.
struct FeatureMasks {
  uint64_t compatible = 0;
  uint64_t read_compatible = 0;
  uint64_t incompatible = 0;
};
// Rule F1: lines carry checksums, those of a slot's lines one after the other (rule F2). Bit 0 was
// checksums of single lines; what knows only that is refused, and refused.
inline constexpr uint64_t kIncompatibleLineCrc = 2;
inline constexpr FeatureMasks kKnownFeatures = {0, 0, kIncompatibleLineCrc};
// Features of trees: their entries in the catalog have them besides those of the catalog's server,
// and no server has them.
inline constexpr uint64_t kIncompatibleOwned = 4;    // rule O1
inline constexpr uint64_t kIncompatibleWindows = 8;  // rule N1
inline constexpr uint64_t kIncompatibleCells = 16;   // rule K1
// Rule K6: of trees with both of these. Releases without it know each by itself.
inline constexpr uint64_t kIncompatibleOwnedCells = 32;
inline constexpr FeatureMasks kKnownTreeFeatures = {
    0, 0,
    kKnownFeatures.incompatible | kIncompatibleOwned | kIncompatibleWindows | kIncompatibleCells |
        kIncompatibleOwnedCells};

struct Superblock {
  uint64_t magic = kSuperblockMagic;
  uint32_t version = kFormatVersion;
  uint16_t server_id = 0;
  uint16_t reserved = 0;
  FeatureMasks features;
  uint64_t region_bytes = 0;
  uint64_t root_offset = 0;
  uint64_t dead_offset = 0;
  uint64_t chunk_offset = 0;
  uint32_t chunk_bytes = 0;
  uint32_t chunk_count = 0;
  uint32_t lock_words = 0;
  uint32_t packet_bytes = 0;  // rule F6
  uint32_t crc = 0;           // CRC32C of all bytes before this field
  uint32_t padding = 0;
};
static_assert(std::is_trivially_copyable_v<Superblock>);
static_assert(sizeof(Superblock) == 96);

void SealSuperblock(Superblock* superblock);
// DataLoss (damaged), FailedPrecondition (other version, unknown incompatible feature).
absl::Status ValidateSuperblock(const Superblock& superblock);

}  // namespace pando
