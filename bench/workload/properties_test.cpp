#include "bench/workload/properties.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(PropertiesTest, AreReadAsJavaReadsThem) {
  const auto properties = ParseProperties(
      "# a comment\n! another\\\n\n  \t\nrecordcount=1000\r\nworkload = a.b.CoreWorkload\n"
      "a:1\nb 2\nc\t=\t3 \nd\nempty=\ne=one, \\\n   two\n#=no\nwith\\ blank=\\u0041\\tB\\=\n"
      "twice=1\ntwice=2\nodd\\\\\\\n end=x\nlast=\\");
  ASSERT_TRUE(properties.ok()) << properties.status();
  EXPECT_THAT(
      *properties,
      UnorderedElementsAre(Pair("recordcount", "1000"), Pair("workload", "a.b.CoreWorkload"),
                           Pair("a", "1"), Pair("b", "2"), Pair("c", "3 "), Pair("d", ""),
                           Pair("empty", ""), Pair("e", "one, two"), Pair("with blank", "A\tB="),
                           Pair("twice", "2"), Pair("odd\\end", "x"), Pair("last", "")));
  EXPECT_TRUE(ParseProperties("")->empty());
}

TEST(PropertiesTest, WhatIsNoneIsRefusedByItsLine) {
  EXPECT_THAT(std::string(ParseProperties("a=1\n\n=2").status().message()), HasSubstr("line 3"));
  EXPECT_THAT(std::string(ParseProperties("a=1\nb=\\u12").status().message()), HasSubstr("line 2"));
  EXPECT_FALSE(ParseProperties("b=\\u00e9").ok());
  EXPECT_FALSE(ParseProperties("b=\\uzzzz").ok());
}

TEST(PropertiesTest, OfACommandLine) {
  Properties properties = {{"a", "1"}};
  EXPECT_TRUE(AddProperty("a = 2", &properties).ok());
  EXPECT_TRUE(AddProperty("b=x=y", &properties).ok());
  EXPECT_TRUE(AddProperty("c=", &properties).ok());
  EXPECT_THAT(properties, UnorderedElementsAre(Pair("a", "2"), Pair("b", "x=y"), Pair("c", "")));
  EXPECT_FALSE(AddProperty("d", &properties).ok());
  EXPECT_FALSE(AddProperty("=d", &properties).ok());
}

}  // namespace
}  // namespace pando::bench
