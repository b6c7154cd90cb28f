#include "compute/owner/fence_listed.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

using testing::ElementsAre;

constexpr ServerId kCatalog = 1;

// Trees that grow, by others, whenever a server is asked.
class FenceListedTest : public testing::Test {
 protected:
  absl::StatusOr<ServerSet> Fence() {
    return FenceListed(
        kCatalog,
        [this]() -> absl::StatusOr<ServerSet> {
          ++lists_;
          if (!list_status_.ok()) return list_status_;
          return listed_;
        },
        [this](ServerId server) -> absl::Status {
          asked_.push_back(server);
          for (const auto& [at, grown] : grows_) {
            if (at == server) listed_.insert(grown);
          }
          return server == refuses_ ? absl::UnavailableError("not yet") : absl::OkStatus();
        });
  }

  ServerSet listed_;
  std::vector<std::pair<ServerId, ServerId>> grows_;  // while the first is asked, onto the second
  ServerId refuses_ = 0;
  absl::Status list_status_;
  std::vector<ServerId> asked_;
  int lists_ = 0;
};

TEST_F(FenceListedTest, AsksTheCatalogFirstAndEachOnce) {
  listed_ = {kCatalog, 2, 3};
  const absl::StatusOr<ServerSet> confirmed = Fence();
  ASSERT_TRUE(confirmed.ok());
  EXPECT_THAT(asked_, ElementsAre(kCatalog, 2, 3));
  EXPECT_THAT(*confirmed, ElementsAre(kCatalog, 2, 3));
  EXPECT_EQ(lists_, 2) << "once more, after the last of them had confirmed";
}

TEST_F(FenceListedTest, WhatTreesGrowOntoMeanwhileIsAskedAsWell) {
  listed_ = {2, 3};
  grows_ = {{3, 9}, {9, 4}};
  const absl::StatusOr<ServerSet> confirmed = Fence();
  ASSERT_TRUE(confirmed.ok());
  EXPECT_THAT(asked_, ElementsAre(kCatalog, 2, 3, 9, 4));
  EXPECT_THAT(*confirmed, ElementsAre(kCatalog, 2, 3, 4, 9));
}

TEST_F(FenceListedTest, WithoutTreesItIsTheCatalogAlone) {
  ASSERT_TRUE(Fence().ok());
  EXPECT_THAT(asked_, ElementsAre(kCatalog));
}

TEST_F(FenceListedTest, ARefusalEndsIt) {
  listed_ = {2, 3};
  refuses_ = 2;
  EXPECT_TRUE(absl::IsUnavailable(Fence().status()));
  EXPECT_THAT(asked_, ElementsAre(kCatalog, 2));
  refuses_ = kCatalog;
  asked_.clear();
  EXPECT_TRUE(absl::IsUnavailable(Fence().status()));
  EXPECT_THAT(asked_, ElementsAre(kCatalog)) << "before it has confirmed no list says enough";
  refuses_ = 0;
  list_status_ = absl::NotFoundError("no list");
  EXPECT_TRUE(absl::IsNotFound(Fence().status()));
}

}  // namespace
}  // namespace pando
