#include "common/auth/cluster_secret.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "common/base/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::HasSubstr;

class ClusterSecretTest : public testing::Test {
 protected:
  absl::StatusOr<ClusterSecret> LoadFrom(const std::string& content, mode_t mode = 0600) {
    std::ofstream(path_, std::ios::trunc) << content;
    if (chmod(path_.c_str(), mode) != 0) abort();
    return ClusterSecret::Load(path_);
  }

  const TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/secret";
};

TEST_F(ClusterSecretTest, OneLineBreakAtTheEndIsNoPartOfIt) {
  const std::string secret = "sixteen bytes or";
  EXPECT_EQ(LoadFrom(secret)->bytes(), secret);
  EXPECT_EQ(LoadFrom(secret + "\n")->bytes(), secret);
  EXPECT_EQ(LoadFrom(secret + "\n\n")->bytes(), secret + "\n");
  EXPECT_EQ(LoadFrom(secret + "\n", 0400)->bytes(), secret);
  const std::string binary("\0\xff\n\0............", 16);
  EXPECT_EQ(LoadFrom(binary)->bytes(), binary);
}

TEST_F(ClusterSecretTest, HasBounds) {
  EXPECT_EQ(LoadFrom(std::string(4096, 'x') + "\n")->bytes().size(), kSecretBytesMax);
  for (const std::string& content :
       {std::string(), std::string("\n"), std::string(15, 'x'), std::string(15, 'x') + "\n",
        std::string(4097, 'x'), std::string(4096, 'x') + "\n\n", std::string(100'000, 'x')}) {
    const absl::Status status = LoadFrom(content).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << content.size();
    EXPECT_THAT(std::string(status.message()), HasSubstr("16 to 4096 bytes"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("openssl rand -hex 32 >" + path_));
  }
}

TEST_F(ClusterSecretTest, IsTheOwnersOnly) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0610, 0601, 0666}) {
    const absl::Status status = LoadFrom(std::string(32, 'x'), mode).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(status.message()), HasSubstr("chmod 600 " + path_));
  }
  EXPECT_TRUE(LoadFrom(std::string(32, 'x')).ok());
  // Only root can give files away.
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(path_.c_str(), 12345, 0), 0);
  const absl::Status status = ClusterSecret::Load(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("belongs to user 12345"));
}

TEST_F(ClusterSecretTest, MustBeAFile) {
  EXPECT_EQ(ClusterSecret::Load(path_).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ClusterSecret::Load(directory_.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(ClusterSecret::Load(path_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClusterSecretTest, MovingLeavesNothingBehind) {
  ClusterSecret first = *ClusterSecret::FromBytes("the secret of all secrets");
  ClusterSecret second = std::move(first);
  EXPECT_EQ(first.bytes(), "");  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(second.bytes(), "the secret of all secrets");
  ClusterSecret third = *ClusterSecret::FromBytes("quite another secret");
  third = std::move(second);
  EXPECT_EQ(third.bytes(), "the secret of all secrets");
  EXPECT_EQ(second.bytes(), "");  // NOLINT(bugprone-use-after-move)
}

}  // namespace
}  // namespace pando
