// Members that leave in order: when their log is freed, and by whom (rules O9, O14).
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "bench/owned/log_moves.h"
#include "common/base/check.h"
#include "common/wire/control.h"
#include "memory/memory_server.h"

namespace pando {
namespace {

TEST(OwnedLeave, TheLogIsFreedOnceNothingIsInFlightToIt) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(LogMoves::LeaveWhileABatchIsWrittenAgain(seed, &played), "") << "seed " << seed;
  }
  EXPECT_GE(played, 3) << "or this shows nothing";
}

// It wrote for too long without an answer: what it has sent may land as long as its queue pairs
// live, so others free it after that.
TEST(OwnedLeave, ALogThatHasFailedIsFreedByOthers) {
  LogMoves stage(LogMoves::Options(/*seed=*/1, /*memory_servers=*/1));
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const other = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(owner, 0) && stage.Put(owner, 1) && stage.Flush(owner, 0));
  ASSERT_TRUE(stage.Open(other, 0));
  RedoLog& log = ImplOf(*owner->client).member()->log();
  log.NoteServerGone(absl::UnavailableError("no chain was confirmed"));
  stage.Quiet(100 * kMillisecondNs);
  ASSERT_FALSE(log.will_move()) << "there is no other server";
  stage.Leave(owner);
  EXPECT_EQ(stage.cluster().Counter("extents"), 1u);
  ASSERT_TRUE(stage.Put(other, 2));
  stage.Quiet(3 * kSecondNs);
  EXPECT_EQ(stage.cluster().Counter("extents"), 1u) << "the other one's";
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// Its server says nothing just when the log is to be freed: who calls again is told that it is
// done when it is, and without a call it is done all the same.
TEST(OwnedLeave, ALogThatCouldNotBeFreedIsFreedLater) {
  int late = 0;
  for (int64_t after_ns = 0; after_ns < kMillisecondNs; after_ns += 20 * kMicrosecondNs) {
    LogMoves stage(LogMoves::Options(/*seed=*/3));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    const ServerId server = stage.Begin(owner);
    ASSERT_NE(server, 0);
    bool leaves = true;
    stage.world().At(stage.NowNs() + after_ns, [&] { stage.world().PauseCalls(server, leaves); });
    const absl::Status first = stage.Retire(owner, 100);
    late += absl::IsDeadlineExceeded(first) && stage.LogServer(owner) == 0 ? 1 : 0;
    EXPECT_EQ(first.ok(), stage.cluster().Counter("extents") == 0) << first;
    EXPECT_EQ(stage.Retire(owner, 100).ok(), first.ok()) << after_ns;
    leaves = false;
    stage.world().PauseCalls(server, false);
    if (after_ns % (40 * kMicrosecondNs) == 0) {
      const absl::Status again = stage.Retire(owner, 1000);
      EXPECT_TRUE(again.ok()) << again;
    } else {
      stage.Quiet(3 * kSecondNs);
    }
    EXPECT_EQ(stage.cluster().Counter("extents"), 0u) << after_ns;
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "") << after_ns;
  }
  EXPECT_GT(late, 0) << "or this shows nothing";
}

// The catalog's server, which may refuse leases of owners.
class NoLeases final : public ControlHandler {
 public:
  explicit NoLeases(memory::MemoryServer* server) : server_(*server) {}
  std::string Handle(PeerId peer, std::string_view request) override {
    const absl::StatusOr<ControlMessage> asked = ParseMessage(request);
    PANDO_CHECK_OK(asked.status());
    const bool is_asked = asked->header.opcode == static_cast<uint16_t>(ControlOpcode::kServe);
    if (!is_asked || !refuses) return server_.Handle(peer, request);
    ++refused;
    return EncodeErrorReply(asked->header, 1, absl::UnavailableError("not now"));
  }
  bool IsKnown(PeerId peer) const override { return server_.IsKnown(peer); }
  void OnPeerGone(PeerId peer) override { server_.OnPeerGone(peer); }
  int64_t OnTimer(int64_t now_ns) override { return server_.OnTimer(now_ns); }

  bool refuses = true;
  int refused = 0;

 private:
  memory::MemoryServer& server_;
};

// It has a log, and an entry of that: nobody goes on with the join once it has left.
TEST(OwnedLeave, WhoHasNotJoinedYetLeavesNothing) {
  for (const bool by_call : {true, false}) {
    LogMoves stage(LogMoves::Options(/*seed=*/1));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const other = stage.Join(OwnedStage::SmallOwner());
    ASSERT_TRUE(stage.Open(owner, 0));
    NoLeases catalog(&stage.cluster().server(0));
    stage.world().SetHandler(1, &catalog);
    const absl::Status put = owner->sessions[0]->Put(*owner->trees[0], KeyOf(1), "value");
    EXPECT_TRUE(absl::IsUnavailable(put)) << put;
    ASSERT_GT(catalog.refused, 0) << "or this shows nothing";
    catalog.refuses = false;
    EXPECT_EQ(other->client->ListMembers()->size(), 1u) << "or this shows nothing";
    EXPECT_EQ(stage.cluster().Counter("extents"), 1u) << "or this shows nothing";
    if (by_call) {
      const absl::Status left = stage.Retire(owner, 1000);
      EXPECT_TRUE(left.ok()) << left;
      EXPECT_TRUE(stage.Retire(owner, 1000).ok());
    } else {
      stage.Leave(owner);
    }
    EXPECT_TRUE(other->client->ListMembers()->empty()) << by_call;
    EXPECT_EQ(stage.cluster().Counter("extents"), 0u) << by_call;
    stage.world().SetHandler(1, &stage.cluster().server(0));
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "");
  }
}

// One has a job that waits for the catalog, and leaves; before, perhaps, it is asked to take a
// range. How often it asks another one for something meanwhile.
uint64_t AskedByWhoLeaves(bool is_asked_itself) {
  OwnedStage stage({.trees = 2, .circumstances = {.breaks = true}});
  ClientOptions client = OwnedStage::SmallOwner();
  client.owner = true;
  client.spread_ranges = false;
  OwnedActor* const giver = stage.Join(client);
  OwnedActor* const leaver = stage.Join(client);
  for (OwnedActor* const actor : {giver, leaver}) {
    EXPECT_TRUE(stage.Open(actor, 0) && stage.Open(actor, 1));
  }
  const auto put = [&] {
    return OwnedStage::Make(history::OperationKind::kPut, KeyOf(1), stage.NewValue());
  };
  EXPECT_TRUE(stage.Do(giver, 0, 0, put()));
  stage.world().PauseCalls(1, true);
  stage.Spawn(leaver, 0, [&] { stage.Do(leaver, 0, 1, put()); });
  stage.Quiet(kMillisecondNs);
  if (is_asked_itself) {
    const absl::Status given = stage.Give(giver, 0, 0, KeyOf(1), leaver);
    EXPECT_TRUE(given.ok()) << given;
  }
  const uint64_t before = giver->client->Stats().owned.served;
  stage.world().At(stage.NowNs() + 50 * kMillisecondNs,
                   [&] { stage.world().PauseCalls(1, false); });
  const absl::Status left = stage.Retire(leaver, 10'000);
  EXPECT_TRUE(left.ok()) << left;
  const uint64_t asked = giver->client->Stats().owned.served - before;
  leaver->sessions[0]->Run();
  EXPECT_TRUE(stage.Do(giver, 0, 0, put()));
  EXPECT_EQ(giver->client->Stats().owned.ranges, 2u);
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
  return asked;
}

// Others claim the range when they need it (rules O14, P4).
TEST(OwnedLeave, WhoLeavesBeforeItTakesARangeAsksNobodyForIt) {
  const uint64_t otherwise = AskedByWhoLeaves(/*is_asked_itself=*/false);
  EXPECT_GT(otherwise, 0u) << "it gives what it has";
  EXPECT_EQ(AskedByWhoLeaves(/*is_asked_itself=*/true), otherwise);
}

}  // namespace
}  // namespace pando
