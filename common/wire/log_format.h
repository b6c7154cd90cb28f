// The bytes of a redo log (rule W2): two base lines, then a ring of batches of messages.
//
//   extent     base line 0, base line 1, ring: whole lines of 64 bytes
//   both       CRC32C of all behind it 0..3, seed 4..7, log id 8..15, counter 16..23, first LSN of
//              the batch 24..31, epoch 32..35
//   base line  offset 36..43, sequence 44..51, LSN 52..59, zeros
//   batch      bytes 36..37, kind 38, zero; messages from 40 on; zeros to the end of the line
//   message    kind, key length, value length, tree id (4 bytes), key, value
//
// Thread safety: pure functions. Invariants:
//   1. Bytes that are parsed are any bytes. Nothing is read outside of what was given.
//   2. What LookAtLogBatch() takes was written as that batch, whole: its checksum goes over all of
//      its lines, and over the checksum of the batch before it, as their checksums do over the
//      batches before them. So a batch of another log, epoch or turn of the ring is none, whatever
//      its own checksum says; nor is one behind a batch that is not there. Of a filler only the
//      first line is written, and counts.
//   3. A base line with an even sequence is line 0, one with an odd one line 1: the one that is
//      being written is never the last one that is complete.
//   4. Memory that is all zero holds neither: log ids are not 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/wire/lsn.h"

namespace pando {

inline constexpr uint32_t kLogLineBytes = 64;
inline constexpr uint32_t kLogRingOffset = 2 * kLogLineBytes;  // in the extent
inline constexpr uint32_t kLogBatchHeaderBytes = 40;
inline constexpr uint32_t kLogBatchBytesMax = 64 << 10;  // in whole lines
inline constexpr uint32_t kLogMessageHeaderBytes = 7;

// One logged change.
struct LogMessage {
  enum class Kind : uint8_t { kPut = 1, kErase = 2 };
  Kind kind = Kind::kPut;
  uint32_t tree_id = 0;
  std::string_view key;    // 1 to 255 bytes
  std::string_view value;  // of a put: up to 255 bytes
};

constexpr uint32_t LogMessageBytes(size_t key_bytes, size_t value_bytes) {
  return static_cast<uint32_t>(kLogMessageHeaderBytes + key_bytes + value_bytes);
}
constexpr uint64_t LogLinesBytes(uint64_t bytes) {
  return (bytes + kLogLineBytes - 1) / kLogLineBytes * kLogLineBytes;
}

// What a batch has to say to be a log's next.
struct LogPlace {
  uint64_t log_id = 0;  // not 0
  uint32_t epoch = 0;   // of the extent: another one has another
  uint32_t seed = 0;    // the checksum of the batch before, 0 of the first
  uint64_t counter = 1;
  Lsn lsn = 1;  // of its first message

  friend bool operator==(const LogPlace&, const LogPlace&) = default;
};

// Writes the message there, LogMessageBytes() long.
void EncodeLogMessage(const LogMessage& message, std::byte* to);
// Gives each message of a batch to `take`, and its first error back. DataLoss: these are no
// messages.
absl::Status ParseLogMessages(std::string_view messages,
                              absl::FunctionRef<absl::Status(const LogMessage&)> take);

// Writes the header before `bytes` of messages; all the rest of `lines` is zero. Returns the seed
// of the next batch.
uint32_t SealLogBatch(const LogPlace& place, std::span<std::byte> lines, uint32_t bytes);
// `line`: the first line of what is left of the ring.
uint32_t SealLogFiller(const LogPlace& place, std::span<std::byte> line);

struct LogBatchView {
  // kNone: the log has ended before these bytes. kShort: it may be one, of `bytes`, more than were
  // given.
  enum class Kind : uint8_t { kNone, kShort, kBatch, kFiller };
  Kind kind = Kind::kNone;
  uint32_t bytes = 0;         // whole lines; of a filler: its first
  uint32_t seed = 0;          // of the next one
  std::string_view messages;  // of a batch
};
LogBatchView LookAtLogBatch(std::span<const std::byte> bytes, const LogPlace& next);

struct LogBaseLine {
  uint64_t sequence = 0;  // how-manieth base line
  Lsn lsn = 1;            // nobody needs what is below
  uint64_t offset =
      0;           // in the ring, of the batch that the log is read from; it may begin below `lsn`
  LogPlace place;  // of that batch
};
void EncodeLogBaseLine(const LogBaseLine& base, std::span<std::byte, kLogLineBytes> line);
// Nothing: it is none of this log and epoch, or damaged.
std::optional<LogBaseLine> ParseLogBaseLine(std::span<const std::byte, kLogLineBytes> line,
                                            uint64_t log_id, uint32_t epoch);

}  // namespace pando
