#include "compute/tool/records.h"

#include <utility>

#include "common/base/random.h"
#include "compute/tool/byte_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::tool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using Entries = std::vector<std::pair<std::string, std::string>>;

Entries EntriesOf(const Records& records) {
  Entries entries;
  for (const TextRecord& record : records.sorted()) entries.emplace_back(record.key, record.value);
  return entries;
}
Entries Parsed(const std::string& text, TextFormat format) {
  const auto records = Records::Parse(text, format, "file");
  EXPECT_TRUE(records.ok()) << records.status();
  return records.ok() ? EntriesOf(*records) : Entries{};
}
std::string Refusal(const std::string& text, TextFormat format) {
  const auto records = Records::Parse(text, format, "file");
  EXPECT_TRUE(absl::IsInvalidArgument(records.status())) << text;
  return std::string(records.status().message());
}

TEST(RecordsTest, LinesAreKeysAndTheirNumbersValues) {
  const auto records = Records::Parse("b\na\n\nb\nc\r", TextFormat::kLines, "file");
  ASSERT_TRUE(records.ok());
  EXPECT_THAT(EntriesOf(*records), ElementsAre(Pair("a", "2"), Pair("b", "4"), Pair("c\r", "5")));
  EXPECT_EQ(records->lines(), 5u);
  EXPECT_EQ(records->empty_lines(), 1u);
  EXPECT_EQ(records->key_bytes(), 2u);
  EXPECT_EQ(records->value_bytes(), 1u);
  EXPECT_THAT(Parsed("", TextFormat::kLines), ElementsAre());
  EXPECT_THAT(Refusal("a\n" + std::string(256, 'x'), TextFormat::kLines),
              HasSubstr("file:2: a key of 256"));
}

TEST(RecordsTest, TabSeparated) {
  EXPECT_THAT(Parsed("b\t2\n\na\\tb\t\\\\\\n\nb\t\n", TextFormat::kTsv),
              ElementsAre(Pair("a\tb", "\\\n"), Pair("b", "")));
  EXPECT_THAT(Refusal("a\t1\nb\n", TextFormat::kTsv), HasSubstr("file:2: no tab"));
  EXPECT_THAT(Refusal("a\t1\tb", TextFormat::kTsv), HasSubstr("file:1: a second tab"));
  EXPECT_THAT(Refusal("\t1", TextFormat::kTsv), HasSubstr("an empty key"));
  for (const char* text : {"a\t1\nb\t2\r\n", "a\t1\nb\t2\r", "\na\r\n"}) {
    EXPECT_THAT(Refusal(text, TextFormat::kTsv), HasSubstr("file:2: a carriage return at the end"));
  }
  EXPECT_THAT(Parsed("\xef\xbb\xbf\tb\rc\\r\n", TextFormat::kTsv),
              ElementsAre(Pair("\xef\xbb\xbf", "b\rc\r")));
  EXPECT_THAT(Refusal("a\t\\x", TextFormat::kTsv), HasSubstr("a backslash"));
  EXPECT_THAT(Refusal("a\t" + std::string(65'537, 'x'), TextFormat::kTsv),
              HasSubstr("a value of 65537"));
}

TEST(RecordsTest, CommaSeparated) {
  EXPECT_THAT(Parsed("b,2\r\n\r\n\n\"a,\"\"\n\",\" x \"\nc,\nd,\r\ne,5", TextFormat::kCsv),
              ElementsAre(Pair("a,\"\n", " x "), Pair("b", "2"), Pair("c", ""), Pair("d", ""),
                          Pair("e", "5")));
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_THAT(Parsed(mark + "a,1\r\n" + mark + "b,2", TextFormat::kCsv),
              ElementsAre(Pair("a", "1"), Pair(mark + "b", "2")));
  EXPECT_THAT(Parsed(mark + "\"a\",1", TextFormat::kCsv), ElementsAre(Pair("a", "1")));
  EXPECT_THAT(Parsed("\"" + mark + "a\",1", TextFormat::kCsv), ElementsAre(Pair(mark + "a", "1")));
  EXPECT_THAT(Parsed(mark, TextFormat::kCsv), ElementsAre());
  EXPECT_THAT(Refusal("a", TextFormat::kCsv), HasSubstr("file:1: no comma"));
  EXPECT_THAT(Refusal("a,1\nb,2,3\n", TextFormat::kCsv), HasSubstr("file:2: more than a key"));
  EXPECT_THAT(Refusal("\"a\n\n\",1\nb,\"2", TextFormat::kCsv),
              HasSubstr("file:4: a quote is not closed"));
  EXPECT_THAT(Refusal("a,\"1\"2", TextFormat::kCsv), HasSubstr("more than a key"));
  EXPECT_THAT(Refusal("a,1\"2\"", TextFormat::kCsv), HasSubstr("a quote in a field"));
  EXPECT_THAT(Refusal(",1", TextFormat::kCsv), HasSubstr("an empty key"));
}

TEST(RecordsTest, JsonObjects) {
  EXPECT_THAT(Parsed("{\"key\": \"b\", \"value\": \"\\u00f6\", \"more\": [1]}\n\n"
                     "{\"value_base64\": \"AP8=\", \"key_base64\": \"/w==\"}",
                     TextFormat::kJsonl),
              ElementsAre(Pair("b", "\xc3\xb6"), Pair("\xff", std::string("\0\xff", 2))));
  EXPECT_THAT(Refusal("{\"key\":\"a\",\"value\":\"\"}\n{", TextFormat::kJsonl),
              HasSubstr("file:2: this is not JSON"));
  EXPECT_THAT(Refusal("{\"key\":\"a\"}", TextFormat::kJsonl), HasSubstr("\"value\""));
  EXPECT_THAT(Refusal("{\"key\":\"\",\"value\":\"\"}", TextFormat::kJsonl), HasSubstr("empty key"));
  EXPECT_THAT(Refusal(std::string(100'000, '['), TextFormat::kJsonl), HasSubstr("not JSON"));
}

// More than is allocated at once: nothing of it moves.
TEST(RecordsTest, KeepsManyRecords) {
  Random random(5);
  std::string text;
  Entries entries;
  for (int i = 0; i < 20'000; ++i) {
    const std::string key = std::to_string(100'000 + i) + "\t",
                      value = std::string(random.Uniform(200), '\n');
    entries.emplace_back(key, value);
    text += EscapeTsv(key) + "\t" + EscapeTsv(value) + "\n";
  }
  auto records = Records::Parse(text, TextFormat::kTsv, "file");
  ASSERT_TRUE(records.ok());
  const Records moved = *std::move(records);
  EXPECT_EQ(EntriesOf(moved), entries);
}

}  // namespace
}  // namespace pando::tool
