// Members whose log's memory server dies (rule W6): nothing acknowledged is lost as long as the
// owner or its log's server lives.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/history/checker.h"
#include "bench/owned/log_moves.h"
#include "bench/owned/owned_stage.h"
#include "common/base/check.h"
#include "common/wire/control.h"
#include "memory/memory_server.h"
#include "pando/losses.h"

namespace pando {
namespace {

// The owner goes on, and dies with a log elsewhere.
TEST(OwnedLogMove, TheOwnerGoesOnAndItsNextLogHasEverything) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LogMoves stage(LogMoves::Options(seed));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    if (log == 0 || !stage.Open(next, 0)) continue;
    ++played;
    stage.world().KillServer(log);
    for (uint64_t key = 1; key <= LogMoves::kKeys; key += 3) ASSERT_TRUE(stage.Put(owner, key));
    EXPECT_NE(stage.LogServer(owner), log) << "seed " << seed;
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.Kill(owner);
    stage.Leave(owner);
    for (uint64_t key = 1; key <= LogMoves::kKeys; ++key) ASSERT_TRUE(stage.Get(next, key));
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.LookAgain({log});
    EXPECT_EQ(stage.what(), "") << "seed " << seed;
  }
  EXPECT_GE(played, 3);
}

// The one that it has moved to dies as well.
TEST(OwnedLogMove, ItMovesTwice) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LogMoves stage(LogMoves::Options(seed, /*memory_servers=*/4));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId first = stage.Begin(owner);
    if (first == 0 || !stage.Open(next, 0)) continue;
    stage.world().KillServer(first);
    for (uint64_t key = 1; key <= LogMoves::kKeys; key += 3) ASSERT_TRUE(stage.Put(owner, key));
    const ServerId second = stage.LogServer(owner);
    if (second == 1 || second == stage.RootServer(owner)) continue;
    ++played;
    stage.world().KillServer(second);
    for (uint64_t key = 2; key <= LogMoves::kKeys; key += 3) ASSERT_TRUE(stage.Put(owner, key));
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.Kill(owner);
    stage.Leave(owner);
    for (uint64_t key = 1; key <= LogMoves::kKeys; ++key) ASSERT_TRUE(stage.Get(next, key));
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.LookAgain({first, second});
    EXPECT_EQ(stage.what(), "") << "seed " << seed;
  }
  EXPECT_GE(played, 2);
}

// The cluster tree is gone as well: no attempt at another place can be told to anybody.
TEST(OwnedLogMove, WhereItsEntryIsOutOfReachItTakesNoMemory) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LogMoves stage(LogMoves::Options(seed));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    if (log == 0) continue;
    ++played;
    const uint64_t extents = stage.cluster().Counter("extents");
    for (const ServerId server : {ServerId{1}, log}) stage.world().KillServer(server);
    stage.Quiet(3 * kSecondNs);
    EXPECT_LE(stage.cluster().Counter("extents"), extents + 1) << "seed " << seed;
  }
  EXPECT_GE(played, 3);
}

TEST(OwnedLogMove, WhatIsGivenMeanwhileIsInItsLeaves) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    EXPECT_EQ(LogMoves::GiveWhileTheLogMoves(seed), "") << "seed " << seed;
  }
}

// Between any two of its packets from the death of the log's server on: its keys are as they were
// acknowledged, or they are Unavailable.
TEST(OwnedLogMove, TheOwnerDiesOnTheWay) {
  int whole = 0, lost = 0;
  for (uint64_t packets = 0; packets < 60; ++packets) {
    LogMoves stage(LogMoves::Options(/*seed=*/3));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    ASSERT_TRUE(log != 0 && stage.Open(next, 0));
    stage.world().KillServer(log);
    stage.KillAfter(owner, packets);
    for (uint64_t key = 1; key <= LogMoves::kKeys && !owner->dead; ++key) stage.Put(owner, key);
    stage.Quiet(20 * kMillisecondNs);
    stage.Kill(owner);
    stage.Leave(owner);
    const uint64_t refused = stage.refused();
    for (uint64_t key = 1; key <= LogMoves::kKeys; ++key) ASSERT_TRUE(stage.Get(next, key));
    ++(stage.refused() == refused ? whole : lost);
    const history::CheckResult checked = history::CheckHistory(stage.history(0), nullptr, nullptr);
    EXPECT_TRUE(checked.violations.empty()) << checked.violations[0] << ", " << packets;
    EXPECT_EQ(stage.what(), "") << packets;
  }
  EXPECT_GE(whole, 5);
  EXPECT_GE(lost, 2);
}

// Rule D6: owner and log are lost, until somebody says that this is so.
TEST(OwnedLogMove, AnOperatorAcceptsTheLoss) {
  LogMoves stage(LogMoves::Options(/*seed=*/3));
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  const ServerId log = stage.Begin(owner);
  ASSERT_NE(log, 0);
  stage.Kill(owner);
  stage.Leave(owner);
  stage.cluster().StartAgain(log);
  OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(next, 0));
  const auto before = next->sessions[0]->Get(*next->trees[0], KeyOf(1));
  EXPECT_TRUE(absl::IsUnavailable(before.status())) << before.status();
  std::vector<LossInfo> losses;
  const absl::Status alive = AcceptLoss(*next->client, {.servers_dead = {log}}, &losses);
  EXPECT_TRUE(absl::IsFailedPrecondition(alive)) << alive;
  ASSERT_TRUE(AcceptLoss(*next->client, {}, &losses).ok());
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_EQ(losses[0].tree, OwnedStage::TreeName(0));
  EXPECT_EQ(losses[0].low + losses[0].high, "");
  EXPECT_EQ(losses[0].since, 1u);
  EXPECT_NE(losses[0].why.find("the log of"), std::string::npos) << losses[0].why;
  const auto after = next->sessions[0]->Get(*next->trees[0], KeyOf(1));
  EXPECT_TRUE(after.ok() || absl::IsNotFound(after.status())) << after.status();
  ASSERT_TRUE(AcceptLoss(*next->client, {}, &losses).ok());
  EXPECT_TRUE(losses.empty()) << "twice";
}

// The log's server dies; what was dirty is in the leaves all the same, and nothing else was asked
// for.
TEST(OwnedLogMove, WhatIsDirtyIsFlushedWithoutALog) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LogMoves stage(LogMoves::Options(seed, /*memory_servers=*/2));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    if (log == 0) continue;
    ++played;
    stage.world().KillServer(log);
    const absl::Status flushed = owner->sessions[0]->Flush(*owner->trees[0]);
    EXPECT_TRUE(flushed.ok()) << flushed << ", seed " << seed;
    EXPECT_EQ(owner->client->Stats().owned.dirty_bytes, 0u) << "seed " << seed;
    EXPECT_EQ(stage.ReadLeaves(0).size(), LogMoves::kKeys) << "seed " << seed;
  }
  EXPECT_GE(played, 3);
}

// The catalog's server says nothing any more from some moment of that on: the operator is told of
// what changes hands, also if it is settled later only. How long it took undisturbed.
int64_t AcceptLossWhileTheCatalogFallsSilent(int64_t after_ns, int* late) {
  LogMoves stage(LogMoves::Options(/*seed=*/3));
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  const ServerId log = stage.Begin(owner);
  EXPECT_NE(log, 0);
  stage.Kill(owner);
  stage.Leave(owner);
  stage.cluster().StartAgain(log);
  OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
  EXPECT_TRUE(stage.Open(next, 0));
  const int64_t begin_ns = stage.NowNs();
  stage.world().At(begin_ns + after_ns, [&] { stage.world().PauseCalls(1, true); });
  std::vector<LossInfo> losses, more;
  const absl::Status accepted = AcceptLoss(*next->client, {.timeout_ms = 300}, &losses);
  const int64_t took_ns = stage.NowNs() - begin_ns;
  stage.world().PauseCalls(1, false);
  const absl::Status again = AcceptLoss(*next->client, {}, &more);
  EXPECT_TRUE(again.ok()) << again;
  const auto got = next->sessions[0]->Get(*next->trees[0], KeyOf(1));
  EXPECT_TRUE(got.ok() || absl::IsNotFound(got.status())) << got.status();
  EXPECT_EQ(losses.size() + more.size(), 1u) << after_ns << " ns: " << accepted;
  *late += !accepted.ok() && !losses.empty() ? 1 : 0;
  return took_ns;
}

TEST(OwnedLogMove, ALossThatIsSettledLaterIsSaid) {
  int late = 0;
  const int64_t took_ns = AcceptLossWhileTheCatalogFallsSilent(10 * kSecondNs, &late);
  for (int64_t before_ns = 0; before_ns < kMillisecondNs; before_ns += 4 * kMicrosecondNs) {
    AcceptLossWhileTheCatalogFallsSilent(took_ns - before_ns, &late);
  }
  EXPECT_GT(late, 0) << "or this shows nothing";
}

// The log's server of the first of two that have ended says nothing. What the other one had is
// taken over all the same, however little time there is.
TEST(OwnedLogMove, WhoAcceptsALossDoesNotWaitForOneServerAllTheTime) {
  int played = 0;
  uint64_t taken = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    OwnedStageOptions options = LogMoves::Options(seed, /*memory_servers=*/4);
    options.trees = 3;
    options.cluster.sim.call_delay_ns = kMillisecondNs;
    LogMoves stage(options);
    OwnedActor* const first = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const second = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(first);
    if (log == 0) continue;
    ASSERT_TRUE(stage.Open(second, 1) && stage.PutIn(second, 1, 1));
    for (const size_t tree : {0, 1, 2}) ASSERT_TRUE(stage.Open(next, tree));
    ASSERT_TRUE(stage.PutIn(next, 2, 1));
    if (stage.LogServer(second) == log) continue;
    ++played;
    const uint64_t before = next->client->Stats().owned.ranges;
    stage.world().PauseServer(log);
    for (OwnedActor* const dead : {first, second}) stage.Kill(dead);
    std::vector<LossInfo> losses;
    const absl::Status accepted = AcceptLoss(*next->client, {.timeout_ms = 300}, &losses);
    EXPECT_TRUE(absl::IsDeadlineExceeded(accepted)) << accepted << ", seed " << seed;
    taken += next->client->Stats().owned.ranges - before;
    EXPECT_TRUE(losses.empty()) << "seed " << seed;
    stage.world().ResumeServer(log);
    for (OwnedActor* const dead : {first, second}) stage.Leave(dead);
    const absl::Status again = AcceptLoss(*next->client, {}, &losses);
    EXPECT_TRUE(again.ok()) << again << ", seed " << seed;
    EXPECT_EQ(next->client->Stats().owned.ranges, before + 2) << "seed " << seed;
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "") << "seed " << seed;
  }
  EXPECT_GE(played, 3);
  // Elsewhere the server has nodes of a tree, too, and has to confirm both ends.
  EXPECT_GE(taken, 3u);
}

// One of the others says nothing: a third has room.
TEST(OwnedLogMove, ASilentServerKeepsItFromNoOther) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LogMoves stage(LogMoves::Options(seed, /*memory_servers=*/4));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    if (log == 0) continue;
    ++played;
    stage.world().KillServer(log);
    const ServerId silent = log == 2 ? 3 : 2;
    stage.world().PauseCalls(silent, true);
    const int64_t begin_ns = stage.NowNs();
    ASSERT_TRUE(stage.Put(owner, 1));
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    EXPECT_LT(stage.NowNs() - begin_ns, 5 * kSecondNs) << "seed " << seed;
    stage.world().PauseCalls(silent, false);
    stage.LookAgain({log});
    EXPECT_EQ(stage.what(), "") << "seed " << seed;
  }
  EXPECT_GE(played, 3);
}

// Who dies before anything names his log leaves one that others free, also if a server before that
// one says nothing.
TEST(OwnedLogMove, ASilentServerKeepsNobodysLogFromBeingFreed) {
  constexpr ServerId kSilent = 2;
  int played = 0;
  for (uint64_t packets = 0; packets < 12; ++packets) {
    OwnedStageOptions options = LogMoves::Options(/*seed=*/3, /*memory_servers=*/4);
    options.trees = 2;
    LogMoves stage(options);
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const dead = stage.Join(OwnedStage::SmallOwner());
    ASSERT_TRUE(stage.Open(next, 0) && stage.Put(next, 1) && stage.Open(dead, 1));
    const auto logs_behind = [&] {
      uint64_t logs = 0;
      for (int index = kSilent; index < stage.cluster().memory_servers(); ++index) {
        for (const auto& [name, value] : stage.cluster().server(index).Counters()) {
          logs += name == "extents" ? value : 0;
        }
      }
      return logs;
    };
    const uint64_t before = logs_behind();
    stage.KillAfter(dead, packets);
    (void)stage.PutIn(dead, 1, 1);
    stage.Kill(dead);
    // Where the cluster tree names it, all servers have to confirm its end first (rule D2).
    const auto members = next->client->ListMembers();
    ASSERT_TRUE(members.ok());
    if (members->size() > 1 || logs_behind() == before) continue;
    ++played;
    stage.world().PauseCalls(kSilent, true);
    stage.Quiet(5 * kSecondNs);
    EXPECT_EQ(logs_behind(), before) << packets;
    stage.world().PauseCalls(kSilent, false);
  }
  EXPECT_GE(played, 2);
}

// One of them falls silent as a tree is dropped.
class FallsSilentAtADrop final : public ControlHandler {
 public:
  FallsSilentAtADrop(OwnedStage* stage, ServerId silent)
      : server_(stage->cluster().server(0)), world_(stage->world()), silent_(silent) {
    world_.SetHandler(1, this);
  }
  ~FallsSilentAtADrop() override { world_.SetHandler(1, &server_); }
  std::string Handle(PeerId peer, std::string_view request) override {
    const absl::StatusOr<ControlMessage> asked = ParseMessage(request);
    PANDO_CHECK_OK(asked.status());
    const auto opcode = static_cast<ControlOpcode>(asked->header.opcode);
    if (opcode == ControlOpcode::kDropTree) world_.PauseCalls(silent_, true);
    return server_.Handle(peer, request);
  }
  void OnPeerGone(PeerId peer) override { server_.OnPeerGone(peer); }
  int64_t OnTimer(int64_t now_ns) override { return server_.OnTimer(now_ns); }

 private:
  memory::MemoryServer& server_;
  sim::SimWorld& world_;
  const ServerId silent_;
};

// Of a dropped tree two that have ended had keys; the log of one is on a server that is silent by
// then. Who drops it has no log, and little time: what the other one has left goes all the same.
TEST(OwnedLogMove, ASilentServerKeepsNobodyElseFromBeingTidiedUp) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    OwnedStageOptions options = LogMoves::Options(seed, /*memory_servers=*/4);
    options.trees = 2;
    LogMoves stage(options);
    OwnedActor* const first = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const second = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(first);
    if (log == 0) continue;
    ASSERT_TRUE(stage.Open(second, 0) && stage.Split(first, 0, 0, KeyOf(5)).ok());
    ASSERT_TRUE(stage.Give(first, 0, 0, KeyOf(5), second).ok() && stage.Get(second, 5));
    if (stage.LogServer(second) == log) continue;
    ++played;
    for (OwnedActor* const dead : {first, second}) stage.Kill(dead);
    for (OwnedActor* const dead : {first, second}) stage.Leave(dead);
    ClientOptions client = OwnedStage::SmallOwner();
    client.connect_timeout_ms = 500;
    OwnedActor* const other = stage.Join(client);
    ASSERT_TRUE(stage.Open(other, 1));
    stage.NoteDropped(0);
    FallsSilentAtADrop catalog(&stage, log);
    const int64_t begin_ns = stage.NowNs();
    ASSERT_TRUE(other->client->DropTree(OwnedStage::TreeName(0)).ok());
    EXPECT_LE(stage.NowNs() - begin_ns, 510 * kMillisecondNs) << "seed " << seed;
    EXPECT_EQ(stage.cluster().Counter("extents"), 1u) << "seed " << seed;
    stage.world().PauseCalls(log, false);
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "") << "seed " << seed;
  }
  EXPECT_GE(played, 3);
}

// The log's entry cannot be changed, as a client that has stopped holds the lock of its leaf, and
// until then nothing becomes durable: flushes keep nobody waiting who closes another tree. The
// log's server dies that long after some look of the flushes.
TEST(OwnedLogMove, ATreeIsClosedInTimeMeanwhile) {
  for (int64_t after_ms = 0; after_ms < 50; after_ms += 4) {
    OwnedStageOptions options = LogMoves::Options(/*seed=*/3);
    options.trees = 3;
    LogMoves stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.connect_timeout_ms = 1000;
    OwnedActor* const owner = stage.Join(client);
    OwnedActor* const stopped = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    ASSERT_TRUE(log != 0 && stage.Open(owner, 1) && stage.Open(stopped, 2));
    ASSERT_TRUE(stage.Do(owner, 0, 1, OwnedStage::Make(history::OperationKind::kGet, KeyOf(1))));
    ASSERT_TRUE(stage.Do(stopped, 0, 2, OwnedStage::Make(history::OperationKind::kGet, KeyOf(1))));
    // More than half of it, which flushes look at.
    while (owner->client->Stats().owned.log_used_bytes < (40 << 10)) {
      ASSERT_TRUE(stage.Put(owner, 1));
    }
    stage.world().LimitPackets(*stopped->fabric, 1);
    stage.Spawn(stopped, 0, [&] { (void)stage.Split(stopped, 0, 2, KeyOf(5)); });
    stage.Quiet((50 + after_ms) * kMillisecondNs);
    ASSERT_TRUE(stage.world().PacketsSpent(*stopped->fabric));
    stage.world().KillServer(log);
    stage.Spawn(owner, 0, [&] { (void)stage.Put(owner, 1); });
    stage.Quiet(100 * kMillisecondNs);
    const int64_t begin_ns = stage.NowNs();
    owner->trees[1].reset();
    EXPECT_LT(stage.NowNs() - begin_ns, 3 * kSecondNs) << after_ms << " ms";
    stage.Kill(stopped);
    stage.Kill(owner);
  }
}

// The same, and a tombstone is appended again, to a log that nothing names for a while: it is no
// younger for that (rule B5).
TEST(OwnedLogMove, ATombstoneKeepsItsAgeMeanwhile) {
  OwnedStageOptions options = LogMoves::Options(/*seed=*/3);
  options.trees = 2;
  options.tree.delete_persistence_ms = 200'000;
  LogMoves stage(options);
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const stopped = stage.Join(OwnedStage::SmallOwner());
  const ServerId log = stage.Begin(owner);
  ASSERT_TRUE(log != 0 && stage.Open(stopped, 1));
  ASSERT_TRUE(stage.Do(stopped, 0, 1, OwnedStage::Make(history::OperationKind::kGet, KeyOf(1))));
  ASSERT_TRUE(stage.Do(owner, 0, 0, OwnedStage::Make(history::OperationKind::kDelete, KeyOf(1))));
  const int64_t erased_ns = stage.NowNs();
  stage.Quiet(5 * kSecondNs);
  stage.world().LimitPackets(*stopped->fabric, 1);
  stage.Spawn(stopped, 0, [&] { (void)stage.Split(stopped, 0, 1, KeyOf(5)); });
  stage.Quiet(50 * kMillisecondNs);
  ASSERT_TRUE(stage.world().PacketsSpent(*stopped->fabric));
  stage.world().KillServer(log);
  stage.Spawn(owner, 0, [&] { (void)stage.Put(owner, 2); });
  for (const bool has_moved : {false, true}) {
    if (has_moved) stage.Kill(stopped);
    stage.Quiet(3 * kSecondNs);
    EXPECT_EQ(ImplOf(*owner->client).member()->log().is_in_place(), has_moved);
    const OwnedStats stats = owner->client->Stats().owned;
    EXPECT_EQ(stats.tombstones, 1u) << "or this shows nothing";
    const int64_t age_ms = (stage.NowNs() - erased_ns) / kMillisecondNs;
    EXPECT_GE(static_cast<int64_t>(stats.oldest_tombstone_ms) + 100, age_ms)
        << "has moved: " << has_moved;
  }
  stage.Kill(owner);
}

}  // namespace
}  // namespace pando
