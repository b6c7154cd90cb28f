#include "compute/tool/byte_text.h"

#include "common/base/random.h"
#include "gtest/gtest.h"

namespace pando::tool {
namespace {

// Bytes of all kinds, many of them in the neighbourhood of UTF-8.
std::string SomeBytes(Random* random) {
  constexpr char kEdges[] = {'a',        '\0',       '\t',       '\n',       '\r',
                             '\\',       '"',        char(0x7f), char(0x80), char(0xbf),
                             char(0xc1), char(0xc3), char(0xe0), char(0xa0), char(0xed),
                             char(0xf0), char(0x90), char(0xf4), char(0xf5), char(0xff)};
  std::string bytes;
  for (uint64_t n = random->Uniform(6); n > 0; --n)
    bytes += kEdges[random->Uniform(sizeof(kEdges))];
  return bytes;
}

TEST(ByteTextTest, EveryFormGivesBackTheSameBytes) {
  Random random(7);
  for (int i = 0; i < 100'000; ++i) {
    const std::string bytes = SomeBytes(&random);
    Json object;
    AddBytes(&object, "key", bytes);
    ASSERT_EQ(object.size(), 1u);
    ASSERT_EQ(object.contains("key"), IsUtf8(bytes)) << object.dump();
    // Strict: throws where we take for UTF-8 what JSON does not.
    const auto read = BytesOf(Json::parse(object.dump()), "key");
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ(*read, bytes);
    ASSERT_EQ(FromHex(ToHex(bytes)).value(), bytes);
    const std::string field = EscapeTsv(bytes);
    ASSERT_EQ(field.find_first_of("\t\n\r"), std::string::npos);
    ASSERT_EQ(UnescapeTsv(field).value(), bytes);
  }
}

TEST(ByteTextTest, Utf8IsWhatJsonTakes) {
  for (const std::string good : {"", "a", "\xc3\xb6", "\xed\x9f\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(IsUtf8(good)) << ToHex(good);
  }
  for (const std::string bad :
       {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf0\x80\x80\x80",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff"}) {
    EXPECT_FALSE(IsUtf8(bad)) << ToHex(bad);
  }
}

TEST(ByteTextTest, RefusesWhatNobodyHasWritten) {
  const auto refused = [](const char* json) {
    return absl::IsInvalidArgument(BytesOf(Json::parse(json), "key").status());
  };
  EXPECT_TRUE(refused("{}"));
  EXPECT_TRUE(refused("[]"));
  EXPECT_TRUE(refused("\"key\""));
  EXPECT_TRUE(refused(R"({"key": 1})"));
  EXPECT_TRUE(refused(R"({"key": "a", "key_base64": "YQ=="})"));
  EXPECT_TRUE(refused(R"({"key_base64": "YQ"})"));
  EXPECT_TRUE(refused(R"({"key_base64": "Y Q=="})"));
  EXPECT_TRUE(refused(R"({"key_base64": "!"})"));
  EXPECT_FALSE(refused(R"({"key_base64": "YQ==", "other": 1})"));
  for (const char* digits : {"0", "0g", "000", "0x00", " 00"}) EXPECT_FALSE(FromHex(digits).ok());
  EXPECT_EQ(FromHex("00fFAa").value(), std::string("\0\xff\xaa", 3));
  for (const char* field : {"\\", "a\\", "\\x", "\\ t"}) EXPECT_FALSE(UnescapeTsv(field).ok());
}

}  // namespace
}  // namespace pando::tool
