#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/wire/crc32c.h"
#include "compute/tool/dump_format.h"
#include "compute/tool/dump_reader.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::tool {
namespace {

using testing::HasSubstr;
using Entries = std::vector<std::pair<std::string, std::string>>;

const DumpOptions kOptions = {
    .key_bytes_max = 40, .value_bytes_max = 255, .node_bytes = 1024, .owned = true};
const DumpOptions kLongOptions = {.key_bytes_max = 40,
                                  .value_bytes_max = 65'536,
                                  .node_bytes = 1024,
                                  .inline_value_bytes_max = 20};

DumpReader::Source SourceOf(const std::string& bytes, size_t at_once = SIZE_MAX) {
  return
      [&bytes, at_once, at = size_t{0}](char* to, size_t size) mutable -> absl::StatusOr<size_t> {
        const size_t count = std::min({size, at_once, bytes.size() - at});
        std::copy_n(bytes.data() + at, count, to);
        at += count;
        return count;
      };
}
DumpWriter::Sink SinkOf(std::string* bytes) {
  return [bytes](std::string_view more) {
    bytes->append(more);
    return absl::OkStatus();
  };
}

Entries SomeEntries(size_t count, uint64_t seed = 1) {
  Random random(seed);
  Entries entries;
  for (size_t i = 0; i < count; ++i) {
    std::string key = std::to_string(10'000'000 + i);
    key.push_back(static_cast<char>(random.Next()));
    entries.emplace_back(key, std::string(random.Uniform(256), static_cast<char>(random.Next())));
  }
  return entries;
}

// Of all lengths about which somebody could be wrong.
Entries LongEntries() {
  Entries entries;
  Random random(5);
  for (const size_t bytes : {65'536, 0, 255, 256, 65'535, 20, 21, 32'768, 1, 40'000, 65'536}) {
    const char byte = static_cast<char>(random.Next());
    entries.emplace_back(std::to_string(1000 + entries.size()), std::string(bytes, byte));
  }
  return entries;
}

std::string DumpOf(const Entries& entries, const DumpOptions& options = kOptions) {
  std::string bytes;
  DumpWriter writer(SinkOf(&bytes));
  EXPECT_TRUE(writer.Begin(options).ok());
  for (const auto& [key, value] : entries) EXPECT_TRUE(writer.Add(key, value).ok());
  EXPECT_TRUE(writer.Finish().ok());
  EXPECT_EQ(writer.records(), entries.size());
  return bytes;
}

struct Read {
  absl::Status status;
  Entries entries;
  uint64_t offset = 0;
  DumpTotals totals;
};
Read ReadAll(const std::string& bytes, size_t at_once = SIZE_MAX,
             const DumpOptions& expected = kOptions) {
  Read read;
  DumpReader reader(SourceOf(bytes, at_once));
  const auto options = reader.ReadHeader();
  read.status = options.status();
  if (options.ok()) {
    EXPECT_EQ(*options, expected);
  }
  std::vector<DumpRecord> records;
  while (read.status.ok()) {
    const auto more = reader.NextBlock(&records);
    read.status = more.status();
    if (!more.ok() || !*more) break;
    for (const DumpRecord& record : records) read.entries.emplace_back(record.key, record.value);
  }
  read.offset = reader.offset();
  read.totals = reader.totals();
  return read;
}

TEST(DumpTest, GivesBackWhatWasWritten) {
  for (const size_t count : {0, 1, 2, 5'000}) {
    const Entries entries = SomeEntries(count);
    const std::string bytes = DumpOf(entries);
    for (const size_t at_once : {size_t{1'000'000}, size_t{7}}) {
      const Read read = ReadAll(bytes, at_once);
      ASSERT_TRUE(read.status.ok()) << read.status;
      EXPECT_EQ(read.entries, entries);
      EXPECT_EQ(read.offset, bytes.size());
      EXPECT_EQ(read.totals.records, count);
    }
    EXPECT_EQ(DumpOf(entries), bytes);
  }
}

TEST(DumpTest, ABlockTakesTheLongestRecordAtItsVeryEnd) {
  Entries entries;
  // The first block is one byte short of full when a record of the greatest size comes.
  for (size_t bytes = 0; bytes + 2 * 257 < kDumpBlockBytes; bytes += 257) {
    entries.emplace_back(std::to_string(1000 + entries.size()), std::string(251, 'v'));
  }
  entries.emplace_back(std::string(40, '9'), std::string(255, 'v'));
  entries.emplace_back(std::string(40, 'a'), std::string(255, 'v'));
  const Read read = ReadAll(DumpOf(entries));
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(read.entries, entries);
}

TEST(DumpTest, ValuesOfUpTo255BytesAreDumpedAsOlderReleasesReadThem) {
  const std::string bytes = DumpOf({{"a", "1"}, {"b", ""}});
  EXPECT_EQ(bytes[8], 1);
  const size_t payload = EncodeDumpHeader(kOptions).size() + kDumpBlockHeaderBytes;
  EXPECT_EQ(bytes.substr(payload, 7), std::string("\1\1a1\1\0b", 7));
}

TEST(DumpTest, LongValues) {
  const Entries entries = LongEntries();
  const std::string bytes = DumpOf(entries, kLongOptions);
  EXPECT_EQ(bytes[8], 2);
  for (const size_t at_once : {size_t{1'000'000}, size_t{97}}) {
    const Read read = ReadAll(bytes, at_once, kLongOptions);
    ASSERT_TRUE(read.status.ok()) << read.status;
    EXPECT_EQ(read.entries, entries);
  }
  Random random(6);
  for (int i = 0; i < 100; ++i) {
    std::string damaged = bytes;
    damaged[random.Uniform(bytes.size())] ^= static_cast<char>(1 << random.Uniform(8));
    const Read read = ReadAll(damaged, SIZE_MAX, kLongOptions);
    ASSERT_FALSE(read.status.ok());
    ASSERT_TRUE(std::equal(read.entries.begin(), read.entries.end(), entries.begin()));
    const size_t size = random.Uniform(bytes.size());
    ASSERT_TRUE(IsDumpTruncated(ReadAll(bytes.substr(0, size), SIZE_MAX, kLongOptions).status));
  }
}

// With the right checksum: a version in which the lengths would mean something else.
TEST(DumpTest, AVersionThatTheOptionsDoNotHaveIsDamage) {
  for (const DumpOptions& options : {kOptions, kLongOptions}) {
    std::string header = EncodeDumpHeader(options);
    header[8] = static_cast<char>(3 - header[8]);
    header.resize(header.size() - 4);
    const uint32_t crc = Crc32c(header.data(), header.size());
    header.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
    const absl::Status status = ReadAll(header).status;
    EXPECT_TRUE(absl::IsDataLoss(status) && !IsDumpTruncated(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("a version"));
  }
}

// All that was given out is right, wherever the bytes end, and the place is said.
TEST(DumpTest, ATruncatedDumpIsFoundAndSaysUpToWhere) {
  const Entries entries = SomeEntries(900);
  const std::string bytes = DumpOf(entries);
  for (size_t size = 0; size < bytes.size();
       size += size < 200 || size > bytes.size() - 200 ? 1 : 97) {
    const Read read = ReadAll(bytes.substr(0, size));
    ASSERT_TRUE(IsDumpTruncated(read.status)) << size << ": " << read.status;
    ASSERT_TRUE(absl::IsDataLoss(read.status));
    ASSERT_THAT(std::string(read.status.message()),
                HasSubstr("at offset " + std::to_string(size) + ","));
    ASSERT_LE(read.offset, size);
    ASSERT_TRUE(std::equal(read.entries.begin(), read.entries.end(), entries.begin())) << size;
  }
}

TEST(DumpTest, EveryDamagedBitIsFound) {
  const Entries entries = SomeEntries(700);
  const std::string bytes = DumpOf(entries);
  Random random(3);
  for (int i = 0; i < 6'000; ++i) {
    std::string damaged = bytes;
    const size_t at = i < 1'000 ? static_cast<size_t>(i) / 8 : random.Uniform(bytes.size());
    damaged[at] ^= static_cast<char>(1 << random.Uniform(8));
    const Read read = ReadAll(damaged);
    ASSERT_FALSE(read.status.ok()) << at;
    ASSERT_FALSE(IsDumpTruncated(read.status)) << at << ": " << read.status;
    ASSERT_TRUE(std::equal(read.entries.begin(), read.entries.end(), entries.begin())) << at;
    if (!absl::IsInvalidArgument(read.status)) {
      ASSERT_THAT(std::string(read.status.message()),
                  HasSubstr("damaged at offset " + std::to_string(read.offset)));
    }
  }
}

// Blocks that are right by themselves, but not where they are.
TEST(DumpTest, BlocksThatAreMissingTwiceOrForeignAreFound) {
  const std::string bytes = DumpOf(SomeEntries(900));
  const size_t first = EncodeDumpHeader(kOptions).size();
  DumpReader reader(SourceOf(bytes));
  std::vector<DumpRecord> records;
  ASSERT_TRUE(reader.ReadHeader().ok());
  ASSERT_TRUE(reader.NextBlock(&records).value());
  const size_t second = reader.offset();
  ASSERT_TRUE(reader.NextBlock(&records).value());
  const std::string head = bytes.substr(0, first);
  EXPECT_THAT(ReadAll(head + bytes.substr(second)).status.ToString(),
              HasSubstr("block 1 where block 0 has to be"));
  EXPECT_THAT(ReadAll(bytes.substr(0, second) + bytes.substr(first)).status.ToString(),
              HasSubstr("block 0 where block 1 has to be"));
  EXPECT_THAT(ReadAll(bytes + "x").status.ToString(), HasSubstr("bytes after its end"));
  EXPECT_THAT(ReadAll(DumpOf({{"b", ""}, {"a", ""}})).status.ToString(),
              HasSubstr("keys that do not ascend"));
  EXPECT_THAT(ReadAll(DumpOf({{"a", ""}, {"a", ""}})).status.ToString(),
              HasSubstr("keys that do not ascend"));
  EXPECT_THAT(ReadAll(DumpOf({{std::string(41, 'a'), ""}})).status.ToString(),
              HasSubstr("a record"));
  // The last block of another dump, with its totals.
  const std::string end = bytes.substr(bytes.size() - kDumpBlockHeaderBytes - kDumpEndPayloadBytes);
  EXPECT_FALSE(ReadAll(head + end).status.ok());
}

TEST(DumpTest, WhatIsNoDumpIsToldFromADamagedOne) {
  for (const std::string bytes : {"x", "hello world, this is a text", "PANDODMQ"}) {
    const absl::Status status = ReadAll(bytes).status;
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("not a dump"));
  }
  std::string newer = EncodeDumpHeader(kOptions);
  newer[8] = 3;
  EXPECT_THAT(ReadAll(newer).status.ToString(), HasSubstr("version 3"));
  DumpReader reader([](char*, size_t) -> absl::StatusOr<size_t> {
    return absl::UnavailableError("the disk is gone");
  });
  EXPECT_TRUE(absl::IsUnavailable(reader.ReadHeader().status()));
}

// A dump that goes on behind any whole block is the dump that was never interrupted.
TEST(DumpTest, GoesOnBehindEachBlock) {
  for (const DumpOptions& options : {kOptions, kLongOptions}) {
    const Entries entries = options == kOptions ? SomeEntries(2'000) : LongEntries();
    const std::string bytes = DumpOf(entries, options);
    std::vector<DumpRecord> records;
    DumpReader reader(SourceOf(bytes));
    ASSERT_TRUE(reader.ReadHeader().ok());
    do {
      std::string resumed = bytes.substr(0, reader.offset());
      DumpWriter writer(SinkOf(&resumed));
      writer.GoOnAfter(options, reader.totals());
      for (const auto& [key, value] : entries) {
        if (key <= reader.last_key()) continue;
        ASSERT_TRUE(writer.Add(key, value).ok());
      }
      ASSERT_TRUE(writer.Finish().ok());
      ASSERT_EQ(resumed, bytes);
    } while (reader.NextBlock(&records).value());
  }
}

TEST(DumpTest, OptionsAreThoseThatATreeCanHave) {
  EXPECT_EQ(ParseDumpOptions(DumpOptionsText(kOptions)).value(), kOptions);
  DumpOptions narrow = kOptions;
  narrow.narrow_reads = true;
  EXPECT_EQ(ParseDumpOptions(DumpOptionsText(narrow)).value(), narrow);
  EXPECT_THAT(DumpOptionsText(kOptions), testing::Not(HasSubstr("delete_persistence_ms")));
  DumpOptions with_deadline = kOptions;
  with_deadline.delete_persistence_ms = 1500;
  EXPECT_EQ(ParseDumpOptions(DumpOptionsText(with_deadline)).value(), with_deadline);
  EXPECT_EQ(ParseDumpOptions(DumpOptionsText(kLongOptions)).value(), kLongOptions);
  for (const char* text :
       {"", "[]", "{}", "{\"key_bytes_max\":8}",
        R"({"key_bytes_max":0,"value_bytes_max":8,"node_bytes":1024,"mode":"shared"})",
        R"({"key_bytes_max":256,"value_bytes_max":8,"node_bytes":1024,"mode":"shared"})",
        R"({"key_bytes_max":-8,"value_bytes_max":8,"node_bytes":1024,"mode":"shared"})",
        R"({"key_bytes_max":8,"value_bytes_max":8,"node_bytes":1e30,"mode":"shared"})",
        R"({"key_bytes_max":8,"value_bytes_max":8,"node_bytes":4294968320,"mode":"shared"})",
        R"({"key_bytes_max":8,"value_bytes_max":8,"node_bytes":1024,"mode":"mine"})",
        R"({"key_bytes_max":8,"value_bytes_max":8,"node_bytes":1024,"mode":"shared",)"
        R"("narrow_reads":1})",
        R"({"key_bytes_max":8,"value_bytes_max":8,"node_bytes":0,"mode":"shared",)"
        R"("delete_persistence_ms":50})",
        R"({"key_bytes_max":8,"value_bytes_max":8,"node_bytes":0,"mode":"owned",)"
        R"("delete_persistence_ms":9})",
        R"({"key_bytes_max":8,"value_bytes_max":8,"node_bytes":0,"mode":"owned",)"
        R"("delete_persistence_ms":"50"})",
        R"({"key_bytes_max":8,"value_bytes_max":256,"node_bytes":1024,"mode":"shared"})",
        R"({"key_bytes_max":8,"value_bytes_max":65537,"node_bytes":1024,"mode":"shared",)"
        R"("inline_value_bytes_max":20})",
        R"({"key_bytes_max":8,"value_bytes_max":300,"node_bytes":1024,"mode":"shared",)"
        R"("inline_value_bytes_max":255})",
        R"({"key_bytes_max":8,"value_bytes_max":8,"node_bytes":1024,"mode":"shared",)"
        R"("inline_value_bytes_max":8})",
        R"({"key_bytes_max":8,"value_bytes_max":8,"node_bytes":1024,"mode":1})"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseDumpOptions(text).status())) << text;
  }
}

}  // namespace
}  // namespace pando::tool
