#include "common/fabric/server_index.h"

#include "gtest/gtest.h"

namespace pando {
namespace {

TEST(ServerIndexTest, PlacesOfIds) {
  const auto index = ServerIndex::Create({3, 9, 65'535, 0});
  ASSERT_TRUE(index.ok()) << index.status();
  EXPECT_EQ(index->Of(3), 0);
  EXPECT_EQ(index->Of(9), 1);
  EXPECT_EQ(index->Of(65'535), 2);
  EXPECT_EQ(index->Of(0), 3);
  for (const ServerId unknown : {1, 4, 10, 65'534})
    EXPECT_EQ(index->Of(unknown), ServerIndex::kNone);
  EXPECT_EQ(ServerIndex().Of(0), ServerIndex::kNone);
}

TEST(ServerIndexTest, TwoWithOneIdAreRefused) {
  const auto index = ServerIndex::Create({3, 9, 3});
  EXPECT_TRUE(absl::IsInvalidArgument(index.status())) << index.status();
  EXPECT_NE(index.status().message().find("the id 3"), std::string::npos);
}

}  // namespace
}  // namespace pando
