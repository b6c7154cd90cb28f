#include "memory/region.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/wire/dead_table.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_layout.h"

namespace pando::memory {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint32_t kPacketBytesMin = 1024;  // a slot of 255/255 is 640 bytes
constexpr uint32_t kPacketBytesMax = 64 * 1024;

bool Holds(const ClientId& client, uint64_t word) {
  const LockWord holder = LockWord::Decode(word);
  return holder.owner == client.compute_server && holder.incarnation == client.incarnation;
}

uint64_t RoundUp(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// The largest power of two that still gives kChunksWanted chunks, within the bounds.
uint32_t ChooseChunkBytes(uint64_t bytes, uint32_t upper_bound) {
  const uint64_t even = std::bit_floor(std::max<uint64_t>(bytes / Region::kChunksWanted, 1));
  return static_cast<uint32_t>(std::clamp<uint64_t>(even, Region::kChunkBytesMin, upper_bound));
}

// Where the parts of a region begin.
struct Places {
  uint64_t roots = kPageBytes;
  uint64_t dead = RoundUp(kPageBytes + uint64_t{kRootRecordsMax} * kLineBytes, kPageBytes);
  uint64_t chunks = RoundUp(dead + kDeadTableBytes, kPageBytes);
};

}  // namespace

absl::Status Region::CheckBytes(uint64_t main_bytes) {
  if (main_bytes > RemoteAddress::kOffsetMask) {
    return absl::InvalidArgumentError("a region has less than 256 TiB");
  }
  const uint64_t needed = Places{}.chunks + uint64_t{kChunksMin} * kChunkBytesMin;
  if (main_bytes >= needed) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("a region of ", FormatBytes(main_bytes),
                                                 " is too small: at least ", FormatBytes(needed)));
}

absl::Status Region::Check(const ServerMemory& memory, const RegionOptions& options) {
  if (options.chunk_bytes < kChunkBytesMin || !std::has_single_bit(options.chunk_bytes)) {
    return absl::InvalidArgumentError(absl::StrCat("chunk size ", options.chunk_bytes,
                                                   " must be a power of two of at least ",
                                                   kChunkBytesMin));
  }
  if (options.packet_bytes < kPacketBytesMin || options.packet_bytes > kPacketBytesMax ||
      options.packet_bytes % kLineBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("packet size ", options.packet_bytes, " must be a multiple of ", kLineBytes,
                     " between ", kPacketBytesMin, " and ", kPacketBytesMax));
  }
  const uint64_t lock_words = memory.lock_words();
  if (lock_words <= kRootLockWords || lock_words > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(lock_words, " lock words: more than ", kRootLockWords, " are needed"));
  }
  return CheckBytes(memory.main.size());
}

absl::StatusOr<Region> Region::Format(const ServerMemory& memory, const RegionOptions& options) {
  PANDO_RETURN_IF_ERROR(Check(memory, options));
  PANDO_CHECK(reinterpret_cast<uintptr_t>(memory.main.data()) % kLineBytes == 0);
  Superblock superblock;
  superblock.server_id = options.server_id;
  superblock.features.incompatible = options.needs_crc ? kIncompatibleLineCrc : 0;
  superblock.region_bytes = memory.main.size();
  const Places places;
  superblock.root_offset = places.roots;
  superblock.dead_offset = places.dead;
  superblock.chunk_offset = places.chunks;
  const uint64_t for_chunks = memory.main.size() - superblock.chunk_offset;
  superblock.chunk_bytes = ChooseChunkBytes(for_chunks, options.chunk_bytes);
  superblock.chunk_count =
      static_cast<uint32_t>(std::min<uint64_t>(for_chunks / superblock.chunk_bytes, UINT32_MAX));
  superblock.lock_words = static_cast<uint32_t>(memory.lock_words());
  superblock.packet_bytes = options.packet_bytes;
  SealSuperblock(&superblock);

  Region region(memory, superblock);
  std::array<std::byte, sizeof(Superblock)> bytes;
  std::memcpy(bytes.data(), &superblock, sizeof(superblock));
  region.Write(0, bytes.data(), bytes.size());
  return region;
}

uint64_t Region::RootRecordOffset(uint32_t index) const {
  PANDO_CHECK(index < kRootRecordsMax);
  return superblock_.root_offset + uint64_t{index} * kLineBytes;
}

uint64_t Region::ChunkOffset(uint32_t chunk) const {
  return superblock_.chunk_offset + uint64_t{chunk} * superblock_.chunk_bytes;
}

uint64_t* Region::Words(uint64_t offset, uint64_t bytes) const {
  PANDO_CHECK(offset % 8 == 0 && bytes % 8 == 0 && bytes <= memory_.main.size() &&
              offset <= memory_.main.size() - bytes);
  return reinterpret_cast<uint64_t*>(memory_.main.data() + offset);
}

void Region::Read(uint64_t offset, std::byte* to, uint64_t bytes) const {
  uint64_t* const words = Words(offset, bytes);
  for (uint64_t i = bytes / 8; i-- > 0;) {
    const uint64_t word = std::atomic_ref<uint64_t>(words[i]).load(std::memory_order_acquire);
    std::memcpy(to + i * 8, &word, 8);
  }
}

void Region::Write(uint64_t offset, const std::byte* from, uint64_t bytes) {
  uint64_t* const words = Words(offset, bytes);
  for (uint64_t i = 0; i < bytes / 8; ++i) {
    uint64_t word;
    std::memcpy(&word, from + i * 8, 8);
    std::atomic_ref<uint64_t>(words[i]).store(word, std::memory_order_release);
  }
}

void Region::Zero(uint64_t offset, uint64_t bytes) {
  uint64_t* const words = Words(offset, bytes);
  for (uint64_t i = 0; i < bytes / 8; ++i) {
    std::atomic_ref<uint64_t>(words[i]).store(0, std::memory_order_release);
  }
}

uint64_t Region::UsedPrefix(uint64_t offset, uint64_t bytes) const {
  uint64_t* const words = Words(offset, bytes);
  uint64_t used = bytes / 8;
  while (used > 0 &&
         std::atomic_ref<uint64_t>(words[used - 1]).load(std::memory_order_acquire) == 0)
    --used;
  return used * 8;
}

absl::Status Region::ClearLockWord(uint32_t index) {
  PANDO_CHECK(index < superblock_.lock_words);
  if (memory_.lock_table != nullptr) return ClearInTable(index);
  auto* const words = reinterpret_cast<uint64_t*>(memory_.locks.data());
  std::atomic_ref<uint64_t>(words[index]).store(LockWord::kFree, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status Region::ClearInTable(uint32_t index) {
  uint64_t expected = LockWord::kFree;
  for (;;) {
    PANDO_ASSIGN_OR_RETURN(const uint64_t found,
                           memory_.lock_table->CompareSwap(index, expected, LockWord::kFree));
    if (found == expected) return absl::OkStatus();
    expected = found;
  }
}

void Region::PublishDead(const ClientId& client) {
  const uint64_t entry = DeadEntry(client.compute_server, client.incarnation);
  std::array<std::byte, sizeof(entry)> bytes;
  std::memcpy(bytes.data(), &entry, sizeof(entry));
  Write(superblock_.dead_offset + DeadEntryOffset(client.compute_server), bytes.data(),
        bytes.size());
}

absl::StatusOr<uint32_t> Region::ClearLockWords(const ClientId& client, uint32_t first,
                                                uint32_t count) {
  PANDO_CHECK(first <= superblock_.lock_words && count <= superblock_.lock_words - first);
  if (memory_.lock_table != nullptr) return ClearWordsInTable(client, first, count);
  auto* const words = reinterpret_cast<uint64_t*>(memory_.locks.data());
  uint32_t cleared = 0;
  for (uint32_t i = first; i < first + count; ++i) {
    const std::atomic_ref<uint64_t> word(words[i]);
    uint64_t value = word.load(std::memory_order_acquire);
    if (!Holds(client, value)) continue;
    // A client that has READ the table may have taken it over meanwhile: then it has the lock (rule
    // C3).
    cleared += word.compare_exchange_strong(value, LockWord::kFree);
  }
  return cleared;
}

absl::StatusOr<uint32_t> Region::ClearWordsInTable(const ClientId& client, uint32_t first,
                                                   uint32_t count) {
  constexpr uint32_t kWordsAtOnce = 512;
  std::array<uint64_t, kWordsAtOnce> words;
  uint32_t cleared = 0;
  for (uint32_t at = first; at < first + count; at += kWordsAtOnce) {
    const std::span<uint64_t> part =
        std::span(words).first(std::min(kWordsAtOnce, first + count - at));
    PANDO_RETURN_IF_ERROR(memory_.lock_table->Read(at, part));
    for (size_t i = 0; i < part.size(); ++i) {
      if (!Holds(client, part[i])) continue;
      PANDO_ASSIGN_OR_RETURN(const uint64_t found,
                             memory_.lock_table->CompareSwap(at + i, part[i], LockWord::kFree));
      cleared += found == part[i];
    }
  }
  return cleared;
}

}  // namespace pando::memory
