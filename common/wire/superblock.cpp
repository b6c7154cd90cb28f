#include "common/wire/superblock.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "common/wire/crc32c.h"
#include "common/wire/dead_table.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_layout.h"

namespace pando {
namespace {

static_assert(offsetof(Superblock, crc) == 88, "no padding before the checksum");

uint32_t ChecksumOf(const Superblock& superblock) {
  return Crc32c(&superblock, offsetof(Superblock, crc));
}

// Root records, the dead, then chunks, one behind the other and inside the region.
bool GeometryHolds(const Superblock& s) {
  const uint64_t root_end = s.root_offset + uint64_t{kRootRecordsMax} * kLineBytes;
  const uint64_t dead_end = s.dead_offset + kDeadTableBytes;
  const uint64_t chunks = uint64_t{s.chunk_count} * s.chunk_bytes;
  return s.region_bytes <= RemoteAddress::kOffsetMask && s.root_offset >= sizeof(Superblock) &&
         s.root_offset <= s.region_bytes && root_end <= s.dead_offset &&
         s.dead_offset <= s.region_bytes && dead_end <= s.chunk_offset &&
         s.chunk_offset <= s.region_bytes && chunks <= s.region_bytes - s.chunk_offset &&
         s.root_offset % kLineBytes == 0 && s.dead_offset % kLineBytes == 0 &&
         s.chunk_offset % kLineBytes == 0 && s.chunk_bytes % kLineBytes == 0 &&
         (s.chunk_count == 0 || s.chunk_bytes > 0) && s.lock_words > kRootLockWords &&
         s.packet_bytes >= kLineBytes;
}

}  // namespace

void SealSuperblock(Superblock* superblock) { superblock->crc = ChecksumOf(*superblock); }

absl::Status ValidateSuperblock(const Superblock& superblock) {
  if (superblock.magic != kSuperblockMagic) {
    return absl::DataLossError("superblock: not a region of pando-memory");
  }
  if (superblock.version !=
      kFormatVersion) {  // before the checksum, which another version may place elsewhere
    return absl::FailedPreconditionError(absl::StrCat(
        "superblock: format version ", superblock.version, ", this program reads version ",
        kFormatVersion, "; use the release that formatted the server"));
  }
  if (superblock.crc != ChecksumOf(superblock)) {
    return absl::DataLossError("superblock: checksum does not match");
  }
  const uint64_t unknown = superblock.features.incompatible & ~kKnownFeatures.incompatible;
  if (unknown != 0) {
    return absl::FailedPreconditionError(absl::StrCat("superblock: incompatible features ",
                                                      absl::Hex(unknown),
                                                      " (hex) are unknown to this program"));
  }
  if (!GeometryHolds(superblock)) {
    return absl::DataLossError(
        "superblock: root records, the dead or chunks lie outside the region");
  }
  return absl::OkStatus();
}

}  // namespace pando
