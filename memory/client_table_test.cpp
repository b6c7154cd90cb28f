#include "memory/client_table.h"

#include "gtest/gtest.h"

namespace pando::memory {
namespace {

TEST(ClientTableTest, IncarnationsAscendForEverAndIdsGoRound) {
  ClientTable clients;
  IdSource ids(100);
  uint32_t last = 99;
  for (int i = 0; i < 70'000; ++i) {
    const auto client = clients.Join(1, &ids);
    ASSERT_TRUE(client.ok()) << client.status();
    ASSERT_EQ(client->incarnation, ++last);
    ASSERT_GT(client->compute_server, 0);
    ASSERT_TRUE(clients.Check(1, *client).ok());
    clients.Leave(*client);
    ASSERT_FALSE(clients.Check(1, *client).ok());
  }
  EXPECT_EQ(clients.joined(), 0u);
}

TEST(ClientTableTest, AJoinedIdIsNotGivenOutAgainAndTheTableHasAnEnd) {
  ClientTable clients;
  IdSource ids(1);
  const auto first = clients.Join(1, &ids);
  ASSERT_TRUE(first.ok());
  for (uint32_t i = 1; i < ClientTable::kComputeServerMax; ++i) {
    const auto next = clients.Join(2, &ids);
    ASSERT_TRUE(next.ok());
    ASSERT_NE(next->compute_server, first->compute_server);
  }
  EXPECT_EQ(clients.Join(3, &ids).status().code(), absl::StatusCode::kResourceExhausted);
  // The dead make room when nothing else does.
  EXPECT_EQ(clients.PeerGone(2).size(), ClientTable::kComputeServerMax - 1);
  EXPECT_EQ(clients.joined(), 1u);
  const auto reborn = clients.Join(3, &ids);
  ASSERT_TRUE(reborn.ok());
  EXPECT_NE(reborn->compute_server, first->compute_server);
  EXPECT_TRUE(clients.Check(1, *first).ok());
}

TEST(ClientTableTest, OnlyTheConnectionOfAClientMaySpeakForIt) {
  ClientTable clients;
  IdSource ids(1);
  const auto client = clients.Join(1, &ids);
  ASSERT_TRUE(client.ok());
  EXPECT_EQ(clients.Check(2, *client).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(clients.Check(1, {client->compute_server, 77}).code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(clients.Check(1, {9, 1}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(clients.PeerGone(1).size(), 1u);
  EXPECT_TRUE(clients.PeerGone(1).empty());
  EXPECT_EQ(clients.Check(1, *client).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ClientTableTest, AnIntroducedLifeReplacesAnEarlierOneAndNeverALaterOne) {
  ClientTable clients;
  ASSERT_TRUE(clients.Attach(1, {4, 10}).ok());
  ASSERT_TRUE(clients.Attach(1, {4, 10}).ok()) << "repeated";
  EXPECT_EQ(clients.Attach(2, {4, 10}).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(clients.StateOf({4, 10}), ClientLiveness::kJoined);
  ASSERT_TRUE(clients.Attach(2, {4, 20}).ok());
  EXPECT_EQ(clients.StateOf({4, 10}), ClientLiveness::kJoined) << "its connection still exists";
  EXPECT_EQ(clients.Attach(1, {4, 10}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(clients.Check(2, {4, 20}).ok());
  EXPECT_EQ(clients.joined(), 1u);
  EXPECT_EQ(clients.Attach(1, {0, 5}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(clients.Attach(1, {5, 0}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(clients.PeerGone(1), std::vector<ClientId>({{4, 10}})) << "dead with its connection";
  EXPECT_TRUE(clients.PeerGone(1).empty());
  EXPECT_EQ(clients.StateOf({4, 10}), ClientLiveness::kDead);
  EXPECT_EQ(clients.StateOf({4, 20}), ClientLiveness::kJoined);
  EXPECT_EQ(clients.StateOf({4, 30}), ClientLiveness::kUnknown);
  EXPECT_EQ(clients.StateOf({6, 1}), ClientLiveness::kUnknown);
  clients.Leave({4, 20});
  EXPECT_EQ(clients.StateOf({4, 20}), ClientLiveness::kLeft);
  EXPECT_FALSE(clients.Attach(2, {4, 20}).ok()) << "a life that ended does not come back";
}

}  // namespace
}  // namespace pando::memory
