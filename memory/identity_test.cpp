// Who may speak to a memory server as whom (rule C0), seen by a client that tells the truth beside
// clients that do not.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "common/base/clock.h"
#include "memory/server_test_util.h"

namespace pando::memory {
namespace {

std::shared_ptr<const IdentityKey> Key(char byte) {
  return std::make_shared<const IdentityKey>(*IdentityKey::FromBytes(std::string(32, byte)));
}

// A catalog's server and another, with a key or without, and a client that is at work there.
class IdentityTest : public testing::Test {
 protected:
  void StartBoth(std::shared_ptr<const IdentityKey> key) {
    catalog_ = Start(1, std::move(key));
    other_ = Start(2, catalog_key_);
    anna_ = std::make_unique<TestClient>(catalog_.get(), 1);
    anna_there_ = std::make_unique<TestClient>(other_.get(), 1);
    ASSERT_TRUE(anna_->Join().ok());
    ASSERT_TRUE(anna_there_->AttachAs(anna_->id, anna_->proof).ok());
    tree_id_ = anna_->CreateTree("a")->tree_id;
    ASSERT_TRUE(anna_there_->AttachTree(tree_id_).ok());
  }
  std::unique_ptr<MemoryServer> Start(ServerId id, std::shared_ptr<const IdentityKey> key) {
    catalog_key_ = key;
    memories_.push_back(std::make_unique<PlainMemory>());
    auto server =
        MemoryServer::Create(memories_.back()->memory(), {.server_id = id,
                                                          .is_catalog = id == 1,
                                                          .fence_words_per_step = 256,
                                                          .fence_step_ns = 0,
                                                          .identity_key = std::move(key)});
    EXPECT_TRUE(server.ok()) << server.status();
    return *std::move(server);
  }
  // Anna works on, and a newcomer gets in; how long the slowest of these took.
  int64_t AnnaWorksOn() {
    const int64_t begun_ns = ThreadCpuNs();
    EXPECT_TRUE(anna_there_->AttachTree(tree_id_).ok());
    EXPECT_TRUE(anna_there_->Call(ControlOpcode::kPing).ok());
    TestClient newcomer(catalog_.get(), ++last_peer_), newcomer_there(other_.get(), last_peer_);
    EXPECT_TRUE(newcomer.Join().ok());
    const absl::Status there = newcomer_there.AttachAs(newcomer.id, newcomer.proof);
    EXPECT_TRUE(there.ok()) << there;
    catalog_->OnPeerGone(last_peer_);
    other_->OnPeerGone(last_peer_);
    return ThreadCpuNs() - begun_ns;
  }
  // What the fabric does in between; how long the slowest turn took.
  int64_t RunTimer() {
    int64_t slowest_ns = 0, next_ns = 0;
    for (int turns = 0; next_ns != kNeverNs && turns < 1'000'000; ++turns) {
      const int64_t begun_ns = ThreadCpuNs();
      next_ns = other_->OnTimer(RealClock().NowNs());
      slowest_ns = std::max(slowest_ns, ThreadCpuNs() - begun_ns);
    }
    EXPECT_EQ(next_ns, kNeverNs);
    return slowest_ns;
  }

  std::shared_ptr<const IdentityKey> catalog_key_;
  std::vector<std::unique_ptr<PlainMemory>> memories_;
  std::unique_ptr<MemoryServer> catalog_, other_;
  std::unique_ptr<TestClient> anna_, anna_there_;
  uint32_t tree_id_ = 0;
  static constexpr PeerId kFirstNewcomer = 1'000'000;
  PeerId last_peer_ = kFirstNewcomer;
};

TEST_F(IdentityTest, MadeUpIdentitiesAreRefusedAndLockNobodyOut) {
  ASSERT_NO_FATAL_FAILURE(StartBoth(Key('k')));
  TestClient mallory(other_.get(), 666);
  for (uint32_t id = 1; id <= ClientTable::kComputeServerMax; ++id) {
    const absl::Status status = mallory.AttachAs({static_cast<uint16_t>(id), UINT32_MAX});
    ASSERT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
    if (id % 8192 == 0) {
      EXPECT_LT(AnnaWorksOn(), kSecondNs);
    }
  }
  // Nor with a connection for each.
  for (PeerId peer = 1000; peer < 20'000; ++peer) {
    TestClient another(other_.get(), peer);
    ASSERT_FALSE(another.AttachAs({7, static_cast<uint32_t>(100'000'000 + peer)}).ok());
    other_->OnPeerGone(peer);
  }
  other_->OnPeerGone(666);
  EXPECT_LT(RunTimer(), kSecondNs);
  EXPECT_LT(AnnaWorksOn(), kSecondNs);
  EXPECT_EQ(CounterOf(*other_, "deaths"), last_peer_ - kFirstNewcomer) << "the newcomers'";
}

TEST_F(IdentityTest, AProofIsOneIdentitysAndOneKeys) {
  ASSERT_NO_FATAL_FAILURE(StartBoth(Key('k')));
  TestClient bert(catalog_.get(), 2), bert_there(other_.get(), 2), mallory(other_.get(), 3);
  ASSERT_TRUE(bert.Join().ok());
  const auto code = [&](const ClientId& id, const Mac& proof) {
    return mallory.AttachAs(id, proof).code();
  };
  const auto denied = absl::StatusCode::kPermissionDenied;
  EXPECT_EQ(code({bert.id.compute_server, bert.id.incarnation + 1}, bert.proof), denied);
  EXPECT_EQ(
      code({static_cast<uint16_t>(bert.id.compute_server + 1), bert.id.incarnation}, bert.proof),
      denied);
  EXPECT_EQ(code(bert.id, anna_->proof), denied);
  EXPECT_EQ(code(bert.id, Key('x')->Sign(bert.id.compute_server, bert.id.incarnation)), denied);
  ASSERT_TRUE(bert_there.AttachAs(bert.id, bert.proof).ok());
  EXPECT_EQ(code(bert.id, bert.proof), denied) << "another connection has it";
}

// A client that gave a silent server up in the middle of its introduction, and comes again.
TEST_F(IdentityTest, AnIntroductionThatIsWithdrawnIsNoDeath) {
  ASSERT_NO_FATAL_FAILURE(StartBoth(Key('k')));
  TestClient bert(catalog_.get(), 2), there(other_.get(), 2), again(other_.get(), 3);
  ASSERT_TRUE(bert.Join().ok());
  ASSERT_TRUE(there.AttachAs(bert.id, bert.proof).ok());
  ASSERT_TRUE(there.AttachTree(tree_id_).ok());
  ASSERT_TRUE(there.Call(ControlOpcode::kWithdraw).ok());
  EXPECT_EQ(anna_there_->StateOf(bert.id), ClientLiveness::kUnknown);
  EXPECT_FALSE(other_->IsKnown(2));
  EXPECT_FALSE(there.AttachTree(tree_id_).ok()) << "what comes late";
  EXPECT_FALSE(there.AttachAs(bert.id, bert.proof).ok()) << "what comes late";
  ASSERT_TRUE(again.AttachAs(bert.id, bert.proof).ok());
  ASSERT_TRUE(again.AttachTree(tree_id_).ok());
  const auto granted = again.AllocateNodes(tree_id_, 1024);
  ASSERT_TRUE(granted.ok()) << granted.status();
  other_->OnPeerGone(2);
  EXPECT_EQ(CounterOf(*other_, "deaths"), 0u);
  EXPECT_TRUE(again.Call(ControlOpcode::kPing).ok());
  EXPECT_EQ(anna_there_->StateOf(bert.id), ClientLiveness::kJoined);
  EXPECT_EQ(CounterOf(*other_, "nodes_orphan"), 0u);
  other_->OnPeerGone(3);
  EXPECT_EQ(CounterOf(*other_, "deaths"), 1u);
  // Others have taken over from it: it has ended, wherever it has not begun.
  TestClient carl(catalog_.get(), 4), carl_there(other_.get(), 4), carl_again(other_.get(), 5);
  ASSERT_TRUE(carl.Join().ok());
  ASSERT_TRUE(carl_there.AttachAs(carl.id, carl.proof).ok());
  ASSERT_TRUE(carl_there.Call(ControlOpcode::kWithdraw).ok());
  ASSERT_TRUE(anna_there_->Fence(carl.id).ok());
  EXPECT_FALSE(carl_again.AttachAs(carl.id, carl.proof).ok());
}

// Servers that share no key take a client at his word, but for one word only.
TEST_F(IdentityTest, WithoutAKeyAConnectionFillsOneEntry) {
  ASSERT_NO_FATAL_FAILURE(StartBoth(nullptr));
  EXPECT_EQ(anna_->proof, Mac{});
  TestClient mallory(other_.get(), 666);
  ASSERT_TRUE(mallory.AttachAs({40'000, UINT32_MAX}).ok());
  for (uint32_t i = 0; i < 20'000; ++i) {
    ASSERT_FALSE(mallory.AttachAs({7, 100'000'000 + i}).ok());
  }
  EXPECT_LT(AnnaWorksOn(), kSecondNs);
  const int64_t begun_ns = ThreadCpuNs();
  other_->OnPeerGone(666);
  EXPECT_LT(ThreadCpuNs() - begun_ns, kSecondNs / 10);
  EXPECT_LT(RunTimer(), kSecondNs / 10);
  EXPECT_LT(AnnaWorksOn(), kSecondNs);
}

TEST_F(IdentityTest, AConnectionJoinsOnce) {
  ASSERT_NO_FATAL_FAILURE(StartBoth(Key('k')));
  TestClient mallory(catalog_.get(), 666);
  ASSERT_TRUE(mallory.Join().ok());
  const ClientId first = mallory.id;
  for (int i = 0; i < 70'000; ++i) {
    mallory.id = {};
    ASSERT_EQ(mallory.Join().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_LT(AnnaWorksOn(), kSecondNs);
  EXPECT_EQ(CounterOf(*catalog_, "clients"), 2u);
  EXPECT_EQ(anna_->StateOf(first), ClientLiveness::kJoined);
}

// A thousand clients die at once: between any two steps of that work others are answered.
TEST_F(IdentityTest, TheWorkForTheDeadIsBoundedAStep) {
  ASSERT_NO_FATAL_FAILURE(StartBoth(Key('k')));
  constexpr PeerId kFirst = 2000, kClients = 1000;
  for (PeerId peer = kFirst; peer < kFirst + kClients; ++peer) {
    TestClient client(catalog_.get(), peer), there(other_.get(), peer);
    ASSERT_TRUE(client.Join().ok());
    ASSERT_TRUE(there.AttachAs(client.id, client.proof).ok());
    ASSERT_TRUE(there.AttachTree(tree_id_).ok());
    for (int i = 0; i < 8; ++i) (void)there.AllocateNodes(tree_id_, 1024, 1);
  }
  const int64_t begun_ns = ThreadCpuNs();
  for (PeerId peer = kFirst; peer < kFirst + kClients; ++peer) other_->OnPeerGone(peer);
  EXPECT_LT(ThreadCpuNs() - begun_ns, kSecondNs / 10);
  EXPECT_LT(AnnaWorksOn(), kSecondNs / 10);
  EXPECT_LT(RunTimer(), kSecondNs / 100);
  EXPECT_EQ(CounterOf(*other_, "deaths"), kClients + 1);
  EXPECT_EQ(CounterOf(*other_, "nodes_out"), 0u);
}

// What a client says of ids that others have met is no way to use them up, and what it says to
// have open is gone with it.
TEST_F(IdentityTest, MadeUpIdsAndTreesHarmNobodyLater) {
  ASSERT_NO_FATAL_FAILURE(StartBoth(Key('k')));
  TestClient mallory(catalog_.get(), 666), mallory_there(other_.get(), 666);
  ASSERT_TRUE(mallory.Join().ok());
  ASSERT_TRUE(mallory_there.AttachAs(mallory.id, mallory.proof).ok());
  EXPECT_FALSE(mallory_there.AttachTree(UINT32_MAX - 1).ok());
  for (uint32_t id = 1'000; id < 1'000 + TreeTable::kTreesInUseMax; ++id) {
    (void)mallory_there.AttachTree(id);
  }
  TestClient liar(catalog_.get(), 667);
  for (const uint32_t floor : {UINT32_MAX, UINT32_MAX - 1, UINT32_MAX - (1u << 24)}) {
    (void)liar.Call(ControlOpcode::kJoin, EncodeJoinRequest({1, floor}));
  }
  for (const PeerId peer : {666, 667}) {
    catalog_->OnPeerGone(peer);
    other_->OnPeerGone(peer);
  }
  (void)RunTimer();
  AnnaWorksOn();
  const auto tree = anna_->CreateTree("new");
  ASSERT_TRUE(tree.ok()) << tree.status();
  EXPECT_LT(tree->tree_id, 1'000'000u) << "the ids are there still";
  EXPECT_TRUE(anna_there_->AttachTree(tree->tree_id).ok());
  EXPECT_LT(other_->Info().highest_id, 1'000'000u);
}

}  // namespace
}  // namespace pando::memory
