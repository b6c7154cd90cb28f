// The memory a server offers, formatted: superblock, root records, the dead, chunks
// (common/wire/superblock.h).
//
// Everything written here may be READ by clients at the same moment, so every access is a copy of
// aligned 8-byte words, upwards, with release stores (rule F1). Not thread-safe on the server's
// side: one control thread. Invariants:
//   1. chunk_offset + chunk_count * chunk_bytes <= region_bytes.
//   2. A chunk holds at least one node of any legal size (chunk_bytes >= kNodeBytesMax).
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/fabric/server.h"
#include "common/wire/superblock.h"
#include "memory/client_id.h"

namespace pando::memory {

struct RegionOptions {
  ServerId server_id = 1;
  uint32_t chunk_bytes = 4 << 20;  // upper bound, a power of two: small regions get smaller chunks
  uint32_t packet_bytes = 4096;    // rule F6: largest WRITE that is whole or absent
  bool needs_crc = false;          // rule F1: lines carry checksums
};

class Region {
 public:
  // Small regions still get this many chunks, so that many clients and trees can hold one each.
  static constexpr uint32_t kChunksWanted = 64;
  static constexpr uint32_t kChunkBytesMin = 64 * 1024;
  static constexpr uint32_t kChunksMin = 2;

  // InvalidArgument: sizes that cannot work, saying which and what would. CheckBytes: of the main
  // memory alone.
  static absl::Status CheckBytes(uint64_t main_bytes);
  static absl::Status Check(const ServerMemory& memory, const RegionOptions& options);
  // Formats fresh (zero) memory that passes Check().
  static absl::StatusOr<Region> Format(const ServerMemory& memory, const RegionOptions& options);

  const Superblock& superblock() const { return superblock_; }
  ServerId server_id() const { return superblock_.server_id; }
  bool crc() const { return (superblock_.features.incompatible & kIncompatibleLineCrc) != 0; }
  uint64_t RootRecordOffset(uint32_t index) const;
  uint64_t ChunkOffset(uint32_t chunk) const;

  // Offsets and sizes are multiples of 8 inside the region (CHECKed: callers validated what clients
  // sent).
  void Read(uint64_t offset, std::byte* to, uint64_t bytes) const;
  void Write(uint64_t offset, const std::byte* from, uint64_t bytes);
  void Zero(uint64_t offset, uint64_t bytes);
  // Bytes from `offset` up to the last word that is not zero, 0 if there is none.
  uint64_t UsedPrefix(uint64_t offset, uint64_t bytes) const;
  // Unavailable: the NIC that the words are on failed; the word may stay taken.
  absl::Status ClearLockWord(uint32_t index);
  // Rule C2. PublishDead: from now on a READ of the table shows that this life is dead.
  // ClearLockWords: frees those of `count` words from `first` on that this life holds, by CAS, and
  // no others; how many. Unavailable: as above, some may be left; they can be gone over again.
  void PublishDead(const ClientId& client);
  absl::StatusOr<uint32_t> ClearLockWords(const ClientId& client, uint32_t first, uint32_t count);

 private:
  Region(const ServerMemory& memory, const Superblock& superblock)
      : memory_(memory), superblock_(superblock) {}
  uint64_t* Words(uint64_t offset, uint64_t bytes) const;
  absl::Status ClearInTable(uint32_t index);
  absl::StatusOr<uint32_t> ClearWordsInTable(const ClientId& client, uint32_t first,
                                             uint32_t count);

  ServerMemory memory_;
  Superblock superblock_;
};

}  // namespace pando::memory
