// Who takes a range over, or waits for that, waits for nobody else: what the catalog does not
// answer is asked again (rule O8), an owner that is stopped and has ended is not waited for (rule
// P3), and a claim that could not be handed back goes back later (rule D4). Nor does the catalog's
// silence keep a dropped tree served (rule O8), or take from the dead what is still to be found
// (rule D5).
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "bench/owned/log_moves.h"
#include "bench/owned/owned_stage.h"
#include "bench/owned/two_servers.h"
#include "common/wire/control.h"
#include "compute/client/session_impl.h"
#include "memory/memory_server.h"

namespace pando {
namespace {

using history::OperationKind;

// The catalog's server, which may say that it cannot tell where trees are.
class BusyCatalog final : public ControlHandler {
 public:
  explicit BusyCatalog(memory::MemoryServer* server) : server_(*server) {}
  std::string Handle(PeerId peer, std::string_view request) override {
    ControlHeader header;
    if (request.size() < sizeof(header)) return server_.Handle(peer, request);
    std::memcpy(&header, request.data(), sizeof(header));
    if (!busy || header.opcode != static_cast<uint16_t>(ControlOpcode::kListTreeServers)) {
      return server_.Handle(peer, request);
    }
    ++refused;
    return EncodeErrorReply(header, 1, absl::UnavailableError("it is busy"));
  }
  void OnPeerGone(PeerId peer) override { server_.OnPeerGone(peer); }
  int64_t OnTimer(int64_t now_ns) override { return server_.OnTimer(now_ns); }

  bool busy = false;
  int refused = 0;

 private:
  memory::MemoryServer& server_;
};

// The claim was won, and the catalog did not say that the tree is there (rule O8): the entry names
// a member whose users may never come again. Others that need the key are waiting for it.
TEST(OwnedClaim, AClaimThatTheCatalogDidNotAnswerForIsTakenUpLater) {
  OwnedStage stage({});
  OwnedActor* const first = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const second = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(first, 0) && stage.Open(second, 0));
  BusyCatalog catalog(&stage.cluster().server(0));
  stage.world().SetHandler(1, &catalog);
  catalog.busy = true;
  const absl::Status claimed = first->sessions[0]->Put(*first->trees[0], KeyOf(1), "value");
  EXPECT_TRUE(absl::IsUnavailable(claimed)) << claimed;
  EXPECT_GT(catalog.refused, 0);
  catalog.busy = false;
  const int64_t begin_ns = stage.NowNs();
  const auto got = second->sessions[0]->Get(*second->trees[0], KeyOf(1));
  EXPECT_TRUE(absl::IsNotFound(got.status())) << got.status();
  EXPECT_LT(stage.NowNs() - begin_ns, 2 * kSecondNs);
  const auto ranges = second->client->ListRanges(*second->trees[0]);
  ASSERT_TRUE(ranges.ok() && ranges->size() == 1);
  EXPECT_EQ((*ranges)[0].owner.compute_server, first->client->compute_server_id());
  stage.world().SetHandler(1, &stage.cluster().server(0));
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// It is taken for dead with others' operations on their way to it, and keeps its links up: what it
// was sent it may still have done, what it was not sent goes to the next one.
TEST(OwnedClaim, AnOwnerThatIsStoppedKeepsNobodyWaitingOnceItHasEnded) {
  for (const bool is_followed : {false, true}) {
    SCOPED_TRACE(is_followed ? "another member takes over" : "who asks takes over");
    OwnedStageOptions options = {.circumstances = {.leases = true, .owners_end = true}};
    options.cluster.lease_ns = 24 * kMillisecondNs;
    options.cluster.serving_lease_ns = 8 * kMillisecondNs;
    options.cluster.sim.peer_messages_max = 1;
    LogMoves stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.operation_timeout_ms = 30'000;
    OwnedActor* const owner = stage.Join(client);
    OwnedActor* const asker = stage.Join(client);
    ASSERT_TRUE(stage.Open(owner, 0) && stage.PutIn(owner, 0, 1));
    ASSERT_TRUE(stage.Open(asker, 0) && stage.PutIn(asker, 0, 2));
    if (is_followed) {
      client.owner = true;
      ASSERT_TRUE(stage.Open(stage.Join(client), 0));
    }
    const auto ask = [&](uint64_t key) {
      stage.Spawn(asker, 0, [&, key] { stage.PutIn(asker, 0, key); });
      stage.Spawn(asker, 0, [&, key] {
        stage.Do(asker, 0, 0, OwnedStage::Make(OperationKind::kGet, KeyOf(key)));
      });
    };
    constexpr int64_t kStoppedNs = 20 * kSecondNs;
    const int64_t begin_ns = stage.NowNs();
    const uint64_t concluded = stage.concluded();
    stage.Pause(owner, begin_ns, kStoppedNs);
    ask(1);
    stage.Quiet(kMillisecondNs);
    ask(2);  // there is no room on the link
    asker->sessions[0]->Run();
    EXPECT_LT(stage.NowNs() - begin_ns, 3 * kSecondNs);
    EXPECT_EQ(stage.unknown(), 1u) << "the put that was sent";
    EXPECT_EQ(stage.refused(), 0u);
    EXPECT_EQ(stage.concluded(), concluded + 3);
    EXPECT_EQ(asker->client->Stats().owned.ranges, is_followed ? 0u : 1u);
    stage.Quiet(kStoppedNs);  // it goes on, and is late
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "");
  }
}

// A dead owner has ranges of two trees; of the living ones each has one of these open. What the
// first one claims, and cannot bring to its end, the other one can.
struct TwoTrees {
  explicit TwoTrees(const ClientOptions& client = OwnedStage::SmallOwner())
      : first(stage.Join(client)) {
    EXPECT_TRUE(stage.Open(owner, 0) && stage.Open(owner, 1));
    for (size_t tree : {0, 1}) EXPECT_TRUE(stage.PutIn(owner, tree, 1));
    EXPECT_TRUE(stage.Open(first, 0) && stage.Open(second, 1));
    stage.Kill(owner);
    stage.Leave(owner);
  }
  // While the recovery waits for reads on loan: nothing of the dead owner is decided yet.
  void InItsMiddle(std::function<void()> what) {
    stage.world().At(stage.NowNs() + 3 * kMillisecondNs, std::move(what));
    (void)first->sessions[0]->Get(*first->trees[0], KeyOf(1), {.timeout_ms = 100});
  }
  void ExpectThatTheOtherOneCan() {
    stage.Quiet(2 * kSecondNs);
    const auto got = second->sessions[0]->Get(*second->trees[1], KeyOf(1), {.timeout_ms = 1000});
    EXPECT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(second->client->Stats().owned.ranges, 1u);
  }

  LogMoves stage{{.trees = 2, .circumstances = {.breaks = true, .owners_end = true}}};
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const first;
  OwnedActor* const second = stage.Join(OwnedStage::SmallOwner());
};

// The range was taken under the claim, and the catalog did not say that its tree is there.
TEST(OwnedClaim, AClaimIsHandedBackOnceWhatWasTakenUnderItIsSettled) {
  TwoTrees two;
  BusyCatalog catalog(&two.stage.cluster().server(0));
  two.stage.world().SetHandler(1, &catalog);
  two.InItsMiddle([&] { catalog.busy = true; });
  EXPECT_GT(catalog.refused, 0) << "or this shows nothing";
  catalog.busy = false;
  two.ExpectThatTheOtherOneCan();
  EXPECT_EQ(two.first->client->Stats().owned.ranges, 1u);
  two.stage.world().SetHandler(1, &two.stage.cluster().server(0));
  two.stage.LookAtTheEnd();
  EXPECT_EQ(two.stage.what(), "");
}

// It reaches no memory server before all of its time is over.
TEST(OwnedClaim, AClaimThatCouldNotBeHandedBackInTimeIsHandedBackLater) {
  TwoTrees two;
  const auto cut = [&two](bool is_cut) {
    for (int id = 1; id <= two.stage.cluster().memory_servers(); ++id) {
      two.stage.world().CutLink(*two.first->fabric, static_cast<ServerId>(id), is_cut);
    }
  };
  two.InItsMiddle([&] { cut(true); });
  two.stage.Quiet(65 * kSecondNs);
  cut(false);
  two.ExpectThatTheOtherOneCan();
  two.stage.LookAtTheEnd();
  EXPECT_EQ(two.stage.what(), "");
}

// The catalog does not say whether the tree is there. Who has just dropped it knows that.
TEST(OwnedClaim, WhoDropsATreeThatItOwnsServesItNoMore) {
  OwnedStage stage({});
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(owner, 0));
  const auto put = [&] { return owner->sessions[0]->Put(*owner->trees[0], KeyOf(1), "value"); };
  ASSERT_TRUE(put().ok());
  BusyCatalog catalog(&stage.cluster().server(0));
  stage.world().SetHandler(1, &catalog);
  stage.NoteDropped(0);
  catalog.busy = true;
  ASSERT_TRUE(owner->client->DropTree(OwnedStage::TreeName(0)).ok());
  catalog.busy = false;
  EXPECT_TRUE(absl::IsFailedPrecondition(put())) << put();
  stage.Quiet(3 * kSecondNs);
  EXPECT_TRUE(absl::IsFailedPrecondition(put())) << put();
  EXPECT_EQ(owner->client->Stats().owned.ranges, 0u);
  stage.world().SetHandler(1, &stage.cluster().server(0));
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// Whoever takes over waits for locks that somebody who is stopped holds: others that need the same
// member's service do not (rule D4).
TEST(OwnedClaim, ARangeThatCannotBeBroughtToItsLeavesKeepsNoOtherJobWaiting) {
  TwoServers two(/*lows=*/400);
  LogMoves& stage = two.stage;
  stage.Kill(two.owner);
  stage.Leave(two.owner);
  two.StopAtFar(true);
  constexpr size_t kSessions = 8;
  OwnedActor* const next = stage.Join(TwoServers::Client(), kSessions);
  ASSERT_TRUE(stage.Open(next, 0) && stage.Open(next, 1));
  // However many ask for its keys, and again and again.
  size_t found = 0;
  for (size_t i = 1; i < kSessions; ++i) {
    stage.Spawn(next, i, [&two, &found, next, i] {
      const std::string key = KeyOf(two.low + i);
      found += next->sessions[i]->Get(*next->trees[0], key, {.timeout_ms = 300'000}).ok() ? 1 : 0;
    });
  }
  const auto high = next->sessions[0]->Get(*next->trees[0], KeyOf(two.high), {.timeout_ms = 5000});
  EXPECT_TRUE(high.ok()) << high.status();
  stage.Quiet(10 * kSecondNs);
  const auto of_nobody = next->sessions[0]->Get(*next->trees[1], KeyOf(1), {.timeout_ms = 5000});
  EXPECT_TRUE(absl::IsNotFound(of_nobody.status())) << of_nobody.status();
  EXPECT_EQ(found, 0u) << "or this shows nothing";
  // Who waits for the range has it soon once that is possible.
  two.StopAtFar(false);
  stage.Quiet(3 * kSecondNs);
  EXPECT_EQ(found, kSessions - 1);
  for (size_t i = 1; i < kSessions; ++i) next->sessions[i]->Run();
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// Its entries cannot be erased as yet, one of nobody and one of its own: who holds the locks of
// their nodes is stopped.
TEST(OwnedClaim, WhoDropsATreeServesItNoMoreThoughItsEntriesStay) {
  OwnedStage stage({});
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const other = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(owner, 0) && stage.Open(other, 0));
  const auto put = [&] { return owner->sessions[0]->Put(*owner->trees[0], KeyOf(20), "value"); };
  ASSERT_TRUE(put().ok() && stage.Split(owner, 0, 0, KeyOf(10)).ok());
  ASSERT_TRUE(stage.Give(owner, 0, 0, KeyOf(5), other).ok());
  stage.Leave(other);
  ASSERT_EQ(owner->client->Stats().owned.ranges, 1u);
  stage.NoteDropped(0);
  StopAt(stage, 1, true);
  ASSERT_TRUE(owner->client->DropTree(OwnedStage::TreeName(0)).ok());
  EXPECT_EQ(owner->client->Stats().owned.ranges, 0u);
  EXPECT_TRUE(absl::IsFailedPrecondition(put())) << put();
  StopAt(stage, 1, false);
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// A dead owner's log is on a memory server that is stopped, which has to confirm the fence (rule
// D2). Who claims keys of nobody, or closes a tree, needs nothing of that.
TEST(OwnedClaim, AServerThatIsSilentKeepsNoOtherJobWaiting) {
  constexpr int64_t kTimeoutMs = 2000;
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    OwnedStageOptions options = LogMoves::Options(seed);
    options.trees = 3;
    LogMoves stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    constexpr size_t kSessions = 4;
    ClientOptions client = OwnedStage::SmallOwner();
    client.operation_timeout_ms = client.connect_timeout_ms = kTimeoutMs;
    OwnedActor* const next = stage.Join(client, kSessions);
    const ServerId log = stage.Begin(owner);
    if (log == 0) continue;
    for (const size_t tree : {0, 1, 2}) ASSERT_TRUE(stage.Open(next, tree));
    ASSERT_TRUE(stage.PutIn(next, 2, 1) && stage.Flush(next, 2));
    if (stage.LogServer(next) == log) continue;
    ++played;
    stage.world().PauseServer(log);
    stage.Kill(owner);
    stage.Leave(owner);
    size_t found = 0;
    for (size_t i = 1; i < kSessions; ++i) {
      stage.Spawn(next, i, [&found, next, i] {
        const auto got = next->sessions[i]->Get(*next->trees[0], KeyOf(i), {.timeout_ms = 60'000});
        found += got.ok() ? 1 : 0;
      });
    }
    stage.Quiet(kSecondNs / 2);
    stage.PutIn(next, 1, 1);
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.Quiet(played * kSecondNs / 3);
    const int64_t begin_ns = stage.NowNs();
    next->trees[2].reset();
    // Besides, each memory server is told of that, if it answers.
    const int64_t took_ns = stage.NowNs() - begin_ns - kTimeoutMs * kMillisecondNs;
    EXPECT_LT(took_ns, 3 * kSecondNs / 2) << "seed " << seed;
    EXPECT_EQ(found, 0u) << "or this shows nothing";
    // Who waits for the keys has them soon once that is possible.
    stage.world().ResumeServer(log);
    stage.Quiet(5 * kSecondNs / 2);
    EXPECT_EQ(found, kSessions - 1) << "seed " << seed;
    for (size_t i = 1; i < kSessions; ++i) next->sessions[i]->Run();
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "") << "seed " << seed;
  }
  EXPECT_GE(played, 3);
}

// That of who closes a tree, for whom each memory server is told of it, if it answers.
constexpr int64_t kToldMs = 2000;

void ExpectThatItEndsSoon(OwnedStage& stage, std::unique_ptr<Tree>* tree) {
  const int64_t begin_ns = stage.NowNs();
  tree->reset();
  EXPECT_LT(stage.NowNs() - begin_ns - kToldMs * kMillisecondNs, 5 * kSecondNs / 2);
}

// The catalog's server says nothing any more once a range was won, or could not be brought to its
// leaves: whether the tree is there still is not known (rule O8), and who closes a tree waits for
// that no longer than for any server.
TEST(OwnedClaim, ACatalogThatFallsSilentHoldsUpNoTreesEnd) {
  ClientOptions client = OwnedStage::SmallOwner();
  client.connect_timeout_ms = kToldMs;
  TwoTrees two(client);
  two.InItsMiddle([&] { two.stage.world().PauseCalls(1, true); });
  two.stage.Quiet(kSecondNs / 2);
  ExpectThatItEndsSoon(two.stage, &two.first->trees[0]);
  EXPECT_EQ(two.first->client->Stats().owned.claims, 1u) << "or this shows nothing";
  two.stage.Quiet(3 * kSecondNs);
  two.stage.world().PauseCalls(1, false);
  two.ExpectThatTheOtherOneCan();
  two.stage.LookAtTheEnd();
  EXPECT_EQ(two.stage.what(), "");
}

// Who waits for the key has much time, and who closes a tree has not: any question is given up
// after a second (rule D2), and asked again.
TEST(OwnedClaim, NorBeforeAnythingWasWon) {
  for (int64_t after_us = 0; after_us < 600; after_us += 20) {
    SCOPED_TRACE(after_us);
    ClientOptions client = OwnedStage::SmallOwner();
    client.connect_timeout_ms = kToldMs;
    client.owner = true;
    TwoTrees two(client);
    LogMoves& stage = two.stage;
    ASSERT_TRUE(stage.Open(two.first, 1));
    stage.world().At(stage.NowNs() + after_us * kMicrosecondNs,
                     [&] { stage.world().PauseCalls(1, true); });
    absl::Status got;
    stage.Spawn(two.first, 0, [&two, &got] {
      Session& session = *two.first->sessions[0];
      got = session.Get(*two.first->trees[0], KeyOf(1), {.timeout_ms = 300'000}).status();
    });
    stage.Quiet(kSecondNs / 2);
    ExpectThatItEndsSoon(stage, &two.first->trees[1]);
    EXPECT_EQ(two.first->client->Stats().owned.ranges, 0u) << "or this shows nothing";
    stage.world().PauseCalls(1, false);
    two.first->sessions[0]->Run();
    EXPECT_TRUE(got.ok()) << got;
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "");
  }
}

TEST(OwnedClaim, NorWhereLeavesAreOutOfReach) {
  TwoServers two(/*lows=*/10);
  LogMoves& stage = two.stage;
  for (uint64_t key = 1; key < 9; ++key) {  // of many ranges
    ASSERT_TRUE(stage.Split(two.owner, 0, 0, KeyOf(two.low + key)).ok());
  }
  stage.Kill(two.owner);
  stage.Leave(two.owner);
  two.StopAtFar(true);
  ClientOptions client = TwoServers::Client();
  client.connect_timeout_ms = kToldMs;
  OwnedActor* const next = stage.Join(client, 2);
  ASSERT_TRUE(stage.Open(next, 0) && stage.Open(next, 1) && stage.PutIn(next, 1, 1));
  bool found = false;
  stage.Spawn(next, 1, [&two, &found, next] {
    const std::string key = KeyOf(two.low);
    found = next->sessions[1]->Get(*next->trees[0], key, {.timeout_ms = 300'000}).ok();
  });
  stage.Quiet(kSecondNs / 2);
  stage.world().PauseCalls(1, true);
  stage.Quiet(kSecondNs);  // a turn is over
  const int64_t begin_ns = stage.NowNs();
  absl::Status split;
  next->sessions[0]->Spawn([&split, next] {
    SessionContext& session = ImplOf(*next->sessions[0]).context();
    OperationContext context(&session, session.NowNs() + 60 * kSecondNs);
    OwnedTree* const tree = ImplOf(*next->trees[1]).routed().owned();
    split = ImplOf(*next->client).member()->Split(context, tree, KeyOf(5));
  });
  next->sessions[0]->Run();
  EXPECT_TRUE(split.ok()) << split;
  EXPECT_LT(stage.NowNs() - begin_ns, 3 * kSecondNs);
  ExpectThatItEndsSoon(stage, &next->trees[1]);
  EXPECT_FALSE(found) << "or this shows nothing";
  // Who waits for the range has it soon once that is possible.
  two.StopAtFar(false);
  stage.world().PauseCalls(1, false);
  stage.Quiet(4 * kSecondNs);
  EXPECT_TRUE(found);
  next->sessions[1]->Run();
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// It had no keys, and is not fenced yet: until it is, all of its entries stay (rule D5).
TEST(OwnedClaim, ARecoveryThatCannotBeginErasesNothing) {
  OwnedStage stage({.circumstances = {.owners_end = true}});
  ClientOptions client = OwnedStage::SmallOwner();
  client.owner = true;
  OwnedActor* const dead = stage.Join(client);
  OwnedActor* const other = stage.Join(client);
  BusyCatalog catalog(&stage.cluster().server(0));
  stage.world().SetHandler(1, &catalog);
  catalog.busy = true;
  stage.Kill(dead);
  stage.Leave(dead);
  stage.Quiet(3 * kSecondNs);
  EXPECT_GT(catalog.refused, 0) << "or this shows nothing";
  const auto members = other->client->ListMembers();
  ASSERT_TRUE(members.ok());
  ASSERT_EQ(members->size(), 2u);
  for (const MemberInfo& member : *members) EXPECT_NE(member.identity.address, "");
  catalog.busy = false;
  stage.Quiet(3 * kSecondNs);
  EXPECT_EQ(other->client->ListMembers()->size(), 1u);
  EXPECT_EQ(stage.cluster().Counter("extents"), 1u);
  stage.world().SetHandler(1, &stage.cluster().server(0));
}

}  // namespace
}  // namespace pando
