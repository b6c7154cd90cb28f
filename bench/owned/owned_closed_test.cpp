// Trees that are closed before all is settled, or all of their records are in their leaves, and
// what comes of it where they are opened again.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "bench/owned/log_moves.h"
#include "bench/owned/owned_stage.h"
#include "bench/owned/two_servers.h"

namespace pando {
namespace {

using history::OperationKind;

// Values of 60 bytes: some hundred messages fill the log.
bool Put(OwnedStage* stage, OwnedActor* actor, size_t tree, uint64_t key) {
  const std::string value = stage->NewValue() + std::string(50, '.');
  return stage->Do(actor, 0, tree, OwnedStage::Make(OperationKind::kPut, KeyOf(key), value));
}

// A tree is closed while nothing can be flushed; the client writes to another one until its log has
// gone round.
TEST(OwnedClosed, AClosedTreesMessagesStayInTheLog) {
  OwnedStage stage({.trees = 2, .circumstances = {.breaks = true}});
  ClientOptions options = OwnedStage::SmallOwner();
  options.connect_timeout_ms = 20;
  options.operation_timeout_ms = 5;
  OwnedActor* const owner = stage.Join(options);
  ASSERT_TRUE(stage.Open(owner, 0) && stage.Open(owner, 1));
  for (uint64_t k = 1; k <= 20; ++k) ASSERT_TRUE(Put(&stage, owner, 0, k));
  ASSERT_TRUE(Put(&stage, owner, 1, 1));
  for (const ServerId server : {1, 2}) stage.world().CutLink(*owner->fabric, server, true);
  owner->trees[0].reset();
  for (const ServerId server : {1, 2}) stage.world().CutLink(*owner->fabric, server, false);
  stage.Quiet(kSecondNs);
  // Opened again, it is not served without its records.
  ASSERT_TRUE(stage.Open(owner, 0));
  const auto got = owner->sessions[0]->Get(*owner->trees[0], KeyOf(3), {.timeout_ms = 20});
  EXPECT_FALSE(absl::IsNotFound(got.status())) << got.status();
  for (uint64_t n = 0; n < 2000; ++n) ASSERT_TRUE(Put(&stage, owner, 1, 1 + n % 50));
  stage.Kill(owner);
  stage.Leave(owner);
  OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(next, 0));
  for (uint64_t k = 1; k <= 20; ++k) {
    ASSERT_TRUE(stage.Do(next, 0, 0, OwnedStage::Make(OperationKind::kGet, KeyOf(k))));
  }
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// The same where it is not known when the tree is closed whether its term was renewed for a load.
// `packets`: after so many of the load the owner does not reach the cluster tree any more. False:
// it has not come to that.
bool ClosesWhileATermIsRenewed(uint64_t packets) {
  LogMoves stage({.cluster = TwoServers::Options().cluster, .circumstances = {.breaks = true}});
  ClientOptions options = OwnedStage::SmallOwner();
  options.connect_timeout_ms = 20;
  options.operation_timeout_ms = 15'000;  // the load sees its renewal's job end
  OwnedActor* const owner = stage.Join(options);
  EXPECT_TRUE(stage.Open(owner, 0) && Put(&stage, owner, 0, 1) && stage.Flush(owner, 0));
  EXPECT_NE(stage.LogServer(owner), 1u) << "the log is where the cluster tree is";
  stage.world().LimitPackets(*owner->fabric, packets);
  bool over = false;
  std::function<void()> watch = [&] {
    if (over) return;
    if (!stage.world().PacketsSpent(*owner->fabric)) {
      return stage.world().At(stage.NowNs() + kMicrosecondNs, watch);
    }
    stage.world().CutLink(*owner->fabric, 1, true);
    stage.world().LimitPackets(*owner->fabric, kNoPacketLimit);
  };
  watch();
  EXPECT_TRUE(stage.BulkLoad(owner, 0, {{KeyOf(1), stage.NewValue()}}));
  const bool is_renewing = stage.NowNs() > 10 * kSecondNs;
  over = true;
  stage.world().LimitPackets(*owner->fabric, kNoPacketLimit);
  for (uint64_t k = 1; k <= 20; ++k) EXPECT_TRUE(Put(&stage, owner, 0, k));
  EXPECT_EQ(stage.unknown(), 0u) << "the log is within reach";
  for (const ServerId server : {1, 2, 3}) stage.world().CutLink(*owner->fabric, server, true);
  owner->trees[0].reset();
  for (const ServerId server : {1, 2, 3}) stage.world().CutLink(*owner->fabric, server, false);
  EXPECT_TRUE(stage.Open(owner, 0));
  const auto got = owner->sessions[0]->Get(*owner->trees[0], KeyOf(3), {.timeout_ms = 20});
  EXPECT_FALSE(absl::IsNotFound(got.status())) << packets << " packets";
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "") << packets << " packets";
  return is_renewing;
}

TEST(OwnedClosed, ATreeThatIsOpenedAgainIsNotServedWithoutItsLastHandlesRecords) {
  int renewing = 0;
  for (uint64_t packets = 0; packets < 3; ++packets) {
    renewing += ClosesWhileATermIsRenewed(packets) ? 1 : 0;
  }
  EXPECT_GT(renewing, 0);
}

// A claim whose outcome is not known when its tree is closed: what was won after all is given up,
// as nobody would serve it. `packets`: after so many the claimant reaches no memory server for a
// while.
void ClaimLate(uint64_t packets) {
  OwnedStage stage({.trees = 2, .circumstances = {.breaks = true}});
  OwnedActor* const claimant = stage.Join(OwnedStage::SmallOwner());
  EXPECT_TRUE(stage.Open(claimant, 0) && stage.Open(claimant, 1) && Put(&stage, claimant, 1, 1));
  const auto cut = [&](bool is_cut) {
    for (int id = 1; id <= stage.cluster().memory_servers(); ++id) {
      stage.world().CutLink(*claimant->fabric, static_cast<ServerId>(id), is_cut);
    }
  };
  stage.world().LimitPackets(*claimant->fabric, packets);
  constexpr int64_t kLookNs = 20 * kMicrosecondNs;
  bool over = false;
  std::function<void()> watch = [&] {
    if (over) return;
    if (!stage.world().PacketsSpent(*claimant->fabric)) {
      return stage.world().At(stage.NowNs() + kLookNs, watch);
    }
    // What was held back may leave it all the same.
    stage.world().LimitPackets(*claimant->fabric, kNoPacketLimit);
    cut(true);
    stage.world().At(stage.NowNs() + 1500 * kMillisecondNs, [&] { cut(false); });
  };
  stage.world().At(stage.NowNs(), watch);
  (void)claimant->sessions[0]->Get(*claimant->trees[0], KeyOf(1), {.timeout_ms = 100});
  claimant->trees[0].reset();
  over = true;
  stage.world().LimitPackets(*claimant->fabric, kNoPacketLimit);
  stage.Quiet(4 * kSecondNs);
  OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
  EXPECT_TRUE(stage.Open(next, 0) && Put(&stage, next, 0, 1));
  EXPECT_EQ(stage.refused(), 0u) << "nobody serves it after " << packets << " packets";
  EXPECT_TRUE(Put(&stage, claimant, 1, 2)) << "it lives";
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "") << packets << " packets";
}

TEST(OwnedClosed, AClaimThatIsWonAfterItsTreeWasClosedIsGivenUp) {
  for (uint64_t packets = 0; packets < 5; ++packets) ClaimLate(packets);
}

}  // namespace
}  // namespace pando
