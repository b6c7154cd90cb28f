// What is lost of one tree, or of one log, keeps nothing else from those that take over (rules D3,
// D4, D6).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/history/checker.h"
#include "bench/owned/log_moves.h"
#include "bench/owned/owned_stage.h"
#include "common/wire/log_format.h"
#include "pando/losses.h"

namespace pando {
namespace {

using history::OperationKind;

// The tree with the lower number has lost its leaves: it is the first that a recovery comes to.
TEST(OwnedLost, ATreeWithoutItsLeavesKeepsNoOtherFromBeingTakenOver) {
  OwnedStageOptions options;
  options.trees = 2;
  LogMoves stage(options);
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
  for (const size_t tree : {0, 1}) {
    ASSERT_TRUE(stage.Open(owner, tree) && stage.Open(next, tree));
    ASSERT_TRUE(stage.PutIn(owner, tree, 1));
  }
  ASSERT_LT(ImplOf(*next->trees[0]).context().entry.tree_id,
            ImplOf(*next->trees[1]).context().entry.tree_id);
  stage.Kill(owner);
  stage.Leave(owner);
  // As where the server that had them has started again (rule R8).
  const absl::Status lost = absl::DataLossError("it has started again without them");
  ImplOf(*next->trees[0]).context().fate.Lose(lost);
  const auto other = next->sessions[0]->Get(*next->trees[1], KeyOf(1));
  EXPECT_TRUE(other.ok()) << other.status();
  const auto gone = next->sessions[0]->Get(*next->trees[0], KeyOf(1));
  EXPECT_TRUE(absl::IsDataLoss(gone.status())) << gone.status();
  // Its log is there for whoever may still want it, and nobody keeps the recovery to himself.
  const auto members = next->client->ListMembers();
  ASSERT_TRUE(members.ok());
  EXPECT_EQ(std::count_if(members->begin(), members->end(),
                          [](const MemberInfo& member) { return member.ended; }),
            1);
}

// A dropped tree that its owner has lost is nobody's any more: who asks the owner is told so, and
// does not look for another one.
TEST(OwnedLost, APeerIsToldThatATreeWasDropped) {
  LogMoves stage(OwnedStageOptions{});
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const peer = stage.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage.Open(owner, 0) && stage.Open(peer, 0));
  ASSERT_TRUE(stage.PutIn(owner, 0, 1));
  ASSERT_TRUE(peer->sessions[0]->Get(*peer->trees[0], KeyOf(1)).ok());
  ImplOf(*owner->trees[0]).context().fate.Lose(DroppedTreeError("t", ""));
  const int64_t asked_ns = stage.world().clock().NowNs();
  const absl::Status got = peer->sessions[0]->Get(*peer->trees[0], KeyOf(1)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(got)) << got;
  EXPECT_LT(stage.world().clock().NowNs() - asked_ns, 10 * kMillisecondNs);
}

// A small owner but for its memory: all of the tree's records are there. nullptr: the seed has no
// such, as some server is not there for it.
OwnedActor* JoinWithAllInMemory(LogMoves* stage, uint64_t log_bytes,
                                const std::vector<KeyValue>& entries) {
  ClientOptions client = OwnedStage::SmallOwner();
  client.hot_bytes = 512 << 10;
  client.log_bytes = log_bytes;
  OwnedActor* const owner = stage->Join(client);
  if (!stage->Open(owner, 0)) return nullptr;
  EXPECT_TRUE(stage->BulkLoad(owner, 0, entries));
  for (const KeyValue& entry : entries) {
    EXPECT_TRUE(owner->sessions[0]->Get(*owner->trees[0], entry.key).ok());
  }
  return owner;
}
// Kills the server that has leaves, and neither the catalog nor the owner's log. False: the log is
// with the catalog.
bool KillLeaves(LogMoves* stage, OwnedActor* owner) {
  const ServerId log = stage->LogServer(owner);
  if (log == 1 || log == 0) return false;
  stage->world().KillServer(5 - log);
  return true;
}
std::vector<KeyValue> Loaded(uint64_t keys, uint64_t step, const std::string& value) {
  std::vector<KeyValue> entries;
  for (uint64_t key = 1; key <= keys; ++key) entries.push_back({KeyOf(step * key), value});
  return entries;
}

// A third of the leaves is on a memory server that is gone. What was in memory of them is written
// again and again, until it takes as much of the log as it may, and no more: whoever writes is told
// then, and other keys go on all the time. `rounds`: what is done to all keys, one after the other.
void LeavesThatAreGoneKeepNobodyWaiting(uint64_t keys, const std::vector<OperationKind>& rounds) {
  constexpr int kAtOnce = 64;
  int played = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    LogMoves stage(LogMoves::Options(seed));
    OwnedActor* const owner = JoinWithAllInMemory(&stage, 64 << 10, Loaded(keys, 1, "loaded"));
    if (owner == nullptr || !KillLeaves(&stage, owner)) continue;
    ++played;
    int64_t longest_ns = 0;
    for (const OperationKind kind : rounds) {
      uint64_t next = 0;
      for (int c = 0; c < kAtOnce; ++c) {
        stage.Spawn(owner, 0, [&] {
          while (next < keys) {
            const int64_t began_ns = stage.NowNs();
            const std::string value = stage.NewValue() + std::string(50, '.');
            stage.Do(
                owner, 0, 0,
                OwnedStage::Make(kind, KeyOf(++next), kind == OperationKind::kPut ? value : ""));
            longest_ns = std::max(longest_ns, stage.NowNs() - began_ns);
          }
        });
      }
      owner->sessions[0]->Run();
    }
    EXPECT_LT(longest_ns, 3 * kSecondNs) << "seed " << seed;
    // Of the last round's keys two of three are where they can be reached.
    const uint64_t refused = stage.refused() + stage.unknown();
    EXPECT_GT(refused, 0u) << "seed " << seed;
    EXPECT_LT(refused, rounds.size() * keys / 2) << "seed " << seed;
    EXPECT_GT(owner->client->Stats().owned.refused, 0u) << "seed " << seed;
    EXPECT_TRUE(stage.problems().empty()) << stage.what();
  }
  EXPECT_GT(played, 2);
}

TEST(OwnedLost, LeavesThatAreGoneKeepNobodyWaiting) {
  LeavesThatAreGoneKeepNobodyWaiting(
      2'500, {OperationKind::kPut, OperationKind::kPut, OperationKind::kPut});
}
TEST(OwnedLost, LeavesThatAreGoneKeepNobodyWaitingForErases) {
  LeavesThatAreGoneKeepNobodyWaiting(8'000, {OperationKind::kDelete, OperationKind::kPut});
}
// What is put over a tombstone takes more of the log than that did.
TEST(OwnedLost, LeavesThatAreGoneKeepNobodyWaitingForWhatIsErasedAndPut) {
  LeavesThatAreGoneKeepNobodyWaiting(2'500, {OperationKind::kDelete, OperationKind::kPut,
                                             OperationKind::kPut, OperationKind::kPut});
}

// A third of the leaves is gone, and then memory servers have no room either, for a while.
// Afterwards new keys go on, although what the first ones have of records is refused for ever.
TEST(OwnedLost, MemoryThatIsFreeAgainTakesNewKeysThoughLeavesAreGone) {
  constexpr uint64_t kKeys = 1'500;
  int played = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    LogMoves stage(LogMoves::Options(seed));
    const std::vector<KeyValue> entries = Loaded(kKeys, 1'000, std::string(45, '.'));
    OwnedActor* const owner = JoinWithAllInMemory(&stage, 512 << 10, entries);
    if (owner == nullptr) continue;
    OwnedActor* const other = stage.Join({.index_cache_bytes = 1 << 20});
    if (!KillLeaves(&stage, owner)) continue;
    Session& session = *owner->sessions[0];
    const Tree& tree = *owner->trees[0];
    for (const KeyValue& entry : entries) (void)session.Put(tree, entry.key, "of before");
    (void)session.Flush(tree);
    if (owner->client->Stats().owned.refused == 0) continue;  // no leaf is there
    const auto fill = [&]() -> absl::Status {
      const auto ballast = other->client->CreateTree("ballast", {.value_bytes_max = 200});
      absl::Status put = ballast.status();
      for (uint64_t n = 0; put.ok() || absl::IsUnavailable(put); ++n) {
        if (!ballast.ok() || n == 100'000) break;
        put = other->sessions[0]->Put(**ballast, KeyOf(n), std::string(200, 'b'));
      }
      return put;
    };
    if (!absl::IsResourceExhausted(fill())) continue;  // its first leaf was to be where none can
    const auto count = [&](uint64_t add) {
      uint64_t taken = 0, full = 0;
      for (uint64_t n = 0; n < 4 * kKeys; ++n) {
        const absl::Status status = session.Insert(
            tree, KeyOf(1'000 * (n % kKeys + 1) + n / kKeys * 10 + add), std::string(50, 'n'));
        taken += status.ok() ? 1 : 0;
        full += absl::IsResourceExhausted(status) ? 1 : 0;
      }
      return std::pair(taken, full);
    };
    const auto [taken, full] = count(1);
    if (full == 0) continue;  // there was room enough, in leaves
    ++played;
    ASSERT_TRUE(other->client->DropTree("ballast").ok());
    stage.Quiet(30 * kSecondNs);
    const auto [taken_then, full_then] = count(5);
    EXPECT_EQ(full_then, 0u) << "seed " << seed << ", " << taken_then << " were taken";
    EXPECT_GT(taken_then, kKeys) << "seed " << seed;
  }
  EXPECT_GE(played, 2);
}

// Tombstones of leaves that are gone are appended again when the log goes round, and are no younger
// for that (rule B5).
TEST(OwnedLost, TombstonesThatAreAppendedAgainAreAsOldAsTheyWere) {
  constexpr uint64_t kKeys = 600, kErased = 60;
  constexpr uint64_t kAgeMs = 5'000, kLogBytes = 64 << 10;
  int played = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    LogMoves stage(LogMoves::Options(seed));
    const std::vector<KeyValue> entries = Loaded(kKeys, 1, "loaded");
    OwnedActor* const owner = JoinWithAllInMemory(&stage, kLogBytes, entries);
    if (owner == nullptr || !KillLeaves(&stage, owner)) continue;
    for (uint64_t n = 0; n < kErased; ++n) {
      (void)owner->sessions[0]->Erase(*owner->trees[0], entries[n * (kKeys / kErased)].key);
    }
    stage.Quiet(int64_t{kAgeMs} * kMillisecondNs);
    if (owner->client->Stats().owned.tombstones == 0) continue;
    ++played;
    EXPECT_GE(owner->client->Stats().owned.oldest_tombstone_ms, kAgeMs - 1'000);
    const uint64_t bytes = owner->client->Stats().owned.log_bytes;
    for (uint64_t n = 0; n < 6'000; ++n) {
      if (n % (kKeys / kErased) == 0) continue;
      (void)owner->sessions[0]->Put(*owner->trees[0], entries[n % kKeys].key, std::string(50, 'x'));
    }
    EXPECT_GT(owner->client->Stats().owned.log_bytes - bytes, 4 * kLogBytes);
    stage.Quiet(kSecondNs);
    EXPECT_GE(owner->client->Stats().owned.oldest_tombstone_ms, kAgeMs - 1'000) << "seed " << seed;
  }
  EXPECT_GT(played, 2);
}

// Its server lives, and has something else there.
TEST(OwnedLost, ALogThatCannotBeReadIsLostNotEmpty) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    LogMoves stage(LogMoves::Options(seed));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    if (log == 0 || !stage.Open(next, 0)) continue;
    ++played;
    ASSERT_TRUE(stage.Flush(owner, 0));
    ASSERT_TRUE(stage.Put(owner, 1));
    stage.Kill(owner);
    stage.Leave(owner);
    const std::span<std::byte> memory = stage.world().Memory(log).main;
    std::memset(memory.data(), 0xEE, memory.size());
    for (int i = 0; i < 2; ++i) {
      const auto got = next->sessions[0]->Get(*next->trees[0], KeyOf(2));
      EXPECT_FALSE(got.ok() || absl::IsNotFound(got.status())) << "seed " << seed;
    }
    std::vector<LossInfo> losses;
    const absl::Status accepted = AcceptLoss(*next->client, {}, &losses);
    EXPECT_TRUE(accepted.ok()) << accepted;
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_NE(losses[0].why.find("the log of"), std::string::npos) << losses[0].why;
    // What was in the leaves is there.
    EXPECT_TRUE(next->sessions[0]->Get(*next->trees[0], KeyOf(2)).ok());
    ASSERT_TRUE(AcceptLoss(*next->client, {}, &losses).ok());
    EXPECT_TRUE(losses.empty()) << "twice";
  }
  EXPECT_GE(played, 3);
}

// A dead owner, whose log nobody can read, and calls to memory servers that take their time.
struct UnreadLog {
  static OwnedStageOptions Options(uint64_t seed) {
    OwnedStageOptions options = LogMoves::Options(seed);
    options.cluster.sim.call_delay_ns = 10 * kMillisecondNs;
    return options;
  }
  explicit UnreadLog(uint64_t seed) : stage(Options(seed)) {}
  // False: the seed has no server with nothing but the log. `end_log` makes it what it is.
  bool Begin(const std::function<void(ServerId)>& end_log) {
    log = stage.Begin(owner);
    if (log == 0 || !stage.Open(next, 0) || !stage.Open(other, 0)) return false;
    EXPECT_TRUE(stage.Flush(owner, 0));
    stage.Kill(owner);
    stage.Leave(owner);
    end_log(log);
    // It has joined then, and knows who is gone.
    EXPECT_FALSE(Get(2).ok());
    EXPECT_FALSE(Get(2).ok());
    return true;
  }
  absl::Status Get(uint64_t key) {
    return next->sessions[0]->Get(*next->trees[0], KeyOf(key)).status();
  }

  LogMoves stage;
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
  OwnedActor* const other = stage.Join(OwnedStage::SmallOwner());
  ServerId log = 0;
};

// Each of them is told as soon as the first one is, and does not try it behind those before it.
TEST(OwnedLost, ALogThatIsGoneKeepsNobodyWaitingForThoseBeforeHim) {
  constexpr int kAtOnce = 40;
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    UnreadLog unread(seed);
    LogMoves& stage = unread.stage;
    if (!unread.Begin([&](ServerId log) { stage.world().KillServer(log); })) continue;
    ++played;
    stage.Quiet(5 * kSecondNs);
    int64_t longest_ns = 0;
    int unavailable = 0;
    for (int i = 0; i < kAtOnce; ++i) {
      stage.Spawn(unread.next, 0, [&] {
        const int64_t began_ns = stage.NowNs();
        unavailable += absl::IsUnavailable(unread.Get(2)) ? 1 : 0;
        longest_ns = std::max(longest_ns, stage.NowNs() - began_ns);
      });
    }
    unread.next->sessions[0]->Run();
    EXPECT_EQ(unavailable, kAtOnce) << "seed " << seed;
    // Of some calls each, one after the other.
    EXPECT_LT(longest_ns, kSecondNs) << "seed " << seed;
    // What somebody has accepted, here or elsewhere, is denied no more.
    EXPECT_FALSE(unread.Get(2).ok());
    std::vector<LossInfo> losses;
    const OwnedActor* const by = played % 2 == 0 ? unread.next : unread.other;
    ASSERT_TRUE(AcceptLoss(*by->client, {}, &losses).ok());
    ASSERT_EQ(losses.size(), 1u);
    EXPECT_TRUE(unread.Get(2).ok()) << "seed " << seed;
  }
  EXPECT_GE(played, 3);
}

TEST(OwnedLost, ALogThatCanBeReadAgainIsReadSoon) {
  int played = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    UnreadLog unread(seed);
    LogMoves& stage = unread.stage;
    std::vector<std::byte> before;
    const auto spoil = [&](ServerId log) {
      const std::span<std::byte> memory = stage.world().Memory(log).main;
      before.assign(memory.begin(), memory.end());
      std::memset(memory.data(), 0xEE, memory.size());
    };
    if (!unread.Begin(spoil)) continue;
    ++played;
    std::copy(before.begin(), before.end(), stage.world().Memory(unread.log).main.begin());
    const int64_t begin_ns = stage.NowNs();
    absl::Status got;
    do {
      stage.Quiet(10 * kMillisecondNs);
      got = unread.Get(2);
    } while (!got.ok() && stage.NowNs() < begin_ns + 5 * kSecondNs);
    EXPECT_TRUE(got.ok()) << got << ", seed " << seed;
    EXPECT_LT(stage.NowNs() - begin_ns, 2 * kSecondNs) << "seed " << seed;
  }
  EXPECT_GE(played, 3);
}

// As whoever can write that memory may: behind the last batch of the log.
bool AppendToLog(std::span<std::byte> memory, uint64_t log_id, const LogMessage& message) {
  constexpr uint32_t kEpoch = 1;
  std::optional<LogBaseLine> base;
  size_t at = 0;
  for (size_t line = 0; line + kLogLineBytes <= memory.size(); line += kLogLineBytes) {
    const auto parsed =
        ParseLogBaseLine(memory.subspan(line).first<kLogLineBytes>(), log_id, kEpoch);
    if (!parsed.has_value() || (base.has_value() && parsed->sequence < base->sequence)) continue;
    base = parsed;
    at = line - parsed->sequence % 2 * kLogLineBytes + kLogRingOffset + parsed->offset;
  }
  if (!base.has_value()) return false;
  LogPlace place = base->place;
  for (LogBatchView batch; at < memory.size(); at += batch.bytes) {
    batch = LookAtLogBatch(memory.subspan(at), place);
    if (batch.kind != LogBatchView::Kind::kBatch) break;
    place.seed = batch.seed;
    ++place.counter;
    EXPECT_TRUE(ParseLogMessages(batch.messages, [&](const LogMessage&) {
                  ++place.lsn;
                  return absl::OkStatus();
                }).ok());
  }
  const uint32_t bytes = LogMessageBytes(message.key.size(), message.value.size());
  const std::span<std::byte> lines =
      memory.subspan(at, LogLinesBytes(kLogBatchHeaderBytes + bytes));
  std::memset(lines.data(), 0, lines.size());
  EncodeLogMessage(message, lines.data() + kLogBatchHeaderBytes);
  (void)SealLogBatch(place, lines, bytes);
  return true;
}

// A batch with a checksum that holds, and a message that its tree cannot have. Whoever takes over
// says so, and lives; everything else is taken over, as soon as somebody says that this may go.
// `is_known`: keys of both trees are asked for before.
void AMessageThatItsTreeCannotHave(bool is_known) {
  for (const bool key_is_long : {true, false}) {
    OwnedStageOptions options;
    options.trees = 2;
    LogMoves stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    for (const size_t tree : {0, 1}) {
      ASSERT_TRUE(stage.Open(owner, tree) && stage.Open(next, tree));
      ASSERT_TRUE(stage.PutIn(owner, tree, 1));
    }
    const TreeContext& of = ImplOf(*next->trees[0]).context();
    const std::string key =
        KeyOf(2) + std::string(key_is_long ? of.layout.key_bytes_max() : 0, 'k');
    const std::string value(key_is_long ? 1 : of.layout.value_bytes_max() + 1, 'v');
    const ServerId log = stage.LogServer(owner);
    const MemberId self = ImplOf(*owner->client).member()->self();
    stage.Kill(owner);
    stage.Leave(owner);
    ASSERT_TRUE(AppendToLog(stage.world().Memory(log).main, self.incarnation,
                            {.tree_id = of.entry.tree_id, .key = key, .value = value}));
    Session& session = *next->sessions[0];
    if (is_known) {
      EXPECT_TRUE(session.Get(*next->trees[1], KeyOf(1)).ok());
      const absl::Status got = session.Get(*next->trees[0], KeyOf(1)).status();
      EXPECT_TRUE(absl::IsDataLoss(got)) << got;
    }
    std::vector<LossInfo> losses;
    ASSERT_TRUE(AcceptLoss(*next->client, {}, &losses).ok());
    ASSERT_EQ(losses.size(), 1u) << "the other tree has lost nothing";
    EXPECT_EQ(losses[0].tree, OwnedStage::TreeName(0));
    EXPECT_NE(losses[0].why.find("cannot have"), std::string::npos) << losses[0].why;
    for (const size_t tree : {0, 1}) {
      EXPECT_TRUE(session.Get(*next->trees[tree], KeyOf(1)).ok());
    }
    EXPECT_TRUE(absl::IsNotFound(session.Get(*next->trees[0], KeyOf(2)).status()));
    stage.LookAtTheEnd();
    EXPECT_EQ(stage.what(), "");
  }
}

TEST(OwnedLost, AMessageThatItsTreeCannotHaveEndsNobodyAndIsNoLossOfAnother) {
  for (const bool is_known : {true, false}) AMessageThatItsTreeCannotHave(is_known);
}

}  // namespace
}  // namespace pando
