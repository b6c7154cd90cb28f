// Directories and files that a stranger has prepared. Those of another user need root to be made:
// elsewhere these tests are skipped.
#include "common/registry/private_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "common/base/temporary_directory.h"
#include "common/registry/registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

constexpr uid_t kStranger = 65534;  // nobody
constexpr char kPrecious[] = "precious";

class PrivateDirectoryTest : public testing::Test {
 protected:
  PrivateDirectoryTest() { std::ofstream(victim_) << kPrecious; }
  ~PrivateDirectoryTest() override {
    std::ifstream file(victim_);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), kPrecious);
  }

  absl::StatusOr<PrivateDirectory> Open(const std::string& path, bool make = true) {
    return PrivateDirectory::Open(path, "registry", make);
  }
  void ExpectRefused(const std::string& path, const std::string& why) {
    const absl::Status status = Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << path << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  std::string MakeDirectory(const std::string& name, mode_t mode) {
    const std::string path = parent_.path() + "/" + name;
    EXPECT_EQ(mkdir(path.c_str(), 0700), 0);
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
    return path;
  }
  void GiveToStranger(const std::string& path) {
    ASSERT_EQ(lchown(path.c_str(), kStranger, kStranger), 0);
  }

  const TemporaryDirectory parent_;
  const std::string victim_ = parent_.path() + "/victim";
};

TEST_F(PrivateDirectoryTest, IsMadeForItsUserAlone) {
  const std::string path = parent_.path() + "/registry";
  EXPECT_EQ(Open(path, /*make=*/false).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(Open(path).ok());
  struct stat info;
  ASSERT_EQ(stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  EXPECT_TRUE(Open(path).ok());
  EXPECT_EQ(Open(victim_).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Open("relative").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Open(parent_.path() + "/no/parent").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PrivateDirectoryTest, WhatOthersMayWriteToIsRefused) {
  ExpectRefused(MakeDirectory("world", 0702), "chmod 700");
  ExpectRefused(MakeDirectory("group", 0720), "chmod 700");
  ExpectRefused(MakeDirectory("sticky", 01777), "chmod 700");
  const std::string open = MakeDirectory("open", 0777);
  ExpectRefused(open + "/registry", "on the way to it");
  ASSERT_EQ(chmod(open.c_str(), 01777), 0);
  EXPECT_TRUE(Open(open + "/registry").ok()) << "as in /tmp";
}

TEST_F(PrivateDirectoryTest, SymbolicLinksOfOnesOwnAreFollowed) {
  MakeDirectory("real", 0700);
  const std::string link = parent_.path() + "/link", loop = parent_.path() + "/loop";
  ASSERT_EQ(symlink("real", link.c_str()), 0);
  EXPECT_TRUE(Open(link).ok());
  EXPECT_TRUE(Open(link + "/inside").ok());
  EXPECT_TRUE(std::filesystem::is_directory(parent_.path() + "/real/inside"));
  ASSERT_EQ(symlink(loop.c_str(), loop.c_str()), 0);
  EXPECT_EQ(Open(loop).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PrivateDirectoryTest, DirectoriesAndLinksOfOthersAreRefusedForRootToo) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make what belongs to another user";
  const std::string theirs = MakeDirectory("theirs", 0700);
  MakeDirectory("theirs/mine", 0700);
  GiveToStranger(theirs);
  ExpectRefused(theirs, "belongs to user 65534");
  ExpectRefused(theirs + "/mine", "belongs to user 65534");
  ExpectRefused(theirs + "/new", "belongs to user 65534");
  EXPECT_FALSE(std::filesystem::exists(theirs + "/new"));
  MakeDirectory("real", 0700);
  const std::string link = parent_.path() + "/link";
  ASSERT_EQ(symlink("real", link.c_str()), 0);
  GiveToStranger(link);
  ExpectRefused(link, "symbolic link of user 65534");
  // What a stranger can do in /tmp before root comes there: the name it will use.
  const std::string shared = MakeDirectory("shared", 01777);
  MakeDirectory("shared/registry", 0755);
  ASSERT_EQ(symlink(victim_.c_str(), (shared + "/registry/server-1").c_str()), 0);
  GiveToStranger(shared + "/registry");
  EXPECT_EQ(OpenRegistry(shared + "/registry").status().code(),
            absl::StatusCode::kPermissionDenied);
}

// In a directory that was open to others until its user read the message and closed it.
TEST_F(PrivateDirectoryTest, PlantedLinksAndPipesAreNeitherFollowedNorWaitedFor) {
  const std::string path = MakeDirectory("registry", 0700);
  const auto registry = OpenRegistry(path);
  ASSERT_TRUE(registry.ok()) << registry.status();
  const auto announce = [&](ServerId id) {
    return (*registry)->Announce({.id = id, .address = "somewhere"}).status();
  };
  // A link, dangling or not, where the lock belongs.
  for (const std::string& target : {victim_, parent_.path() + "/nowhere"}) {
    ASSERT_EQ(symlink(target.c_str(), (path + "/server-1.lock").c_str()), 0);
    const absl::Status refused = announce(1);
    EXPECT_EQ(refused.code(), absl::StatusCode::kPermissionDenied) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("server-1.lock is a symbolic link"));
    EXPECT_FALSE(std::filesystem::exists(parent_.path() + "/nowhere"));
    ASSERT_EQ(unlink((path + "/server-1.lock").c_str()), 0);
  }
  // Where the entry belongs it is replaced, and where an earlier release wrote aside nobody writes.
  ASSERT_EQ(symlink(victim_.c_str(), (path + "/server-2").c_str()), 0);
  ASSERT_EQ(symlink(victim_.c_str(), (path + "/server-2.new").c_str()), 0);
  const auto announced = (*registry)->Announce({.id = 2, .address = "somewhere"});
  ASSERT_TRUE(announced.ok()) << announced.status();
  EXPECT_TRUE(
      std::filesystem::is_regular_file(std::filesystem::symlink_status(path + "/server-2")));
  ASSERT_EQ(mkfifo((path + "/server-3.lock").c_str(), 0600), 0);
  ASSERT_EQ(mkfifo((path + "/server-3").c_str(), 0600), 0);
  EXPECT_EQ(announce(3).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(*(*registry)->List(), ElementsAre(ServerLocation{.id = 2, .address = "somewhere"}));
}

TEST_F(PrivateDirectoryTest, FilesOfOthersAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make what belongs to another user";
  const std::string path = MakeDirectory("registry", 0700);
  std::ofstream(path + "/server-1.lock") << "";
  GiveToStranger(path + "/server-1.lock");
  const auto registry = OpenRegistry(path);
  ASSERT_TRUE(registry.ok()) << registry.status();
  // Its owner may hold the lock for as long as he likes.
  EXPECT_EQ((*registry)->Announce({.id = 1, .address = "x"}).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(PrivateDirectoryTest, ADirectoryThatIsOpenedLaterIsRefusedFromThenOn) {
  const std::string path = MakeDirectory("registry", 0700);
  const auto registry = OpenRegistry(path);
  ASSERT_TRUE(registry.ok());
  EXPECT_TRUE((*registry)->List().ok());
  ASSERT_EQ(chmod(path.c_str(), 0777), 0);
  EXPECT_EQ((*registry)->List().status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ((*registry)->Announce({.id = 1, .address = "x"}).status().code(),
            absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(chmod(path.c_str(), 0700), 0);
  EXPECT_TRUE((*registry)->List().ok());
}

TEST_F(PrivateDirectoryTest, FilesAreWholeAndListedAndRemoved) {
  const auto directory = Open(parent_.path() + "/registry");
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->OpenFile("a", O_RDONLY).status().code(), absl::StatusCode::kNotFound);
  const std::string content(100'000, 'x');
  ASSERT_TRUE(directory->Replace("a", "old").ok());
  ASSERT_TRUE(directory->Replace("a", content).ok());
  ASSERT_TRUE(directory->Replace("b", "").ok());
  EXPECT_EQ(std::filesystem::file_size(directory->path() + "/a"), content.size());
  EXPECT_THAT(*directory->List(), UnorderedElementsAre("a", "b"));
  EXPECT_TRUE(directory->Remove("a").ok());
  EXPECT_TRUE(directory->Remove("a").ok());
  EXPECT_THAT(*directory->List(), ElementsAre("b"));
  // A directory cannot be replaced; nothing of the attempt stays.
  ASSERT_EQ(mkdir((directory->path() + "/c").c_str(), 0700), 0);
  EXPECT_FALSE(directory->Replace("c", "x").ok());
  EXPECT_THAT(*directory->List(), UnorderedElementsAre("b", "c"));
}

}  // namespace
}  // namespace pando
