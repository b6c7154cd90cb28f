#include "common/fabric/body.h"

#include <string>

#include "gtest/gtest.h"

namespace pando {
namespace {

struct Pair {
  uint32_t first = 0;
  uint16_t second = 0, third = 0;
};

TEST(Body, ValuesComeBack) {
  const auto pair = ParseBody<Pair>(EncodeBody(Pair{7, 8, 9}), "a pair");
  ASSERT_TRUE(pair.ok()) << pair.status();
  EXPECT_EQ(pair->first, 7u);
  EXPECT_EQ(pair->second, 8u);
  EXPECT_EQ(pair->third, 9u);
}

TEST(Body, OfAnotherSizeIsNoValue) {
  for (const size_t bytes : {0, 7, 9}) {
    const auto pair = ParseBody<Pair>(std::string(bytes, '\0'), "a pair");
    EXPECT_TRUE(absl::IsDataLoss(pair.status())) << bytes;
    EXPECT_NE(pair.status().message().find("a pair has"), std::string::npos) << pair.status();
  }
}

TEST(Body, StatusesComeBack) {
  for (const absl::Status& status :
       {absl::NotFoundError("gone"), absl::ResourceExhaustedError(""),
        absl::UnauthenticatedError(std::string("\0\xff", 2)), absl::UnknownError("?")}) {
    EXPECT_EQ(ParseStatus(EncodeStatus(status)), status);
  }
}

TEST(Body, LongMessagesAreCut) {
  const std::string body = EncodeStatus(absl::InternalError(std::string(100'000, 'x')));
  EXPECT_LT(body.size(), 2'000u);
  EXPECT_EQ(ParseStatus(body).message(), std::string(1'024, 'x'));
}

TEST(Body, WhatIsNoStatusIsDataLoss) {
  for (const std::string& body :
       {std::string(), std::string("ab"), std::string(4, '\0'), std::string(4, '\x7f'),
        EncodeBody(static_cast<uint32_t>(absl::StatusCode::kUnauthenticated) + 1)}) {
    EXPECT_TRUE(absl::IsDataLoss(ParseStatus(body))) << body.size();
  }
}

}  // namespace
}  // namespace pando
