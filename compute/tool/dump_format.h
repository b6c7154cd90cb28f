// The format of `pando dump`: a stream of a tree's options and entries that says by itself where it
// is damaged, or how far it is whole. All numbers are little-endian.
//
//   header   magic (8) | version (4) | bytes of JSON (4) | JSON | CRC32C of all that (4)
//   block    kind (4) | records (4) | payload bytes (4) | CRC32C of the payload (4) | number (8) |
//            CRC32C of these 24 bytes (4) | payload
//   record   key bytes (1) | value bytes (1; in version 2: 4) | key | value
//   end      as a block of no records; its payload: records (8) | blocks (8) | CRC32C of all
//            payloads together (4)
//
// The JSON is an object with key_bytes_max, value_bytes_max, node_bytes and mode of the tree, and
// narrow_reads (true), delete_persistence_ms and inline_value_bytes_max of those that have it;
// releases that do not know these restore a tree without. A tree whose values have up to 255 bytes
// is dumped as version 1, which every release reads, others as version 2.
//
// Invariants
// 1. The same options and entries make the same bytes: a block ends with the record with which it
//    has kBlockBytes, and nothing else, as a time or the name of the tree, is in it.
// 2. Keys ascend strictly, from block to block, too; blocks are numbered from 0.
// 3. A length is believed after its CRC32C, and only up to its limit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando::tool {

inline constexpr std::string_view kDumpMagic = "PANDODMP";
inline constexpr uint32_t kDumpVersionMin = 1, kDumpVersionMax = 2;
inline constexpr size_t kDumpHeaderFixedBytes = 16, kDumpBlockHeaderBytes = 28;
inline constexpr size_t kDumpEndPayloadBytes = 20;
inline constexpr size_t kDumpJsonBytesMax = 4096;
inline constexpr size_t kDumpKeyBytesMax = 255;
inline constexpr size_t kDumpShortValueBytesMax = 255, kDumpValueBytesMax = 64 << 10;
inline constexpr size_t kDumpBlockBytes = 64 << 10;

// What a tree needs to be made again.
struct DumpOptions {
  uint32_t key_bytes_max = 0, value_bytes_max = 0, node_bytes = 0;
  bool owned = false, narrow_reads = false;
  uint32_t delete_persistence_ms = 0;   // of an owned one; 0: none
  uint32_t inline_value_bytes_max = 0;  // 0: all values are in their leaves
  uint32_t Version() const { return value_bytes_max <= kDumpShortValueBytesMax ? 1 : 2; }
  size_t LengthsBytes() const { return Version() == 1 ? 2 : 5; }  // of a record
  // That a record can say.
  size_t ValueBytesLimit() const {
    return Version() == 1 ? kDumpShortValueBytesMax : kDumpValueBytesMax;
  }
  // Of a block: the last record begins where there is a byte of room.
  size_t PayloadBytesMax() const {
    return kDumpBlockBytes + LengthsBytes() + kDumpKeyBytesMax + ValueBytesLimit();
  }
  friend bool operator==(const DumpOptions&, const DumpOptions&) = default;
};
std::string DumpOptionsText(const DumpOptions& options);  // JSON
// InvalidArgument: no object with these members, or values that no tree has.
absl::StatusOr<DumpOptions> ParseDumpOptions(std::string_view json);

struct DumpBlockHeader {
  enum Kind : uint32_t { kRecords = 0x4b4c4221, kEnd = 0x444e4521 };  // "!BLK", "!END"
  uint32_t kind = kRecords, records = 0, payload_bytes = 0, payload_crc = 0;
  uint64_t number = 0;
};
std::string EncodeDumpHeader(const DumpOptions& options);
std::string EncodeDumpBlockHeader(const DumpBlockHeader& header);

// Of what has been written or read so far.
struct DumpTotals {
  uint64_t records = 0, blocks = 0;
  uint32_t payload_crc = 0;  // of all payloads together
};

// Makes a dump, block by block. Not thread-safe.
class DumpWriter {
 public:
  // Gets whole blocks. Where it fails the dump has failed.
  using Sink = std::function<absl::Status(std::string_view bytes)>;
  explicit DumpWriter(Sink sink) : sink_(std::move(sink)) {}

  absl::Status Begin(const DumpOptions& options) {
    options_ = options;
    return sink_(EncodeDumpHeader(options));
  }
  // Instead of Begin(): behind blocks that are there already.
  void GoOnAfter(const DumpOptions& options, const DumpTotals& totals) {
    options_ = options;
    totals_ = totals;
  }
  // In the order of keys, which have 1 to 255 bytes; values have at most 255, in version 2 65,536
  // (CHECKed).
  absl::Status Add(std::string_view key, std::string_view value);
  absl::Status Finish();
  // With the block that is being filled.
  uint64_t records() const { return totals_.records + block_records_; }
  const DumpTotals& totals() const { return totals_; }

 private:
  absl::Status CloseBlock();

  const Sink sink_;
  DumpOptions options_;
  DumpTotals totals_;
  std::string payload_;
  uint32_t block_records_ = 0;
};

}  // namespace pando::tool
