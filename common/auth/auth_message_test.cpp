#include "common/auth/auth_message.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::HasSubstr;

AuthMessage Example(AuthType type) {
  AuthMessage message = {.type = type};
  if (type == AuthType::kClientHello || type == AuthType::kServerProof) message.nonce.fill(1);
  if (type == AuthType::kServerProof || type == AuthType::kClientProof) message.mac.fill(2);
  if (type == AuthType::kRefused) message.refusal = AuthRefusal::kServerHasNoSecret;
  return message;
}

constexpr AuthType kTypes[] = {AuthType::kClientHello, AuthType::kClientHelloWithout,
                               AuthType::kServerProof, AuthType::kServerWithout,
                               AuthType::kClientProof, AuthType::kAccepted,
                               AuthType::kRefused};

TEST(AuthMessageTest, MessagesSurviveTheWay) {
  for (const AuthType type : kTypes) {
    const std::string bytes = EncodeAuthMessage(Example(type));
    EXPECT_LE(bytes.size(), kAuthMessageBytesMax);
    const auto again = ParseAuthMessage(bytes);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(*again, Example(type));
  }
}

TEST(AuthMessageTest, OtherLengthsAreRefused) {
  for (const AuthType type : kTypes) {
    const std::string bytes = EncodeAuthMessage(Example(type));
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_EQ(ParseAuthMessage(bytes.substr(0, size)).status().code(),
                absl::StatusCode::kDataLoss);
    }
    EXPECT_EQ(ParseAuthMessage(bytes + "x").status().code(), absl::StatusCode::kDataLoss);
  }
}

TEST(AuthMessageTest, OtherMagicTypesAndReasonsAreRefused) {
  const std::string bytes = EncodeAuthMessage(Example(AuthType::kRefused));
  for (const auto& [offset, value] : {std::pair(0, 'x'), {6, 0}, {6, 8}, {7, 1}, {8, 0}, {8, 4}}) {
    std::string damaged = bytes;
    damaged[static_cast<size_t>(offset)] = static_cast<char>(value);
    EXPECT_EQ(ParseAuthMessage(damaged).status().code(), absl::StatusCode::kDataLoss) << offset;
  }
  std::string other = bytes;
  other[4] = 5;
  const absl::Status status = ParseAuthMessage(other).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 5"));
}

}  // namespace
}  // namespace pando
