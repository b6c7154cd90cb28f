#include "memory/client_table.h"

#include "gtest/gtest.h"

namespace pando::memory {
namespace {

TEST(ClientTableTest, IncarnationsAscendForEverAndIdsGoRound) {
  ClientTable clients;
  IdSource ids(100);
  uint32_t last = 99;
  for (int i = 0; i < 70'000; ++i) {
    const PeerId peer = 1 + i;
    const auto client = clients.Join(peer, &ids);
    ASSERT_TRUE(client.ok()) << client.status();
    ASSERT_EQ(client->incarnation, ++last);
    ASSERT_GT(client->compute_server, 0);
    ASSERT_TRUE(clients.Check(peer, *client).ok());
    clients.Leave(*client);
    ASSERT_FALSE(clients.Check(peer, *client).ok());
    ASSERT_FALSE(clients.PeerGone(peer).has_value()) << "it had left";
  }
  EXPECT_EQ(clients.joined(), 0u);
}

TEST(ClientTableTest, AJoinedIdIsNotGivenOutAgainAndTheTableHasAnEnd) {
  ClientTable clients;
  IdSource ids(1);
  const auto first = clients.Join(1, &ids);
  ASSERT_TRUE(first.ok());
  for (uint32_t i = 1; i < ClientTable::kComputeServerMax; ++i) {
    const auto next = clients.Join(1 + i, &ids);
    ASSERT_TRUE(next.ok());
    ASSERT_NE(next->compute_server, first->compute_server);
  }
  constexpr PeerId kLate = 100'000;
  EXPECT_EQ(clients.Join(kLate, &ids).status().code(), absl::StatusCode::kResourceExhausted);
  // The dead make room when nothing else does.
  for (uint32_t i = 1; i < ClientTable::kComputeServerMax; ++i) {
    ASSERT_TRUE(clients.PeerGone(1 + i).has_value());
  }
  EXPECT_EQ(clients.joined(), 1u);
  const auto reborn = clients.Join(kLate, &ids);
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
  EXPECT_EQ(clients.PeerGone(1), *client);
  EXPECT_FALSE(clients.PeerGone(1).has_value());
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
  EXPECT_EQ(clients.PeerGone(1), (ClientId{4, 10})) << "dead with its connection";
  EXPECT_FALSE(clients.PeerGone(1).has_value());
  EXPECT_EQ(clients.StateOf({4, 10}), ClientLiveness::kDead);
  EXPECT_EQ(clients.StateOf({4, 20}), ClientLiveness::kJoined);
  EXPECT_EQ(clients.StateOf({4, 30}), ClientLiveness::kUnknown);
  EXPECT_EQ(clients.StateOf({6, 1}), ClientLiveness::kUnknown);
  clients.Leave({4, 20});
  EXPECT_EQ(clients.StateOf({4, 20}), ClientLiveness::kLeft);
  EXPECT_FALSE(clients.Attach(2, {4, 20}).ok()) << "a life that ended does not come back";
}

TEST(ClientTableTest, AConnectionHasOneIdentityForItsLife) {
  ClientTable clients;
  IdSource ids(1);
  const auto joined = clients.Join(1, &ids);
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ(clients.Join(1, &ids).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(clients.Attach(1, {9, 50}).code(), absl::StatusCode::kFailedPrecondition);
  clients.Leave(*joined);
  EXPECT_EQ(clients.Join(1, &ids).status().code(), absl::StatusCode::kFailedPrecondition);
  // Nor may an introduced one have two, be it of the same id.
  ASSERT_TRUE(clients.Attach(2, {7, 100}).ok());
  for (uint32_t id = 1; id <= ClientTable::kComputeServerMax; ++id) {
    ASSERT_FALSE(clients.Attach(2, {static_cast<uint16_t>(id), 101}).ok()) << id;
  }
  EXPECT_EQ(clients.joined(), 1u);
  EXPECT_EQ(clients.PeerGone(2), (ClientId{7, 100}));
  EXPECT_EQ(clients.joined(), 0u);
  // Another connection has an identity of its own.
  EXPECT_TRUE(clients.Join(3, &ids).ok());
}

TEST(ClientTableTest, WhoHasWithdrawnIsUnknownUntilAnotherConnectionIntroducesIt) {
  const ClientId client = {4, 10};
  const auto refused = absl::StatusCode::kFailedPrecondition;
  ClientTable clients;
  ASSERT_TRUE(clients.Attach(1, client).ok());
  EXPECT_EQ(clients.Withdraw(1, {4, 11}).code(), refused);
  EXPECT_EQ(clients.Withdraw(1, {5, 10}).code(), refused);
  ASSERT_TRUE(clients.Withdraw(1, client).ok());
  EXPECT_TRUE(clients.HasWithdrawn(client));
  EXPECT_EQ(clients.joined(), 0u);
  EXPECT_EQ(clients.StateOf(client), ClientLiveness::kUnknown);
  EXPECT_FALSE(clients.ConnectionOf(client).has_value());
  EXPECT_EQ(clients.Check(1, client).code(), refused);
  EXPECT_EQ(clients.Attach(1, client).code(), refused) << "what comes late";
  ASSERT_TRUE(clients.Attach(2, client).ok());
  EXPECT_EQ(clients.Attach(1, client).code(), refused);
  ASSERT_TRUE(clients.Withdraw(1, client).ok()) << "what comes late";
  EXPECT_TRUE(clients.Check(2, client).ok());
  EXPECT_EQ(clients.ConnectionOf(client), 2u);
  // Nothing that becomes of the old connection is the client's.
  clients.Fence(1);
  EXPECT_FALSE(clients.PeerGone(1).has_value());
  EXPECT_FALSE(clients.PeerGone(1).has_value());
  EXPECT_TRUE(clients.Check(2, client).ok());
  EXPECT_EQ(clients.StateOf(client), ClientLiveness::kJoined);
  EXPECT_EQ(clients.PeerGone(2), client);
  EXPECT_EQ(clients.StateOf(client), ClientLiveness::kDead);
  EXPECT_EQ(clients.Attach(3, client).code(), refused) << "that was a death";
  EXPECT_EQ(clients.dead(), 1u);
}

TEST(ClientTableTest, WhatHasEndedCannotBeWithdrawnAndWhatComesFirstCounts) {
  ClientTable clients;
  // The introduction is late.
  ASSERT_TRUE(clients.Withdraw(1, {4, 10}).ok());
  EXPECT_FALSE(clients.Attach(1, {4, 10}).ok());
  EXPECT_FALSE(clients.Attach(1, {5, 11}).ok());
  EXPECT_FALSE(clients.PeerGone(1).has_value());
  // Before it, the client was taken for dead, or left; or there is a later life.
  ASSERT_TRUE(clients.Attach(2, {4, 10}).ok());
  clients.Fence(2);
  EXPECT_FALSE(clients.Withdraw(2, {4, 10}).ok());
  EXPECT_EQ(clients.PeerGone(2), (ClientId{4, 10}));
  EXPECT_EQ(clients.StateOf({4, 10}), ClientLiveness::kDead);
  ASSERT_TRUE(clients.Attach(3, {5, 10}).ok());
  clients.Leave({5, 10});
  EXPECT_FALSE(clients.Withdraw(3, {5, 10}).ok());
  EXPECT_EQ(clients.StateOf({5, 10}), ClientLiveness::kLeft);
  ASSERT_TRUE(clients.Attach(4, {6, 10}).ok());
  ASSERT_TRUE(clients.Withdraw(4, {6, 10}).ok());
  ASSERT_TRUE(clients.Attach(5, {6, 20}).ok());
  EXPECT_FALSE(clients.Attach(6, {6, 10}).ok());
  EXPECT_EQ(clients.StateOf({6, 10}), ClientLiveness::kDead);
  EXPECT_TRUE(clients.Check(5, {6, 20}).ok());
}

TEST(ClientTableTest, TheFencedIsReportedOnceAndItsConnectionJoinsNothing) {
  ClientTable clients;
  IdSource ids(1);
  const auto client = clients.Join(1, &ids);
  clients.Fence(1);
  EXPECT_EQ(clients.StateOf(*client), ClientLiveness::kJoined) << "something may be in flight";
  EXPECT_EQ(clients.PeerGone(1), *client);
  EXPECT_EQ(clients.StateOf(*client), ClientLiveness::kDead);
  EXPECT_TRUE(clients.IsFenced(1));
  EXPECT_FALSE(clients.Join(1, &ids).ok());
  EXPECT_FALSE(clients.Attach(1, *client).ok());
  EXPECT_FALSE(clients.PeerGone(1).has_value()) << "now the connection has ended";
  EXPECT_FALSE(clients.IsFenced(1));
}

TEST(ClientTableTest, NothingIsLeftOfTheFencedWhoseConnectionHadEnded) {
  ClientTable clients;
  IdSource ids(1);
  const auto client = clients.Join(1, &ids);
  const ClientId nobody = {static_cast<uint16_t>(client->compute_server + 1), client->incarnation};
  clients.Fence(1);
  clients.FencedTooLate(1);
  EXPECT_EQ(clients.StateOf(*client), ClientLiveness::kJoined) << "something may be in flight";
  EXPECT_EQ(clients.ConnectionOf(*client), 1u);
  EXPECT_FALSE(clients.CheckIsNobodyElse(nobody).ok()) << "the connection is known";
  EXPECT_EQ(clients.PeerGone(1), *client);
  EXPECT_EQ(clients.StateOf(*client), ClientLiveness::kDead);
  EXPECT_FALSE(clients.IsFenced(1));
  EXPECT_TRUE(clients.CheckIsNobodyElse(nobody).ok()) << "and is not any more";
}

}  // namespace
}  // namespace pando::memory
