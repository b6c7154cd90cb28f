#include "common/registry/local_registry.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "common/base/temporary_directory.h"
#include "common/registry/conformance.h"
#include "common/registry/id_mark.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class LocalPlace final : public RegistryPlace {
 public:
  std::string Name(const std::string& cluster) const override {
    return parent_.path() + "/" + cluster;
  }

 private:
  const TemporaryDirectory parent_;
};
INSTANTIATE_TEST_SUITE_P(Local, RegistryConformance,
                         testing::Values(ConformanceRegistry{
                             "local", [] { return std::make_unique<LocalPlace>(); }}),
                         ConformanceName);

class LocalRegistryTest : public testing::Test {
 protected:
  std::unique_ptr<Registry> Open() {
    auto registry = OpenRegistry(directory_);
    EXPECT_TRUE(registry.ok()) << registry.status();
    return *std::move(registry);
  }

  const TemporaryDirectory parent_;
  std::string directory_ = parent_.path() + "/registry";
};

TEST_F(LocalRegistryTest, IsTheOwnersOnly) {
  auto registry = Open();
  auto announced = registry->Announce(At(1, "a"));
  struct stat info;
  ASSERT_EQ(stat(directory_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  for (const char* name : {"/server-1", "/server-1.lock"}) {
    ASSERT_EQ(stat((directory_ + name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << name;
  }
  ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  EXPECT_EQ(OpenRegistry(directory_).status().code(), absl::StatusCode::kPermissionDenied);
}

// Who mistypes its name finds no server, and nothing is left behind.
TEST_F(LocalRegistryTest, IsMadeByServersOnly) {
  const auto registry = Open();
  EXPECT_THAT(*registry->List(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(directory_));
  const auto made = [&](const absl::Status& status) {
    return status.ok() && std::filesystem::remove_all(directory_) > 0;
  };
  EXPECT_TRUE(made(registry->SocketPath(1).status()));
  EXPECT_TRUE(made(registry->IdentityKeyPath("verbs").status()));
  EXPECT_TRUE(made(registry->Announce(At(1, "a")).status()));
  EXPECT_TRUE(made(OpenIdMark(directory_).status()));
}

TEST_F(LocalRegistryTest, RefusesWhatItDoesNotKnow) {
  for (const char* registry : {"", "local:", "memcached:host", "http:", "memcached://"}) {
    EXPECT_EQ(OpenRegistry(registry).status().code(), absl::StatusCode::kInvalidArgument)
        << registry;
  }
  EXPECT_FALSE((*OpenRegistry("/nowhere/to/be/found"))->SocketPath(1).ok());
  std::ofstream(parent_.path() + "/file") << "x";
  EXPECT_EQ(OpenRegistry(parent_.path() + "/file").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(OpenRegistry("local:" + directory_).ok());
  EXPECT_TRUE(OpenRegistry(directory_ + "/").ok());
  EXPECT_TRUE(OpenRegistry(parent_.path() + "/a:b").ok());
}

TEST_F(LocalRegistryTest, ReportsDamagedEntriesAndIgnoresForeignFiles) {
  auto registry = Open();
  ASSERT_TRUE(std::filesystem::create_directory(directory_));
  for (const char* name : {"notes.txt", "server-", "server-x", "server-99999", "server-4"}) {
    std::ofstream(directory_ + "/" + name) << "junk";
  }
  EXPECT_THAT(*registry->List(), IsEmpty());
  auto announced = registry->Announce(At(4, "a"));
  ASSERT_TRUE(announced.ok()) << announced.status();
  EXPECT_THAT(*registry->List(), ElementsAre(At(4, "a")));
  for (const std::string content :
       {"", "junk", "pando-registry 1\nx\n", "pando-registry 2\n", "pando-registry 2\nx\n",
        "pando-registry 2\nx\n\n", "pando-registry 2\n\nx\n", "pando-registry 2\nx\ny\nz\n"}) {
    std::ofstream(directory_ + "/server-4") << content;
    const auto list = registry->List();
    EXPECT_EQ(list.status().code(), absl::StatusCode::kDataLoss) << content;
    EXPECT_THAT(std::string(list.status().message()), HasSubstr("server-4"));
  }
}

TEST_F(LocalRegistryTest, SocketPathsFitOrAreRefused) {
  EXPECT_EQ(*Open()->SocketPath(3), directory_ + "/server-3.sock");
  directory_ = parent_.path() + "/" + std::string(90, 'd');
  const auto path = Open()->SocketPath(3);
  EXPECT_EQ(path.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(path.status().message()), HasSubstr("at most 107"));
}

}  // namespace
}  // namespace pando
