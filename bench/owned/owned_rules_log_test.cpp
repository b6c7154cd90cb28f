// What goes wrong with a log that moves, is freed or cannot be read where a rule does not hold
// (common/base/rule.h); with all of them nothing does.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/owned/log_moves.h"
#include "bench/owned/owned_rules.h"
#include "common/base/rule.h"
#include "pando/losses.h"

namespace pando {
namespace {

// The owner's log moves, and the owner dies. What another member finds then: "" if it is all that
// was acknowledged, or if the seed has no server with nothing but the log.
std::string FindAfterTheMove(uint64_t seed) {
  LogMoves stage(LogMoves::Options(seed));
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
  const ServerId log = stage.Begin(owner);
  if (log == 0 || !stage.Open(next, 0)) return "";
  stage.world().KillServer(log);
  stage.Put(owner, 1);
  stage.Kill(owner);
  stage.Leave(owner);
  const uint64_t refused = stage.refused();
  for (uint64_t key = 1; key <= LogMoves::kKeys; ++key) stage.Get(next, key);
  const history::CheckResult checked = history::CheckHistory(stage.history(0), nullptr, nullptr);
  if (!checked.violations.empty()) return checked.violations[0];
  return stage.refused() == refused ? "" : "keys are Unavailable, though a log has them";
}

TEST_F(OwnedRulesTest, O9) {
  int played = 0;
  ExpectShown(Rule::kO9, [&](uint64_t seed) {
    return LogMoves::LeaveWhileABatchIsWrittenAgain(seed, &played);
  });
}

// The owner dies together with its log's server.
TEST_F(OwnedRulesTest, D3) {
  ExpectShown(Rule::kD3, [](uint64_t seed) -> std::string {
    LogMoves stage(LogMoves::Options(seed));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    if (log == 0 || !stage.Open(next, 0)) return "";
    stage.world().KillServer(log);
    stage.Kill(owner);
    stage.Leave(owner);
    for (uint64_t key = 1; key <= LogMoves::kKeys; ++key) stage.Get(next, key);
    const history::CheckResult checked = history::CheckHistory(stage.history(0), nullptr, nullptr);
    return checked.violations.empty() ? stage.what() : checked.violations[0];
  });
}

// Who takes over what is in one tree does not have the other one open.
TEST_F(OwnedRulesTest, D5) {
  ExpectShown(Rule::kD5, [](uint64_t seed) {
    OwnedStageOptions options = {.trees = 2};
    options.cluster.sim.seed = seed;
    LogMoves stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const last = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0) || !stage.Open(owner, 1) || !stage.Open(next, 0)) {
      return stage.what();
    }
    for (uint64_t key = 1; key <= LogMoves::kKeys; ++key) {
      for (const size_t tree : {0, 1}) stage.PutIn(owner, tree, key);
    }
    stage.Kill(owner);
    stage.Leave(owner);
    stage.Get(next, 1);
    if (!stage.Open(last, 1)) return stage.what();
    stage.Do(last, 0, 1, OwnedStage::Make(history::OperationKind::kGet, KeyOf(1)));
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// An operator says that a loss would be accepted, of a log that is not lost; and that its memory
// server is dead, which answers.
std::string AcceptNoLoss(uint64_t seed, bool says_dead) {
  LogMoves stage(LogMoves::Options(seed));
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
  const ServerId log = stage.Begin(owner);
  if (log == 0 || !stage.Open(next, 0)) return "";
  stage.Kill(owner);
  stage.Leave(owner);
  AcceptLossOptions options;
  if (says_dead) options.servers_dead = {log};
  std::vector<LossInfo> losses;
  (void)AcceptLoss(*next->client, options, &losses);
  for (uint64_t key = 1; key <= LogMoves::kKeys; ++key) stage.Get(next, key);
  stage.LookAtTheEnd();
  return stage.what();
}

TEST_F(OwnedRulesTest, D6) {
  ExpectShown(Rule::kD6, [](uint64_t seed) { return AcceptNoLoss(seed, /*says_dead=*/false); });
}
TEST_F(OwnedRulesTest, D6Alive) {
  ExpectShown(Rule::kD6Alive, [](uint64_t seed) { return AcceptNoLoss(seed, /*says_dead=*/true); });
}

// An owner and its log are lost, which is accepted; the catalog's server says nothing from some
// moment of that on, for as long as the call goes on. What the operator is told, in this call and
// the next one. Returns how long it took.
int64_t AcceptALoss(int64_t after_ns, size_t* told) {
  LogMoves stage(LogMoves::Options(/*seed=*/3));
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  const ServerId log = stage.Begin(owner);
  stage.Kill(owner);
  stage.Leave(owner);
  stage.cluster().StartAgain(log);
  OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
  (void)stage.Open(next, 0);
  const int64_t begin_ns = stage.NowNs();
  stage.world().At(begin_ns + after_ns, [&] { stage.world().PauseCalls(1, true); });
  std::vector<LossInfo> losses, more;
  (void)AcceptLoss(*next->client, {.timeout_ms = 300}, &losses);
  const int64_t took_ns = stage.NowNs() - begin_ns;
  stage.world().PauseCalls(1, false);
  (void)AcceptLoss(*next->client, {}, &more);
  *told = losses.size() + more.size();
  return took_ns;
}

TEST_F(OwnedRulesTest, D6Note) {
  ExpectShown(Rule::kD6Note, [](uint64_t seed) -> std::string {
    size_t told = 0;
    const int64_t took_ns = AcceptALoss(kSecondNs, &told);
    AcceptALoss(took_ns - static_cast<int64_t>(seed) * 4 * kMicrosecondNs, &told);
    return told == 1 ? "" : "a range was taken over without its log, and nobody is told";
  });
}

// The log has gone round: behind its end are batches of the time before.
TEST_F(OwnedRulesTest, W2) {
  ExpectShown(Rule::kW2, [](uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0)) return stage.what();
    for (uint64_t put = 0; put < 2'500; ++put) Put(&stage, owner, 1 + put % 5);
    stage.Kill(owner);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

TEST_F(OwnedRulesTest, W6Dirty) { ExpectShown(Rule::kW6Dirty, FindAfterTheMove); }

TEST_F(OwnedRulesTest, W6Entry) { ExpectShown(Rule::kW6Entry, FindAfterTheMove); }

TEST_F(OwnedRulesTest, W6Flush) {
  BreakRule(Rule::kW6Flush);
  // What is given has a record that somebody is about to flush.
  EXPECT_DEATH(
      {
        for (uint64_t seed = 1; seed <= kRuleSeeds; ++seed) LogMoves::GiveWhileTheLogMoves(seed);
      },
      "a record that is being flushed stays");
  BreakRule(Rule::kNone);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    EXPECT_EQ(LogMoves::GiveWhileTheLogMoves(seed), "") << "with all rules, seed " << seed;
  }
}

}  // namespace
}  // namespace pando
