#include "common/wire/log_format.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/wire/crc32c.h"

namespace pando {
namespace {

enum class BatchKind : uint8_t { kMessages = 1, kFiller = 2 };

// Offsets; what a base line and a batch share lies at the same.
constexpr size_t kSeedAt = 4, kLogIdAt = 8, kCounterAt = 16, kLsnAt = 24, kEpochAt = 32;
constexpr size_t kBytesAt = 36, kKindAt = 38, kZeroAt = 39;
constexpr size_t kOffsetAt = 36, kSequenceAt = 44, kBaseLsnAt = 52, kBaseZeroAt = 60;

template <typename T>
void Put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}
template <typename T>
T Take(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

void PutPlace(const LogPlace& place, std::byte* to) {
  PANDO_CHECK(place.log_id != 0) << "a log without an id";
  Put(to + kSeedAt, place.seed);
  Put(to + kLogIdAt, place.log_id);
  Put(to + kCounterAt, place.counter);
  Put(to + kLsnAt, place.lsn);
  Put(to + kEpochAt, place.epoch);
}
LogPlace TakePlace(const std::byte* from) {
  return {.log_id = Take<uint64_t>(from + kLogIdAt),
          .epoch = Take<uint32_t>(from + kEpochAt),
          .seed = Take<uint32_t>(from + kSeedAt),
          .counter = Take<uint64_t>(from + kCounterAt),
          .lsn = Take<uint64_t>(from + kLsnAt)};
}

uint32_t ChecksumOf(std::span<const std::byte> lines) {
  return Crc32c(lines.data() + kSeedAt, lines.size() - kSeedAt);
}

uint32_t Seal(const LogPlace& place, std::span<std::byte> lines, uint32_t bytes, BatchKind kind) {
  PutPlace(place, lines.data());
  Put(lines.data() + kBytesAt, static_cast<uint16_t>(bytes));
  Put(lines.data() + kKindAt, kind);
  Put(lines.data() + kZeroAt, uint8_t{0});
  const uint32_t checksum = ChecksumOf(lines);
  Put(lines.data(), checksum);
  return checksum;
}

absl::Status MessageError(std::string_view what) {
  return absl::DataLossError(absl::StrCat(
      "a batch of a redo log has the right checksum, but no messages in it: ", std::string(what)));
}

}  // namespace

void EncodeLogMessage(const LogMessage& message, std::byte* to) {
  constexpr size_t kLengthMax = std::numeric_limits<uint8_t>::max();
  PANDO_DCHECK(!message.key.empty() && message.key.size() <= kLengthMax);
  PANDO_DCHECK(message.value.size() <= kLengthMax);
  Put(to, message.kind);
  Put(to + 1, static_cast<uint8_t>(message.key.size()));
  Put(to + 2, static_cast<uint8_t>(message.value.size()));
  Put(to + 3, message.tree_id);
  std::memcpy(to + kLogMessageHeaderBytes, message.key.data(), message.key.size());
  if (message.value.empty()) return;  // it may have no data()
  std::memcpy(to + kLogMessageHeaderBytes + message.key.size(), message.value.data(),
              message.value.size());
}

absl::Status ParseLogMessages(std::string_view messages,
                              absl::FunctionRef<absl::Status(const LogMessage&)> take) {
  while (!messages.empty()) {
    if (messages.size() < kLogMessageHeaderBytes) return MessageError("the last one is cut off");
    const auto* const at = reinterpret_cast<const std::byte*>(messages.data());
    LogMessage message;
    message.kind = Take<LogMessage::Kind>(at);
    const size_t key_bytes = Take<uint8_t>(at + 1), value_bytes = Take<uint8_t>(at + 2);
    message.tree_id = Take<uint32_t>(at + 3);
    const bool is_erase = message.kind == LogMessage::Kind::kErase;
    if (!is_erase && message.kind != LogMessage::Kind::kPut) return MessageError("unknown kind");
    if (key_bytes == 0) return MessageError("a key of no bytes");
    if (is_erase && value_bytes != 0) return MessageError("an erase with a value");
    const size_t bytes = LogMessageBytes(key_bytes, value_bytes);
    if (messages.size() < bytes) return MessageError("the last one is cut off");
    message.key = messages.substr(kLogMessageHeaderBytes, key_bytes);
    message.value = messages.substr(kLogMessageHeaderBytes + key_bytes, value_bytes);
    if (absl::Status status = take(message); !status.ok()) return status;
    messages.remove_prefix(bytes);
  }
  return absl::OkStatus();
}

uint32_t SealLogBatch(const LogPlace& place, std::span<std::byte> lines, uint32_t bytes) {
  PANDO_CHECK_EQ(lines.size(), LogLinesBytes(kLogBatchHeaderBytes + bytes));
  PANDO_CHECK_LE(lines.size(), kLogBatchBytesMax);
  return Seal(place, lines, bytes, BatchKind::kMessages);
}

uint32_t SealLogFiller(const LogPlace& place, std::span<std::byte> line) {
  PANDO_CHECK_EQ(line.size(), kLogLineBytes);
  std::fill(line.begin(), line.end(), std::byte{0});
  return Seal(place, line, 0, BatchKind::kFiller);
}

LogBatchView LookAtLogBatch(std::span<const std::byte> bytes, const LogPlace& next) {
  LogBatchView view;
  if (bytes.size() < kLogLineBytes) return view;
  const std::byte* const at = bytes.data();
  const LogPlace place = TakePlace(at);
  // In the variant any of the log does.
  const bool follows = place == next || (place.log_id == next.log_id && place.epoch == next.epoch &&
                                         !RuleHolds(Rule::kW2));
  if (!follows || next.log_id == 0) return view;
  const auto kind = Take<BatchKind>(at + kKindAt);
  const uint32_t message_bytes = Take<uint16_t>(at + kBytesAt);
  const bool is_filler = kind == BatchKind::kFiller && message_bytes == 0;
  const bool is_batch = kind == BatchKind::kMessages && message_bytes > 0;
  const auto lines = static_cast<uint32_t>(LogLinesBytes(kLogBatchHeaderBytes + message_bytes));
  if ((!is_filler && !is_batch) || lines > kLogBatchBytesMax) return view;
  view.bytes = lines;
  if (lines > bytes.size()) {
    view.kind = LogBatchView::Kind::kShort;
    return view;
  }
  view.seed = ChecksumOf(bytes.first(lines));
  if (view.seed != Take<uint32_t>(at)) return {};
  view.kind = is_filler ? LogBatchView::Kind::kFiller : LogBatchView::Kind::kBatch;
  view.messages = {reinterpret_cast<const char*>(at) + kLogBatchHeaderBytes, message_bytes};
  return view;
}

void EncodeLogBaseLine(const LogBaseLine& base, std::span<std::byte, kLogLineBytes> line) {
  PutPlace(base.place, line.data());
  Put(line.data() + kOffsetAt, base.offset);
  Put(line.data() + kSequenceAt, base.sequence);
  Put(line.data() + kBaseLsnAt, base.lsn);
  Put(line.data() + kBaseZeroAt, uint32_t{0});
  Put(line.data(), ChecksumOf(line));
}

std::optional<LogBaseLine> ParseLogBaseLine(std::span<const std::byte, kLogLineBytes> line,
                                            uint64_t log_id, uint32_t epoch) {
  LogBaseLine base;
  base.place = TakePlace(line.data());
  if (base.place.log_id != log_id || base.place.epoch != epoch || log_id == 0) return std::nullopt;
  if (Take<uint32_t>(line.data()) != ChecksumOf(line)) return std::nullopt;
  base.offset = Take<uint64_t>(line.data() + kOffsetAt);
  base.sequence = Take<uint64_t>(line.data() + kSequenceAt);
  base.lsn = Take<uint64_t>(line.data() + kBaseLsnAt);
  if (base.offset % kLogLineBytes != 0 || base.lsn < base.place.lsn || base.place.lsn == kNoLsn) {
    return std::nullopt;
  }
  return base;
}

}  // namespace pando
