#include "common/wire/log_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "common/wire/crc32c.h"

namespace pando {
namespace {

constexpr LogPlace kPlace = {.log_id = 0x0102, .epoch = 3, .seed = 11, .counter = 5, .lsn = 100};
using Kind = LogBatchView::Kind;
using Bytes = std::vector<std::byte>;

Bytes Batch(const LogPlace& place, const std::vector<LogMessage>& messages) {
  Bytes bytes(kLogBatchHeaderBytes);
  for (const LogMessage& message : messages) {
    const size_t at = bytes.size();
    bytes.resize(at + LogMessageBytes(message.key.size(), message.value.size()));
    EncodeLogMessage(message, bytes.data() + at);
  }
  const auto message_bytes = static_cast<uint32_t>(bytes.size()) - kLogBatchHeaderBytes;
  bytes.resize(LogLinesBytes(bytes.size()));
  SealLogBatch(place, bytes, message_bytes);
  return bytes;
}
const std::vector<LogMessage> kTwo = {
    {.tree_id = 9, .key = "key", .value = "value"},
    {.kind = LogMessage::Kind::kErase, .tree_id = 9, .key = "gone"}};

std::vector<std::string> Texts(std::string_view messages) {
  std::vector<std::string> texts;
  EXPECT_TRUE(ParseLogMessages(messages, [&](const LogMessage& message) {
                texts.push_back(
                    std::to_string(message.tree_id) + ":" + std::string(message.key) + "=" +
                    (message.kind == LogMessage::Kind::kErase ? "-" : std::string(message.value)));
                return absl::OkStatus();
              }).ok());
  return texts;
}

uint64_t At(const Bytes& bytes, size_t at, size_t size) {
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + at, size);
  return value;
}

TEST(LogFormatTest, TheBytesOfABatch) {
  const Bytes batch = Batch(kPlace, kTwo);
  ASSERT_EQ(batch.size(), 128u);  // 40 + 15 + 11 = 66
  EXPECT_EQ(At(batch, 0, 4), Crc32c(batch.data() + 4, 124));
  EXPECT_EQ(At(batch, 4, 4), 11u);
  EXPECT_EQ(At(batch, 8, 8), 0x0102u);
  EXPECT_EQ(At(batch, 16, 8), 5u);
  EXPECT_EQ(At(batch, 24, 8), 100u);
  EXPECT_EQ(At(batch, 32, 4), 3u);
  EXPECT_EQ(At(batch, 36, 2), 26u);
  EXPECT_EQ(At(batch, 38, 2), 1u);
  EXPECT_EQ(
      std::memcmp(batch.data() + 40, "\x01\x03\x05\x09\0\0\0keyvalue\x02\x04\0\x09\0\0\0gone", 26),
      0);
}

TEST(LogFormatTest, OneSmallMessageIsALine) {
  EXPECT_EQ(LogLinesBytes(kLogBatchHeaderBytes + LogMessageBytes(8, 8)), kLogLineBytes);
}

TEST(LogFormatTest, TheNextBatchIsTakenAndNoOther) {
  const Bytes batch = Batch(kPlace, kTwo);
  const LogBatchView view = LookAtLogBatch(batch, kPlace);
  ASSERT_EQ(view.kind, Kind::kBatch);
  EXPECT_EQ(view.bytes, batch.size());
  EXPECT_EQ(view.seed, At(batch, 0, 4));
  EXPECT_EQ(Texts(view.messages), (std::vector<std::string>{"9:key=value", "9:gone=-"}));

  std::vector<LogPlace> others(5, kPlace);
  others[0].log_id ^= 1;
  others[1].epoch -= 1;
  others[2].seed ^= 1;
  others[3].counter += 1;
  others[4].lsn += 1;
  for (const LogPlace& other : others) EXPECT_EQ(LookAtLogBatch(batch, other).kind, Kind::kNone);
}

// Rule W2: whatever is missing of a batch, or is of another one, is seen.
TEST(LogFormatTest, AChangeOfAnyByteIsSeen) {
  const Bytes batch = Batch(kPlace, kTwo);
  for (size_t at = 0; at < batch.size(); ++at) {
    Bytes changed = batch;
    changed[at] ^= std::byte{1};
    const Kind kind = LookAtLogBatch(changed, kPlace).kind;
    EXPECT_TRUE(kind == Kind::kNone || kind == Kind::kShort) << at;
  }
  Bytes half = batch;
  std::fill(half.begin() + 64, half.end(), std::byte{0});
  EXPECT_EQ(LookAtLogBatch(half, kPlace).kind, Kind::kNone);
  EXPECT_EQ(LookAtLogBatch(std::span(batch).first(64), kPlace).kind, Kind::kShort);
  EXPECT_EQ(LookAtLogBatch(std::span(batch).first(63), kPlace).kind, Kind::kNone);
  EXPECT_EQ(LookAtLogBatch(Bytes(4096), {}).kind, Kind::kNone) << "zeros";
}

TEST(LogFormatTest, AFillerIsALine) {
  Bytes line(kLogLineBytes, std::byte{7});
  const uint32_t seed = SealLogFiller(kPlace, line);
  const LogBatchView view = LookAtLogBatch(line, kPlace);
  EXPECT_EQ(view.kind, Kind::kFiller);
  EXPECT_EQ(view.bytes, kLogLineBytes);
  EXPECT_EQ(view.seed, seed);
}

TEST(LogFormatTest, WhatIsNoMessageIsDataLoss) {
  const auto parse = [](std::string_view messages) {
    return ParseLogMessages(messages, [](const LogMessage&) { return absl::OkStatus(); });
  };
  const std::string put("\x01\x03\x05\x09\0\0\0keyvalue", 15);
  EXPECT_TRUE(parse(put).ok());
  for (size_t bytes = 1; bytes < put.size(); ++bytes) {
    EXPECT_TRUE(absl::IsDataLoss(parse(put.substr(0, bytes)))) << bytes;
  }
  EXPECT_TRUE(absl::IsDataLoss(parse(std::string("\x03\x01\0\0\0\0\0k", 8)))) << "kind";
  EXPECT_TRUE(absl::IsDataLoss(parse(std::string("\x01\0\0\0\0\0\0", 7)))) << "key";
  EXPECT_TRUE(absl::IsDataLoss(parse(std::string("\x02\x01\x01\0\0\0\0kv", 9))))
      << "value of an erase";
  EXPECT_EQ(
      ParseLogMessages(put + put, [](const LogMessage&) { return absl::AbortedError("enough"); }),
      absl::AbortedError("enough"));
}

TEST(LogFormatTest, BaseLines) {
  const LogBaseLine base = {.sequence = 4, .lsn = 101, .offset = 640, .place = kPlace};
  std::byte line[kLogLineBytes];
  EncodeLogBaseLine(base, line);
  const auto parsed = ParseLogBaseLine(line, kPlace.log_id, kPlace.epoch);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->sequence, 4u);
  EXPECT_EQ(parsed->lsn, 101u);
  EXPECT_EQ(parsed->offset, 640u);
  EXPECT_EQ(parsed->place, kPlace);
  EXPECT_FALSE(ParseLogBaseLine(line, kPlace.log_id, kPlace.epoch + 1).has_value());
  EXPECT_FALSE(ParseLogBaseLine(line, kPlace.log_id + 1, kPlace.epoch).has_value());
  for (std::byte& byte : line) {
    byte ^= std::byte{0x20};
    EXPECT_FALSE(ParseLogBaseLine(line, kPlace.log_id, kPlace.epoch).has_value());
    byte ^= std::byte{0x20};
  }
  const std::byte zeros[kLogLineBytes] = {};
  EXPECT_FALSE(ParseLogBaseLine(zeros, 0, 0).has_value());
}

}  // namespace
}  // namespace pando
