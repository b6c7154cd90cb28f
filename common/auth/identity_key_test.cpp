#include "common/auth/identity_key.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "common/base/temporary_directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::HasSubstr;

class IdentityKeyTest : public testing::Test {
 protected:
  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/identity.key";
};

TEST_F(IdentityKeyTest, ASignatureFitsOneIdentityAndOneKey) {
  const auto key = IdentityKey::FromBytes(std::string(32, 'k'));
  ASSERT_TRUE(key.ok());
  const Mac proof = key->Sign(7, 100);
  EXPECT_EQ(proof, key->Sign(7, 100));
  EXPECT_TRUE(key->Verify(7, 100, proof));
  EXPECT_FALSE(key->Verify(8, 100, proof));
  EXPECT_FALSE(key->Verify(7, 101, proof));
  EXPECT_FALSE(key->Verify(7, 100, Mac{}));
  for (size_t bit = 0; bit < 8 * proof.size(); ++bit) {
    Mac changed = proof;
    changed[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    EXPECT_FALSE(key->Verify(7, 100, changed)) << bit;
  }
  const auto other = IdentityKey::FromBytes(std::string(31, 'k') + "l");
  EXPECT_FALSE(other->Verify(7, 100, proof));
  EXPECT_TRUE(absl::IsInvalidArgument(IdentityKey::FromBytes("short").status()));
}

TEST_F(IdentityKeyTest, WhoHasTheSecretHasTheKey) {
  const auto secret = ClusterSecret::FromBytes("sixteen bytes, or more");
  const auto other = ClusterSecret::FromBytes("sixteen bytes, or mare");
  const Mac proof = IdentityKey::FromSecret(*secret).Sign(1, 2);
  EXPECT_TRUE(IdentityKey::FromSecret(*secret).Verify(1, 2, proof));
  EXPECT_FALSE(IdentityKey::FromSecret(*other).Verify(1, 2, proof));
  // The secret before the file, and nothing where there is neither.
  const auto found = FindIdentityKey(&*secret, path_);
  ASSERT_TRUE(found.ok());
  EXPECT_TRUE((*found)->Verify(1, 2, proof));
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(*FindIdentityKey(nullptr, ""), nullptr);
}

TEST_F(IdentityKeyTest, TheServersOfOneRegistryShareAFile) {
  const auto first = IdentityKey::LoadOrMake(path_);
  ASSERT_TRUE(first.ok()) << first.status();
  const auto second = FindIdentityKey(nullptr, path_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_TRUE((*second)->Verify(3, 4, first->Sign(3, 4)));
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  // Nothing else is left there.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.path()), {}), 1);
  const auto elsewhere = IdentityKey::LoadOrMake(directory_.path() + "/other.key");
  EXPECT_FALSE(elsewhere->Verify(3, 4, first->Sign(3, 4)));
}

TEST_F(IdentityKeyTest, WhatIsNotOursAloneIsRefused) {
  ASSERT_TRUE(IdentityKey::LoadOrMake(path_).ok());
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  const auto open_to_others = IdentityKey::LoadOrMake(path_);
  EXPECT_TRUE(absl::IsPermissionDenied(open_to_others.status())) << open_to_others.status();
  ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  std::ofstream(path_) << "cut";
  const auto damaged = IdentityKey::LoadOrMake(path_);
  EXPECT_TRUE(absl::IsDataLoss(damaged.status())) << damaged.status();
  EXPECT_THAT(std::string(damaged.status().message()), HasSubstr("remove the file"));
  // A planted link is not followed.
  const std::string target = directory_.path() + "/target";
  std::ofstream(target) << std::string(32, 't');
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_EQ(symlink(target.c_str(), path_.c_str()), 0);
  EXPECT_FALSE(IdentityKey::LoadOrMake(path_).ok());
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ASSERT_EQ(symlink((directory_.path() + "/nowhere").c_str(), path_.c_str()), 0);
  EXPECT_FALSE(IdentityKey::LoadOrMake(path_).ok());
  EXPECT_FALSE(std::filesystem::exists(directory_.path() + "/nowhere"));
}

}  // namespace
}  // namespace pando
