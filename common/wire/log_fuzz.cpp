// Fuzz target: whatever lies where a redo log should be is its next batch or the end of the log,
// and what is taken for a message or a base line is written again as the same bytes.
#include <algorithm>
#include <cstring>

#include "common/base/check.h"
#include "common/base/fuzz.h"
#include "common/wire/log_format.h"

namespace pando {
namespace {

constexpr LogPlace kNext = {.log_id = 7, .epoch = 3, .seed = 11, .counter = 5, .lsn = 100};

void CheckMessages(std::string_view messages) {
  std::string again;
  const absl::Status status = ParseLogMessages(messages, [&](const LogMessage& message) {
    std::string bytes(LogMessageBytes(message.key.size(), message.value.size()), '\0');
    EncodeLogMessage(message, reinterpret_cast<std::byte*>(bytes.data()));
    again += bytes;
    return absl::OkStatus();
  });
  PANDO_CHECK(status.ok() ? again == messages : messages.starts_with(again));
}

void CheckBatch(std::span<const std::byte> bytes) {
  const LogBatchView view = LookAtLogBatch(bytes, kNext);
  if (view.kind == LogBatchView::Kind::kNone || view.kind == LogBatchView::Kind::kShort) return;
  PANDO_CHECK_LE(view.bytes, bytes.size());
  CheckMessages(view.messages);
}

void CheckBase(std::span<const std::byte, kLogLineBytes> line) {
  const auto base = ParseLogBaseLine(line, kNext.log_id, kNext.epoch);
  if (!base.has_value()) return;
  std::byte again[kLogLineBytes];
  EncodeLogBaseLine(*base, again);
  PANDO_CHECK(ParseLogBaseLine(again, kNext.log_id, kNext.epoch)->place == base->place);
}

// Any bytes, as a batch with the right checksum.
void CheckSealed(std::string_view messages) {
  const size_t most = kLogBatchBytesMax - kLogBatchHeaderBytes;
  messages = messages.substr(0, most);
  if (messages.empty()) return;
  std::vector<std::byte> lines(LogLinesBytes(kLogBatchHeaderBytes + messages.size()));
  std::memcpy(lines.data() + kLogBatchHeaderBytes, messages.data(), messages.size());
  const uint32_t seed = SealLogBatch(kNext, lines, static_cast<uint32_t>(messages.size()));
  const LogBatchView view = LookAtLogBatch(lines, kNext);
  PANDO_CHECK(view.kind == LogBatchView::Kind::kBatch && view.seed == seed &&
              view.messages == messages);
  CheckBatch(lines);
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::string messages(LogMessageBytes(3, 5) + LogMessageBytes(3, 0), '\0');
  auto* const at = reinterpret_cast<std::byte*>(messages.data());
  EncodeLogMessage({.tree_id = 2, .key = "abc", .value = "12345"}, at);
  EncodeLogMessage({.kind = LogMessage::Kind::kErase, .tree_id = 2, .key = "abd"},
                   at + LogMessageBytes(3, 5));
  std::string batch(LogLinesBytes(kLogBatchHeaderBytes + messages.size()), '\0');
  std::memcpy(batch.data() + kLogBatchHeaderBytes, messages.data(), messages.size());
  const std::span<std::byte> lines(reinterpret_cast<std::byte*>(batch.data()), batch.size());
  SealLogBatch(kNext, lines, static_cast<uint32_t>(messages.size()));
  std::string filler(kLogLineBytes, '\0'), base(kLogLineBytes, '\0');
  SealLogFiller(kNext, {reinterpret_cast<std::byte*>(filler.data()), filler.size()});
  EncodeLogBaseLine({.sequence = 4, .lsn = 101, .offset = 640, .place = kNext},
                    std::span<std::byte, kLogLineBytes>(reinterpret_cast<std::byte*>(base.data()),
                                                        kLogLineBytes));
  return {"m" + messages, "b" + batch, "b" + filler, "b" + base};
}

}  // namespace pando

// The first byte says what the rest is: messages, or bytes of an extent.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'm') {
    pando::CheckMessages(rest);
    pando::CheckSealed(rest);
    return 0;
  }
  const std::vector<std::byte> bytes(reinterpret_cast<const std::byte*>(rest.data()),
                                     reinterpret_cast<const std::byte*>(rest.data()) + rest.size());
  pando::CheckBatch(bytes);
  if (bytes.size() >= pando::kLogLineBytes) {
    pando::CheckBase(
        std::span<const std::byte, pando::kLogLineBytes>(bytes.data(), pando::kLogLineBytes));
  }
  return 0;
}
