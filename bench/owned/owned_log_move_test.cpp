// Members whose log's memory server dies (rule W6): nothing acknowledged is lost as long as the
// owner or its log's server lives.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "bench/history/checker.h"
#include "bench/owned/owned_stage.h"
#include "common/wire/root_record.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/owner/member.h"
#include "pando/losses.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;

constexpr uint64_t kKeys = 10;  // of one leaf

OwnedStageOptions Options(uint64_t seed, int memory_servers = 3) {
  OwnedStageOptions options = {.circumstances = {.server_death = true, .owners_end = true}};
  options.cluster.sim.seed = seed;
  options.cluster.memory_servers = memory_servers;
  return options;
}

class LogMoves : public OwnedStage {
 public:
  explicit LogMoves(const OwnedStageOptions& options) : OwnedStage(options) {}

  bool Put(OwnedActor* actor, uint64_t key) {
    return Do(actor, 0, 0, Make(OperationKind::kPut, KeyOf(key), NewValue()));
  }
  bool Get(OwnedActor* actor, uint64_t key) {
    return Do(actor, 0, 0, Make(OperationKind::kGet, KeyOf(key)));
  }
  ServerId LogServer(OwnedActor* actor) {
    const auto members = actor->client->ListMembers();
    if (!members.ok()) return 0;
    const MemberId self = ImplOf(*actor->client).member()->self();
    for (const MemberInfo& member : *members) {
      if (member.identity.incarnation == self.incarnation) return member.log_server;
    }
    return 0;
  }
  // Of a tree of few leaves: of all of them.
  ServerId RootServer(OwnedActor* actor) {
    const CatalogEntry& entry = ImplOf(*actor->trees[0]).context().entry;
    RootRecord root;
    (void)DecodeRootRecord(cluster().At(entry.root_record), entry.tree_id, /*crc=*/false, &root);
    return root.root.address.server();
  }
  // An owner with acknowledged records, its log on a server that nothing else is on; 0: no such.
  ServerId Begin(OwnedActor* owner) {
    if (!Open(owner, 0)) return 0;
    for (uint64_t key = 1; key <= kKeys; ++key) Put(owner, key);
    const ServerId log = LogServer(owner);
    const ServerId leaf = RootServer(owner);
    return log == 1 || log == leaf ? 0 : log;
  }
  // Whoever comes later connects to all.
  void LookAgain(const std::vector<ServerId>& dead) {
    for (const ServerId server : dead) cluster().StartAgain(server);
    LookAtTheEnd();
  }
};

// The owner goes on, and dies with a log elsewhere.
TEST(OwnedLogMove, TheOwnerGoesOnAndItsNextLogHasEverything) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LogMoves stage(Options(seed));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    if (log == 0 || !stage.Open(next, 0)) continue;
    ++played;
    stage.world().KillServer(log);
    for (uint64_t key = 1; key <= kKeys; key += 3) ASSERT_TRUE(stage.Put(owner, key));
    EXPECT_NE(stage.LogServer(owner), log) << "seed " << seed;
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.Kill(owner);
    stage.Leave(owner);
    for (uint64_t key = 1; key <= kKeys; ++key) ASSERT_TRUE(stage.Get(next, key));
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
    LogMoves stage(Options(seed, /*memory_servers=*/4));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId first = stage.Begin(owner);
    if (first == 0 || !stage.Open(next, 0)) continue;
    stage.world().KillServer(first);
    for (uint64_t key = 1; key <= kKeys; key += 3) ASSERT_TRUE(stage.Put(owner, key));
    const ServerId second = stage.LogServer(owner);
    if (second == 1 || second == stage.RootServer(owner)) continue;
    ++played;
    stage.world().KillServer(second);
    for (uint64_t key = 2; key <= kKeys; key += 3) ASSERT_TRUE(stage.Put(owner, key));
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.Kill(owner);
    stage.Leave(owner);
    for (uint64_t key = 1; key <= kKeys; ++key) ASSERT_TRUE(stage.Get(next, key));
    EXPECT_EQ(stage.refused() + stage.unknown(), 0u) << "seed " << seed;
    stage.LookAgain({first, second});
    EXPECT_EQ(stage.what(), "") << "seed " << seed;
  }
  EXPECT_GE(played, 2);
}

// Between any two of its packets from the death of the log's server on: its keys are as they were
// acknowledged, or they are Unavailable.
TEST(OwnedLogMove, TheOwnerDiesOnTheWay) {
  int whole = 0, lost = 0;
  for (uint64_t packets = 0; packets < 60; ++packets) {
    LogMoves stage(Options(/*seed=*/3));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    ASSERT_TRUE(log != 0 && stage.Open(next, 0));
    stage.world().KillServer(log);
    stage.KillAfter(owner, packets);
    for (uint64_t key = 1; key <= kKeys && !owner->dead; ++key) stage.Put(owner, key);
    stage.Quiet(20 * kMillisecondNs);
    stage.Kill(owner);
    stage.Leave(owner);
    const uint64_t refused = stage.refused();
    for (uint64_t key = 1; key <= kKeys; ++key) ASSERT_TRUE(stage.Get(next, key));
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
  LogMoves stage(Options(/*seed=*/3));
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

}  // namespace
}  // namespace pando
