// What once went wrong with owned trees, each by itself.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/owned/log_moves.h"
#include "bench/owned/owned_stage.h"
#include "bench/owned/two_servers.h"
#include "common/base/check.h"
#include "common/wire/control.h"
#include "memory/memory_server.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;

// Values of 60 bytes: some hundred messages fill the log.
std::string Long(const std::string& value) { return value + std::string(50, '.'); }

bool Put(OwnedStage* stage, OwnedActor* actor, size_t tree, uint64_t key) {
  return stage->Do(actor, 0, tree,
                   OwnedStage::Make(OperationKind::kPut, KeyOf(key), Long(stage->NewValue())));
}

bool Read(OwnedStage* stage, OwnedActor* actor, size_t tree) {
  Operation scan = OwnedStage::Make(OperationKind::kScan, std::string(1, '\0'));
  scan.limit = SIZE_MAX;
  return stage->Do(actor, 0, tree, std::move(scan));
}

// The log's base is held by another tree: erases of before the load are in the log when the owner
// dies.
TEST(OwnedTrouble, ABulkLoadIsNotUndoneByErasesOfBeforeIt) {
  OwnedStage stage({.trees = 2});
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(owner, 0) && stage.Open(owner, 1));
  ASSERT_TRUE(Put(&stage, owner, 1, 1));
  ASSERT_TRUE(Put(&stage, owner, 0, 5));
  ASSERT_TRUE(stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kDelete, KeyOf(5))));
  std::vector<KeyValue> entries;
  for (uint64_t k = 1; k <= 10; ++k) entries.push_back({KeyOf(k), stage.NewValue()});
  ASSERT_TRUE(stage.BulkLoad(owner, 0, entries));
  stage.Kill(owner);
  stage.Leave(owner);
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// The log holds fewer messages than a segment of LSNs may have: what holds its base is in the newer
// half of it.
TEST(OwnedTrouble, ALogOfFewLargeMessagesGoesRound) {
  OwnedStage stage(
      {.tree = {.key_bytes_max = 240, .value_bytes_max = 255, .mode = TreeOptions::Mode::kOwned}});
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(owner, 0));
  const auto put = [&](uint64_t key) {
    const auto padded = [](std::string text, size_t size) {
      return text.append(size - text.size(), '.');
    };
    return stage.Do(owner, 0, 0,
                    OwnedStage::Make(OperationKind::kPut, padded(KeyOf(key), 240),
                                     padded(stage.NewValue(), 255)));
  };
  // The first segment begins with key 3, whose newest message is another one soon; key 1 stays in
  // it, beyond the middle of what the log can hold.
  for (uint64_t n = 1; n <= 1000; ++n) {
    ASSERT_TRUE(put(n == 1 || n == 61 ? 3 : n == 60 ? 1 : 2)) << n;
  }
  EXPECT_EQ(stage.refused(), 0u) << "somebody waited for room in vain";
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// A member that takes over goes on where its queue pair broke, and does not start over.
TEST(OwnedTrouble, ARecoveryGoesOnAfterQueuePairsBroke) {
  OwnedStage stage({.circumstances = {.breaks = true, .owners_end = true}});
  ClientOptions client = OwnedStage::SmallOwner();
  client.log_bytes = 256 << 10;
  client.hot_bytes = 1 << 20;
  OwnedActor* const owner = stage.Join(client);
  ASSERT_TRUE(stage.Open(owner, 0));
  constexpr uint64_t kWritten = 800;
  for (uint64_t k = 1; k <= kWritten; ++k) ASSERT_TRUE(Put(&stage, owner, 0, k * 7919 % 10'000));
  stage.Kill(owner);
  stage.Leave(owner);
  OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(next, 0));
  stage.world().SetBreakProbability(*next->fabric, 0.03);
  ASSERT_TRUE(stage.Do(next, 0, 0, OwnedStage::Make(OperationKind::kGet, KeyOf(1))));
  stage.world().SetBreakProbability(*next->fabric, 0);
  const OwnedStats stats = next->client->Stats().owned;
  EXPECT_EQ(stats.adoptions, 1u);
  EXPECT_GT(stats.adopted_messages, kWritten / 2);
  EXPECT_LE(stats.adopted_messages, kWritten) << "some were brought to their leaves twice";
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// A flush is under way, and cannot end, when the member hears that the tree was dropped.
TEST(OwnedTrouble, ATreeIsDroppedWhileItIsFlushed) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    OwnedStageOptions options = {.trees = 2, .circumstances = {.breaks = true, .dropped = true}};
    options.cluster.sim.seed = seed;
    options.cluster.memory_servers = 3;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.connect_timeout_ms = 100;
    OwnedActor* const owner = stage.Join(client, 2);
    ASSERT_TRUE(stage.Open(owner, 0) && stage.Open(owner, 1));
    for (uint64_t k = 1; k <= 200; ++k) ASSERT_TRUE(Put(&stage, owner, 0, k));
    OwnedActor* const other = stage.Join(client);
    for (const ServerId server : {2, 3}) stage.world().CutLink(*owner->fabric, server, true);
    stage.Spawn(owner, 1,
                [&] { (void)owner->sessions[1]->Flush(*owner->trees[0], {.timeout_ms = 3000}); });
    stage.NoteDropped(0);
    ASSERT_TRUE(other->client->DropTree(OwnedStage::TreeName(0)).ok());
    owner->sessions[1]->Run();
    stage.Quiet(2 * kSecondNs);
    for (const ServerId server : {2, 3}) stage.world().CutLink(*owner->fabric, server, false);
    stage.Quiet(2 * kSecondNs);
    // What was dropped is not a tree without keys.
    const auto got = owner->sessions[0]->Get(*owner->trees[0], KeyOf(3));
    EXPECT_EQ(got.status().code(), absl::StatusCode::kFailedPrecondition) << got.status();
    EXPECT_TRUE(Put(&stage, owner, 1, 1));
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "");
  }
}

// A memory server takes the owner for dead, the catalog's does not yet: that is nothing of who
// asks.
TEST(OwnedTrouble, WhoAsksAnOwnerThatIsCutOffIsNotRefused) {
  OwnedStageOptions options = {.circumstances = {.leases = true, .breaks = true}};
  options.cluster.lease_ns = 24 * kMillisecondNs;
  options.cluster.serving_lease_ns = 8 * kMillisecondNs;
  OwnedStage stage(options);
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const asker = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(owner, 0) && Put(&stage, owner, 0, 1));
  ASSERT_TRUE(stage.Open(asker, 0) && Put(&stage, asker, 0, 2));
  ASSERT_EQ(asker->client->Stats().owned.ranges, 0u) << "it asks";
  stage.world().CutLink(*owner->fabric, 2, true);
  stage.Quiet(3 * options.cluster.lease_ns);
  stage.world().CutLink(*owner->fabric, 2, false);
  for (uint64_t n = 0; n < 2'000 && asker->client->Stats().owned.ranges == 0; ++n) {
    ASSERT_TRUE(Put(&stage, asker, 0, 1 + n % 50));
    stage.Quiet(kMillisecondNs / 10);
  }
  EXPECT_FALSE(asker->cut_off);
  EXPECT_TRUE(owner->client->fenced()) << "or this shows nothing";
  EXPECT_EQ(asker->client->Stats().owned.ranges, 1u) << "it has taken over";
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// Nobody has the dropped tree open; its range names the dead.
TEST(OwnedTrouble, ADroppedTreeOfADeadOwnerLeavesNothing) {
  for (const bool is_open : {false, true}) {
    OwnedStage stage({.trees = 3});
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const other = stage.Join(OwnedStage::SmallOwner());
    for (size_t tree = 0; tree < 2; ++tree) {
      ASSERT_TRUE(stage.Open(owner, tree));
      for (uint64_t k = 1; k <= 300; ++k) ASSERT_TRUE(Put(&stage, owner, tree, k));
    }
    if (is_open) {
      ASSERT_TRUE(stage.Open(other, 0));
    }
    stage.NoteDropped(0);
    ASSERT_TRUE(other->client->DropTree(OwnedStage::TreeName(0)).ok());
    stage.Kill(owner);
    stage.Leave(owner);
    ASSERT_TRUE(stage.Open(other, 1));
    ASSERT_TRUE(Read(&stage, other, 1));
    ASSERT_TRUE(stage.Open(other, 2) && Put(&stage, other, 2, 1));
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "");
  }
}

// Who drops it has it open, and has never needed a log; there is nothing to bring to its leaves.
TEST(OwnedTrouble, ADeadOwnersTreeIsDroppedByWhoHasItOpen) {
  OwnedStage stage({.trees = 1});
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const other = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(owner, 0) && stage.Open(other, 0));
  ASSERT_TRUE(Read(&stage, owner, 0));
  stage.Kill(owner);
  stage.Leave(owner);
  stage.NoteDropped(0);
  ASSERT_TRUE(other->client->DropTree(OwnedStage::TreeName(0)).ok());
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// Memory is full for a while.
TEST(OwnedTrouble, WhatWasRefusedGoesOnceThereIsRoom) {
  OwnedStageOptions options = {.circumstances = {.little_memory = true}};
  options.cluster.memory_servers = 1;
  options.cluster.main_bytes = 1 << 20;
  OwnedStage stage(options);
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(owner, 0) && Put(&stage, owner, 0, 1));
  OwnedActor* const other = stage.Join(OwnedStage::SmallOwner());
  auto ballast = other->client->CreateTree("ballast", {.value_bytes_max = 200});
  ASSERT_TRUE(ballast.ok());
  absl::Status put;
  for (uint64_t n = 0; put.ok(); ++n) {
    put = other->sessions[0]->Put(**ballast, KeyOf(n), std::string(200, 'b'));
  }
  ASSERT_TRUE(absl::IsResourceExhausted(put)) << put;
  absl::Status inserted;
  uint64_t key = 1;
  while (inserted.ok() && key < 5000) {
    inserted = owner->sessions[0]->Insert(*owner->trees[0], KeyOf(++key), Long("x"));
  }
  ASSERT_TRUE(absl::IsResourceExhausted(inserted)) << inserted;
  ballast->reset();
  ASSERT_TRUE(other->client->DropTree("ballast").ok());
  stage.Quiet(5 * kSecondNs);
  inserted = owner->sessions[0]->Insert(*owner->trees[0], KeyOf(key + 1), Long("x"));
  EXPECT_TRUE(inserted.ok()) << inserted;
}

// Its leaves are out of reach: others' are not.
TEST(OwnedTrouble, ARangeThatCannotBeFlushedKeepsNoOtherFromBeingGivenUp) {
  for (const bool closes : {true, false}) {
    TwoServers two(/*lows=*/1);
    LogMoves& stage = two.stage;
    OwnedActor* const other = stage.Join(TwoServers::Client());
    ASSERT_TRUE(stage.Open(other, 0));
    stage.world().CutLink(*two.owner->fabric, two.far, true);
    if (closes) {
      two.owner->trees[0].reset();
    } else {
      const absl::Status left = stage.Retire(two.owner, 3000);
      EXPECT_FALSE(left.ok());
      EXPECT_EQ(two.owner->client->Stats().owned.ranges, 1u);
    }
    const auto got = other->sessions[0]->Get(*other->trees[0], KeyOf(two.high));
    EXPECT_TRUE(got.ok()) << got.status() << ", closes: " << closes;
    EXPECT_EQ(other->client->Stats().owned.ranges, 1u);
    stage.world().CutLink(*two.owner->fabric, two.far, false);
    stage.Leave(two.owner);
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "");
  }
}

TEST(OwnedTrouble, AFlushWaitsForItsLeavesAsLongAsItsCallerDoes) {
  TwoServers two(/*lows=*/10);
  LogMoves& stage = two.stage;
  stage.world().CutLink(*two.owner->fabric, two.far, true);
  stage.world().At(stage.NowNs() + 12 * kSecondNs,
                   [&] { stage.world().CutLink(*two.owner->fabric, two.far, false); });
  const absl::Status flushed =
      two.owner->sessions[0]->Flush(*two.owner->trees[0], {.timeout_ms = 30'000});
  EXPECT_TRUE(flushed.ok()) << flushed;
  EXPECT_EQ(two.owner->client->Stats().owned.dirty_bytes, 0u);
  stage.LookAtTheEnd();
  EXPECT_EQ(stage.what(), "");
}

// They are out of reach for who takes over, from some moment of that on.
TEST(OwnedTrouble, ARangeThatCannotBeBroughtToItsLeavesKeepsNoOtherFromBeingTakenOver) {
  int late = 0;
  uint64_t ranges = 0;
  for (int64_t cut_ns = kMillisecondNs; ranges < 2 && late < 3; cut_ns += kMillisecondNs / 10) {
    TwoServers two(/*lows=*/400);
    LogMoves& stage = two.stage;
    stage.Kill(two.owner);
    stage.Leave(two.owner);
    OwnedActor* const next = stage.Join(TwoServers::Client());
    ASSERT_TRUE(stage.Open(next, 0));
    stage.world().At(stage.NowNs() + cut_ns, [&stage, fabric = next->fabric, far = two.far] {
      stage.world().CutLink(*fabric, far, true);
    });
    const auto got = next->sessions[0]->Get(*next->trees[0], KeyOf(two.high), {.timeout_ms = 1000});
    ranges = next->client->Stats().owned.ranges;
    stage.Quiet(kMillisecondNs);
    // Where it was cut off before that server knew of the death, nothing is taken over.
    if (ranges == 1) {
      ++late;
      EXPECT_TRUE(got.ok()) << got.status();
    }
    stage.world().CutLink(*next->fabric, two.far, false);
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "");
  }
  EXPECT_GT(late, 0) << "or this shows nothing";
}

// The catalog's server counts who asks where a tree is, since somebody was fenced there.
class CountsQuestions final : public ControlHandler {
 public:
  CountsQuestions(OwnedStage* stage, uint32_t tree_id)
      : server_(stage->cluster().server(0)), world_(stage->world()), tree_id_(tree_id) {
    world_.SetHandler(1, this);
  }
  ~CountsQuestions() override { world_.SetHandler(1, &server_); }
  std::string Handle(PeerId peer, std::string_view request) override {
    const absl::StatusOr<ControlMessage> asked = ParseMessage(request);
    PANDO_CHECK_OK(asked.status());
    const auto opcode = static_cast<ControlOpcode>(asked->header.opcode);
    if (opcode == ControlOpcode::kFence) count = 0;
    const bool is_question = opcode == ControlOpcode::kListTreeServers;
    count += is_question && ParseTreeId(asked->body).value_or(0) == tree_id_ ? 1 : 0;
    return server_.Handle(peer, request);
  }
  void OnPeerGone(PeerId peer) override { server_.OnPeerGone(peer); }
  int64_t OnTimer(int64_t now_ns) override { return server_.OnTimer(now_ns); }

  int count = 0;

 private:
  memory::MemoryServer& server_;
  sim::SimWorld& world_;
  const uint32_t tree_id_;
};

// What its leaves cannot have, as their memory server is gone, is in the log of who takes over; the
// tree is dropped before or after that, and before the range is won. Nobody knows then what keys
// the range has come to cover: it is not served (rule O8).
TEST(OwnedTrouble, ATreeThatIsDroppedInATakeoverIsNotServedThoughRecordsWereAdopted) {
  int appended = 0;
  for (int questions = 1; questions <= 3; ++questions) {
    SCOPED_TRACE(questions);
    TwoServers two(/*lows=*/10);
    LogMoves& stage = two.stage;
    OwnedActor* const next = stage.Join(TwoServers::Client());
    OwnedActor* const other = stage.Join(TwoServers::Client());
    ASSERT_TRUE(stage.Open(next, 0));
    stage.Kill(two.owner);
    stage.Leave(two.owner);
    stage.world().KillServer(two.far);
    {
      CountsQuestions catalog(&stage, ImplOf(*next->trees[0]).context().entry.tree_id);
      stage.Spawn(next, 0, [&] {
        (void)next->sessions[0]->Get(*next->trees[0], KeyOf(two.low), {.timeout_ms = 5000});
      });
      while (catalog.count < questions) stage.Quiet(kMicrosecondNs);
    }
    stage.world().PauseFabric(*next->fabric);
    const uint64_t messages = next->client->Stats().owned.log_messages;
    EXPECT_EQ(next->client->Stats().owned.claims, 0u) << "or this shows nothing";
    stage.NoteDropped(0);
    ASSERT_TRUE(other->client->DropTree(OwnedStage::TreeName(0)).ok());
    stage.world().ResumeFabric(*next->fabric);
    next->sessions[0]->Run();
    appended += next->client->Stats().owned.log_messages > messages ? 1 : 0;
    const absl::Status put = next->sessions[0]->Put(*next->trees[0], KeyOf(two.low), "late");
    EXPECT_TRUE(absl::IsFailedPrecondition(put)) << put;
    EXPECT_EQ(next->client->Stats().owned.ranges, 0u);
    stage.LookAgain({two.far});
    EXPECT_EQ(stage.what(), "");
  }
  EXPECT_GT(appended, 0) << "or this shows nothing";
}

}  // namespace
}  // namespace pando
