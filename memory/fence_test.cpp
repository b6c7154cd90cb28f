// The end of a life of a compute server (rule D2) and its serving lease (rule O5), seen from
// outside.
#include "memory/server_test_util.h"

namespace pando::memory {
namespace {

class FenceTest : public TwoClientsTest {
 protected:
  static constexpr int64_t kLeaseNs = 10 * kSecondNs, kServingNs = 100 * kMillisecondNs;
  static constexpr auto kRefused = absl::StatusCode::kFailedPrecondition;
  static constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

  // A catalog's server on a fabric that can cut clients off, as old as a serving lease.
  void StartWithLeases() {
    ASSERT_NO_FATAL_FAILURE(
        Start({.lease_ns = kLeaseNs, .fence = &fence_, .serving_lease_ns = kServingNs}));
    clock_.now_ns += kServingNs;
    Tick();
  }
  // One on shm.
  void StartOnShm() { ASSERT_NO_FATAL_FAILURE(Start({})); }
  // What the fabric does after each call.
  void Tick() { server_->OnTimer(clock_.NowNs()); }
  // By Bert.
  FenceReply Fence(const ClientId& client) {
    const auto reply = bert_->Fence(client);
    EXPECT_TRUE(reply.ok()) << reply.status();
    Tick();
    return reply.value_or(FenceReply{});
  }
  bool IsConfirmed(const ClientId& client) { return Fence(client).confirmed == 1; }

  RecordingFence fence_;
};

TEST_F(FenceTest, ALivingOneIsCutOffAndOverWhenItsLockWordsAreFree) {
  ASSERT_NO_FATAL_FAILURE(StartWithLeases());
  memory_.lock_words()[300] = WordOf(anna_->id);
  const FenceReply first = Fence(anna_->id);
  EXPECT_EQ(first.confirmed, 0);
  EXPECT_GT(first.ask_again_ns, 0);
  EXPECT_EQ(fence_.peers, std::vector<PeerId>{1});
  EXPECT_EQ(anna_->Call(ControlOpcode::kPing).status().code(), kRefused);
  EXPECT_FALSE(IsConfirmed(anna_->id)) << "a WRITE may be on its way";
  EXPECT_EQ(fence_.peers.size(), 1u) << "once";
  server_->OnPeerGone(1);
  EXPECT_EQ(memory_.lock_words()[300], 0u);
  EXPECT_TRUE(IsConfirmed(anna_->id));
  EXPECT_TRUE(IsConfirmed(anna_->id)) << "even if another client asks";
  server_->OnPeerGone(1);  // its connection, too
  EXPECT_TRUE(IsConfirmed(anna_->id));
  EXPECT_EQ(CounterOf(*server_, "fences"), 1u);
  EXPECT_EQ(CounterOf(*server_, "fenced"), 1u);
  EXPECT_EQ(CounterOf(*server_, "deaths"), 1u);
}

// Its end was not reported yet when it was fenced, and is reported once.
TEST_F(FenceTest, OneWhoseConnectionHasEndedIsGoneWithOneReport) {
  ASSERT_NO_FATAL_FAILURE(StartWithLeases());
  fence_.connected = false;
  const uint64_t gone = CounterOf(*server_, "peers_gone");
  EXPECT_FALSE(IsConfirmed(anna_->id));
  server_->OnPeerGone(1);
  EXPECT_TRUE(IsConfirmed(anna_->id));
  EXPECT_EQ(CounterOf(*server_, "deaths"), 1u);
  EXPECT_EQ(CounterOf(*server_, "peers_gone"), gone + 1);
  const ClientId nobody = {static_cast<uint16_t>(anna_->id.compute_server + 9),
                           anna_->id.incarnation};
  EXPECT_TRUE(bert_->Fence(nobody).ok()) << "nothing is left of it";
}

TEST_F(FenceTest, IsNotConfirmedBeforeTheLastLockWordWasLookedAt) {
  ASSERT_NO_FATAL_FAILURE(Start({.fence_words_per_step = 256, .fence_step_ns = 10}));
  server_->OnPeerGone(1);
  memory_.lock_words()[1000] = WordOf(anna_->id);
  while (server_->OnTimer(clock_.now_ns) != kNeverNs) {
    const auto reply = bert_->Fence(anna_->id);
    ASSERT_TRUE(reply.ok());
    if (memory_.lock_words()[1000] != 0) {
      EXPECT_EQ(reply->confirmed, 0);
    }
    clock_.now_ns += 10;
  }
  EXPECT_EQ(memory_.lock_words()[1000], 0u);
  EXPECT_TRUE(IsConfirmed(anna_->id));
}

// The clients as they joined at the catalog's; this server is another one.
class AttachedFenceTest : public FenceTest {
 protected:
  void SetUp() override {
    auto server = MemoryServer::Create(memory_.memory(), {.server_id = 2,
                                                          .is_catalog = false,
                                                          .lease_ns = kLeaseNs,
                                                          .fence = &fence_,
                                                          .clock = &clock_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    anna_ = std::make_unique<TestClient>(server_.get(), 1);
    bert_ = std::make_unique<TestClient>(server_.get(), 2);
    ASSERT_TRUE(bert_->AttachAs({2, 2}).ok());
  }
};

TEST_F(AttachedFenceTest, WhoWasNeverSeenIsIntroducedNoMore) {
  const ClientId anna = {1, 1};
  EXPECT_TRUE(IsConfirmed(anna)) << "nothing of it is here";
  EXPECT_EQ(anna_->AttachAs(anna).code(), kRefused);
  EXPECT_TRUE(IsConfirmed(anna));
  EXPECT_TRUE(anna_->AttachAs({1, 3}).ok()) << "its next life is another one";
  EXPECT_EQ(bert_->Serve().code(), kRefused) << "only the catalog's server grants leases";
}

TEST_F(AttachedFenceTest, WhoWasFasterIsCutOff) {
  const ClientId anna = {1, 1};
  ASSERT_TRUE(anna_->AttachAs(anna).ok());
  EXPECT_FALSE(IsConfirmed(anna));
  EXPECT_EQ(anna_->AttachAs(anna).code(), kRefused) << "also over the connection that it has";
  TestClient elsewhere(server_.get(), 3);
  EXPECT_EQ(elsewhere.AttachAs(anna).code(), kRefused);
  server_->OnPeerGone(1);
  EXPECT_TRUE(IsConfirmed(anna));
}

TEST_F(AttachedFenceTest, AnEarlierLifeWhoseConnectionIsStillThereIsCutOff) {
  const ClientId anna = {1, 1};
  ASSERT_TRUE(anna_->AttachAs(anna).ok());
  TestClient next_life(server_.get(), 3);
  ASSERT_TRUE(next_life.AttachAs({1, 3}).ok());
  EXPECT_FALSE(IsConfirmed(anna)) << "something of it may be in flight";
  EXPECT_EQ(fence_.peers, std::vector<PeerId>{1});
  server_->OnPeerGone(1);
  EXPECT_TRUE(IsConfirmed(anna));
  EXPECT_TRUE(next_life.Call(ControlOpcode::kPing).ok());
}

TEST_F(FenceTest, WhoHasLeftIsOverOnceItsConnectionIsGone) {
  ASSERT_NO_FATAL_FAILURE(StartWithLeases());
  ASSERT_TRUE(anna_->Call(ControlOpcode::kLeave).ok());
  EXPECT_FALSE(IsConfirmed(anna_->id));
  EXPECT_EQ(fence_.peers, std::vector<PeerId>{1});
  server_->OnPeerGone(1);
  EXPECT_TRUE(IsConfirmed(anna_->id));
  TestClient same_connection(server_.get(), 1);
  EXPECT_EQ(same_connection.Join().code(), kRefused) << "it was cut off";
}

TEST_F(FenceTest, OnShmOnlyTheEndOfAProcessIsOne) {
  ASSERT_NO_FATAL_FAILURE(StartOnShm());
  ASSERT_TRUE(anna_->Serve().ok());
  EXPECT_FALSE(IsConfirmed(anna_->id));
  EXPECT_TRUE(anna_->Call(ControlOpcode::kPing).ok()) << "it lives";
  EXPECT_EQ(anna_->Serve().code(), kRefused);
  server_->OnPeerGone(1);
  EXPECT_TRUE(IsConfirmed(anna_->id));
}

TEST_F(FenceTest, NobodyFencesItselfOrWhoIsNobody) {
  ASSERT_NO_FATAL_FAILURE(StartWithLeases());
  const auto code = [&](const ClientId& client) { return bert_->Fence(client).status().code(); };
  EXPECT_EQ(code(bert_->id), kInvalid);
  EXPECT_EQ(code({9, anna_->id.incarnation}), kInvalid) << "that incarnation is Anna's";
  EXPECT_EQ(code({9, bert_->id.incarnation + 1}), kInvalid) << "it is still to come";
  EXPECT_EQ(code({0, 1}), absl::StatusCode::kDataLoss);
  TestClient stranger(server_.get(), 3);
  EXPECT_EQ(stranger.Fence(anna_->id).status().code(), kRefused);
  EXPECT_TRUE(anna_->Call(ControlOpcode::kPing).ok());
  EXPECT_EQ(CounterOf(*server_, "fences"), 0u);
  ASSERT_TRUE(stranger.Join().ok()) << "with the incarnation that was still to come";
}

TEST_F(AttachedFenceTest, WhatNoCatalogHasComeToIsMadeUp) {
  EXPECT_EQ(bert_->Fence({9, IdSource::kMadeUpFrom + 2}).status().code(), kInvalid);
  EXPECT_TRUE(IsConfirmed({9, IdSource::kMadeUpFrom + 1}));
}

TEST_F(FenceTest, TheCatalogWaitsForTheServingLeaseHoweverALifeEnded) {
  for (const bool leaves : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(StartWithLeases());
    clock_.now_ns += kServingNs;
    ASSERT_TRUE(anna_->Serve().ok());
    const int64_t over_ns = clock_.now_ns + kServingNs;
    clock_.now_ns += kServingNs / 4;
    if (leaves) {
      ASSERT_TRUE(anna_->Call(ControlOpcode::kLeave).ok());
    }
    server_->OnPeerGone(1);
    const FenceReply reply = Fence(anna_->id);
    EXPECT_EQ(reply.confirmed, 0);
    EXPECT_EQ(reply.ask_again_ns, over_ns - clock_.now_ns);
    clock_.now_ns = over_ns - 1;
    EXPECT_FALSE(IsConfirmed(anna_->id));
    clock_.now_ns = over_ns;
    EXPECT_TRUE(IsConfirmed(anna_->id));
    memory_ = PlainMemory();
  }
}

TEST_F(FenceTest, APingThatComesAfterTheFenceRenewsNothing) {
  ASSERT_NO_FATAL_FAILURE(StartWithLeases());
  clock_.now_ns += kServingNs;
  ASSERT_TRUE(anna_->Serve().ok());
  const int64_t over_ns = clock_.now_ns + kServingNs;
  const std::string late = anna_->Message(ControlOpcode::kServe, "");
  EXPECT_FALSE(IsConfirmed(anna_->id));
  clock_.now_ns += kServingNs / 2;
  EXPECT_EQ(
      ParseReply(server_->Handle(1, late), ControlOpcode::kServe, anna_->sequence).status().code(),
      kRefused);
  server_->OnPeerGone(1);
  clock_.now_ns = over_ns;
  EXPECT_TRUE(IsConfirmed(anna_->id));
}

// What an earlier life of the catalog's server has granted, nobody knows any more.
TEST_F(FenceTest, AServerThatHasJustStartedConfirmsNothingForALease) {
  ASSERT_NO_FATAL_FAILURE(Start(
      {.first_id = 100, .lease_ns = kLeaseNs, .fence = &fence_, .serving_lease_ns = kServingNs}));
  const ClientId earlier = {7, 50};
  const FenceReply reply = Fence(earlier);
  EXPECT_EQ(reply.confirmed, 0);
  EXPECT_EQ(reply.ask_again_ns, kServingNs);
  TestClient it(server_.get(), 3);
  EXPECT_EQ(it.AttachAs(earlier).code(), kRefused);
  clock_.now_ns += kServingNs;
  EXPECT_TRUE(IsConfirmed(earlier));
}

TEST_F(FenceTest, ServingLeasesAreSaidAndNeedLeases) {
  ASSERT_NO_FATAL_FAILURE(StartWithLeases());
  EXPECT_EQ(server_->Info().serving_lease_us, uint64_t{kServingNs / kMicrosecondNs});
  EXPECT_EQ(*ParseServingLease(*anna_->Call(ControlOpcode::kServe)),
            uint64_t{kServingNs / kMicrosecondNs});
  const auto create = [&](TreeMode mode) {
    return anna_->Call(ControlOpcode::kCreateTree, EncodeCreateTree({"owned", Shape(8, 8), mode}))
        .status();
  };
  EXPECT_TRUE(create(TreeMode::kOwned).ok());
  EXPECT_EQ(create(TreeMode::kShared).code(), kRefused);

  memory_ = PlainMemory();
  ASSERT_NO_FATAL_FAILURE(Start({.fence = &fence_}));
  EXPECT_EQ(server_->Info().serving_lease_us, 0u);
  EXPECT_EQ(anna_->Serve().code(), kRefused) << "it could be cut off, and nobody would do it";
  EXPECT_EQ(create(TreeMode::kOwned).code(), kRefused);
  EXPECT_TRUE(create(TreeMode::kShared).ok());

  memory_ = PlainMemory();
  ASSERT_NO_FATAL_FAILURE(StartOnShm());
  EXPECT_EQ(*ParseServingLease(*anna_->Call(ControlOpcode::kServe)), 0u);
  EXPECT_TRUE(create(TreeMode::kOwned).ok());
}

TEST_F(FenceTest, RefusesServingLeasesThatAreNone) {
  for (const int64_t lease_ns : {int64_t{-1}, int64_t{999}, 25 * 3600 * kSecondNs}) {
    EXPECT_EQ(
        MemoryServer::Create(PlainMemory().memory(),
                             {.lease_ns = kLeaseNs, .fence = &fence_, .serving_lease_ns = lease_ns})
            .status()
            .code(),
        kInvalid)
        << lease_ns;
  }
}

}  // namespace
}  // namespace pando::memory
