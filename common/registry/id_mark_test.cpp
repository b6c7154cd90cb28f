#include "common/registry/id_mark.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <string>

#include "common/base/temporary_directory.h"
#include "common/registry/registry.h"
#include "common/registry/test_memcached.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

void ExpectKeepsWhatItWasTold(const std::string& registry) {
  auto mark = OpenIdMark(registry);
  ASSERT_TRUE(mark.ok()) << mark.status();
  auto found = (*mark)->Load();
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_FALSE(found->has_value());
  for (const uint32_t id : {1u, 4'097u, UINT32_MAX}) {
    ASSERT_TRUE((*mark)->Store(id).ok());
    const auto other = OpenIdMark(registry);
    ASSERT_TRUE(other.ok()) << other.status();
    found = (*other)->Load();
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(found->value_or(0), id);
  }
}

// A catalog that was stopped, and goes on beside the one that has taken its place.
void ExpectOneCatalogGoesOn(const std::string& registry) {
  auto stopped = OpenIdMark(registry);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  ASSERT_TRUE((*stopped)->Load().ok());
  ASSERT_TRUE((*stopped)->Store(100).ok());
  auto next = OpenIdMark(registry);
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ((*next)->Load()->value_or(0), 100u);
  ASSERT_TRUE((*next)->Store(200).ok());
  for (const uint32_t mark : {150u, 200u, 300u}) {
    const absl::Status refused = (*stopped)->Store(mark);
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << mark << ": " << refused;
  }
  ASSERT_TRUE((*next)->Store(300).ok());
  EXPECT_EQ((*OpenIdMark(registry))->Load()->value_or(0), 300u);
  // Two that have found the same come to the same number.
  auto other = OpenIdMark(registry);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ((*other)->Load()->value_or(0), 300u);
  ASSERT_TRUE((*next)->Store(400).ok());
  const absl::Status refused = (*other)->Store(400);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
}

TEST(IdMarkTest, ADirectoryKeepsIt) {
  const TemporaryDirectory directory;
  ExpectKeepsWhatItWasTold(directory.path() + "/registry");
  ExpectOneCatalogGoesOn(directory.path() + "/another");
}

TEST(IdMarkTest, AMemcachedKeepsItForEachCluster) {
  TestMemcached memcached;
  ExpectKeepsWhatItWasTold(memcached.Registry("a"));
  ExpectKeepsWhatItWasTold(memcached.Registry("b"));
  ExpectOneCatalogGoesOn(memcached.Registry("c"));
}

TEST(IdMarkTest, WhatIsNoneIsWrittenAnewAndLinksAreNotFollowed) {
  const TemporaryDirectory directory;
  const std::string file = directory.path() + "/ids";
  const auto mark = OpenIdMark(directory.path());
  ASSERT_TRUE(mark.ok()) << mark.status();
  for (const char* text : {"", "x", "pando-ids 1\n", "pando-ids 1\n-1\n", "pando-ids 1\n5",
                           "pando-ids 1\n4294967296\n", "pando-ids 2\n5\n"}) {
    std::ofstream(file, std::ios::trunc) << text;
    const auto found = (*mark)->Load();
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_FALSE(found->has_value()) << text;
  }
  ASSERT_TRUE((*mark)->Store(6).ok());
  EXPECT_EQ((*mark)->Load()->value_or(0), 6u);
  struct stat status = {};
  ASSERT_EQ(stat(file.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);

  // A link in the place of the file, and of the one that is written aside.
  const std::string target = directory.path() + "/target";
  std::ofstream(target) << "precious";
  ASSERT_EQ(unlink(file.c_str()), 0);
  ASSERT_EQ(symlink(target.c_str(), file.c_str()), 0);
  ASSERT_EQ(symlink(target.c_str(), (file + ".new").c_str()), 0);
  EXPECT_FALSE((*mark)->Load().ok());
  ASSERT_TRUE((*mark)->Store(7).ok());
  EXPECT_EQ((*mark)->Load()->value_or(0), 7u);
  std::string kept;
  std::ifstream(target) >> kept;
  EXPECT_EQ(kept, "precious");
}

}  // namespace
}  // namespace pando
