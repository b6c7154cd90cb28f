// Owned trees whose log is full, whose memory servers have no free memory, or both (rules B3, W5):
// reads, updates and erases go on, new keys are refused, and after erases everything is as before.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/owned/owned_stage.h"
#include "common/base/status.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/owner/member.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;

constexpr uint64_t kLoaded = 400;
constexpr int kAtOnce = 16;

// A value of 60 bytes: some hundred messages fill the smallest log.
std::string WideValue(OwnedStage* stage) { return stage->NewValue() + std::string(50, '.'); }

// One owner, whose tree has some keys in its leaves, beside a shared tree that others have filled.
class OwnedFullTest : public testing::Test {
 protected:
  explicit OwnedFullTest(bool breaks = false)
      : stage_(Options(breaks)), owner_(stage_.Join(OwnedStage::SmallOwner())) {
    EXPECT_TRUE(stage_.Open(owner_, 0));
    std::vector<KeyValue> entries;
    for (uint64_t k = 1; k <= kLoaded; ++k) entries.push_back({KeyOf(10 * k), WideValue(&stage_)});
    EXPECT_TRUE(stage_.BulkLoad(owner_, 0, entries));
  }
  static OwnedStageOptions Options(bool breaks) {
    OwnedStageOptions options = {.circumstances = {.breaks = breaks, .little_memory = true}};
    options.trees = 3;
    options.cluster.memory_servers = 1;
    options.cluster.main_bytes = 2 << 20;
    return options;
  }

  RedoLog& log() { return ImplOf(*owner_->client).member()->log(); }
  OwnedStats Stats() { return owner_->client->Stats().owned; }
  Operation Make(OperationKind kind, uint64_t key) {
    const bool stores = kind != OperationKind::kGet && kind != OperationKind::kDelete;
    return OwnedStage::Make(kind, KeyOf(key), stores ? WideValue(&stage_) : "");
  }
  // So many operations, some at once, of which every one must end, and well.
  void GoOn(uint64_t operations, const std::function<Operation(uint64_t)>& make) {
    const uint64_t refused = stage_.refused();
    uint64_t next = 0;
    for (int c = 0; c < kAtOnce; ++c) {
      stage_.Spawn(owner_, 0, [&] {
        while (next < operations && stage_.problems().empty() && stage_.refused() == refused) {
          ASSERT_TRUE(stage_.Do(owner_, 0, 0, make(next++)));
        }
      });
    }
    owner_->sessions[0]->Run();
    EXPECT_EQ(stage_.refused(), refused) << "somebody waited in vain, or was refused";
    EXPECT_EQ(stage_.what(), "");
  }
  Operation UpdateOrRead(uint64_t n) {
    const uint64_t key = 10 * (1 + n * 37 % kLoaded);
    return Make(n % 4 == 0 ? OperationKind::kGet : OperationKind::kUpdate, key);
  }
  // The memory servers have no node and no extent left; again, once something is free.
  void FillMemory() {
    if (other_ == nullptr) {
      other_ = stage_.Join({.index_cache_bytes = 1 << 20});
      ASSERT_TRUE(other_->client->CreateTree("ballast", {.value_bytes_max = 200}).ok());
    }
    const auto ballast = other_->client->OpenTree("ballast");
    ASSERT_TRUE(ballast.ok()) << ballast.status();
    absl::Status put;
    while (put.ok()) {
      put = other_->sessions[0]->Put(**ballast, KeyOf(ballast_keys_++), std::string(200, 'b'));
    }
    ASSERT_TRUE(absl::IsResourceExhausted(put)) << put;
  }
  // Until it has adopted something it looks for a new base of its log, again and again.
  void AdvanceBaseMeanwhile(size_t tree) {
    stage_.Spawn(owner_, 0, [this, owner = owner_, tree] {
      while (owner->client->Stats().owned.adoptions == 0) {
        ASSERT_TRUE(owner->sessions[0]->Flush(*owner->trees[tree]).ok());
        owner->sessions[0]->SleepUntil(stage_.NowNs() + 20'000);
      }
    });
  }
  // New keys until one is refused: how many were taken. All of them go to the same few leaves.
  uint64_t InsertUntilRefused(uint64_t keys = 0) {
    const uint64_t refused = stage_.refused();
    while (stage_.refused() == refused && stage_.problems().empty() && keys < 5'000) {
      EXPECT_TRUE(stage_.Do(owner_, 0, 0, Make(OperationKind::kInsert, NewKey(keys++))));
    }
    return keys - 1;
  }
  static uint64_t NewKey(uint64_t n) { return 5 + 10 * (n % kLoaded) + n / kLoaded; }
  // It is ResourceExhausted, says so, and has no effect.
  void ExpectRefused(uint64_t key) {
    for (const bool blind : {false, true}) {
      Session& session = *owner_->sessions[0];
      const absl::Status status = blind ? session.Put(*owner_->trees[0], KeyOf(key), "x")
                                        : session.Insert(*owner_->trees[0], KeyOf(key), "x");
      EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    }
    EXPECT_TRUE(stage_.Do(owner_, 0, 0, Make(OperationKind::kGet, key)));
  }
  // What was refused, and half of what was loaded, is erased.
  void EraseAndDrain(uint64_t taken) {
    GoOn(taken + kLoaded / 2, [&](uint64_t n) {
      return Make(OperationKind::kDelete, n < taken ? NewKey(n) : 20 * (n - taken + 1));
    });
    ASSERT_TRUE(stage_.Flush(owner_, 0));
    EXPECT_EQ(Stats().dirty_bytes, 0u);
    EXPECT_FALSE(ImplOf(*owner_->client).member()->is_refusing());
    EXPECT_LE(log().used_bytes(), 4u * kLogLineBytes);
    GoOn(kLoaded / 4, [&](uint64_t n) { return Make(OperationKind::kInsert, 20 * (n + 1)); });
    ASSERT_TRUE(stage_.Flush(owner_, 0));
    EXPECT_EQ(Stats().dirty_bytes, 0u);
    stage_.LookAtTheEnd();
    EXPECT_EQ(stage_.what(), "");
  }

  OwnedStage stage_;
  OwnedActor* owner_;
  OwnedActor* other_ = nullptr;
  uint64_t ballast_keys_ = 0;
};

// The log goes round many times while nothing else is scarce: writers wait for flushes.
TEST_F(OwnedFullTest, TheLog) {
  const uint64_t bytes = Stats().log_bytes;
  uint64_t most = 0;
  GoOn(6'000, [&](uint64_t n) {
    most = std::max(most, log().used_bytes());
    // New ones, too: there is memory for them.
    return n % 16 == 0 ? Make(OperationKind::kInsert, NewKey(n / 16)) : UpdateOrRead(n);
  });
  EXPECT_GE(Stats().log_bytes - bytes, 4 * log().capacity_bytes());
  EXPECT_GT(most, log().capacity_bytes() / 4 * 3) << "or this shows nothing";
  EraseAndDrain(6'000 / 16);
}

// The log is large: what is refused never holds anybody up.
TEST_F(OwnedFullTest, TheMemoryServers) {
  stage_.Leave(owner_);
  ClientOptions options = OwnedStage::SmallOwner();
  options.log_bytes = 512 << 10;
  owner_ = stage_.Join(options);
  ASSERT_TRUE(stage_.Open(owner_, 0));
  GoOn(1, [&](uint64_t n) { return UpdateOrRead(n); });  // it has joined
  FillMemory();
  const uint64_t taken = InsertUntilRefused();
  ExpectRefused(NewKey(4'999));
  GoOn(1'000, [&](uint64_t n) { return UpdateOrRead(n); });
  ExpectRefused(NewKey(4'999));
  EraseAndDrain(taken);
}

// What is refused stays dirty, and its messages hold the log's base, which goes round all the same.
TEST_F(OwnedFullTest, Both) {
  GoOn(1, [&](uint64_t n) { return UpdateOrRead(n); });
  FillMemory();
  const uint64_t taken = InsertUntilRefused();
  EXPECT_GT(taken, 100u);
  const uint64_t bytes = Stats().log_bytes;
  GoOn(8'000, [&](uint64_t n) {
    // Of what was refused, too.
    return n % 8 == 0 ? Make(n % 16 == 0 ? OperationKind::kGet : OperationKind::kUpdate,
                             NewKey(n / 8 % taken))
                      : UpdateOrRead(n);
  });
  EXPECT_GE(Stats().log_bytes - bytes, 5 * log().capacity_bytes());
  ExpectRefused(NewKey(4'999));
  EraseAndDrain(taken);
}

// Values of what was refused get longer, until they would fill the log: those are refused, and the
// others go on.
TEST_F(OwnedFullTest, BothWithLongerValues) {
  GoOn(1, [&](uint64_t n) { return UpdateOrRead(n); });
  FillMemory();
  uint64_t taken = 0;
  while (stage_.refused() == 0 && taken < 5'000 && stage_.what().empty()) {
    EXPECT_TRUE(stage_.Do(owner_, 0, 0,
                          OwnedStage::Make(OperationKind::kInsert, KeyOf(NewKey(taken)), "short")));
    if (stage_.refused() == 0) ++taken;
  }
  const uint64_t refused = stage_.refused();
  for (uint64_t n = 0; n < taken; ++n) {
    EXPECT_TRUE(stage_.Do(owner_, 0, 0, Make(OperationKind::kUpdate, NewKey(n))));
  }
  EXPECT_GT(stage_.refused(), refused) << "or this shows nothing";
  EXPECT_LT(stage_.refused(), refused + taken / 2) << "some had room";
  GoOn(3'000, [&](uint64_t n) { return UpdateOrRead(n); });
  EraseAndDrain(taken);
}

// More puts of new keys than the log can hold: those that waited for room are refused as well.
TEST_F(OwnedFullTest, ManyNewKeysAtOnce) {
  stage_.Leave(owner_);
  ClientOptions options = OwnedStage::SmallOwner();
  options.coroutines_per_session = 1'200;
  owner_ = stage_.Join(options);
  ASSERT_TRUE(stage_.Open(owner_, 0));
  FillMemory();
  for (uint64_t n = 0; n < 1'000; ++n) {
    const Operation put = Make(OperationKind::kPut, NewKey(n));
    stage_.Spawn(owner_, 0, [&, put] { stage_.Do(owner_, 0, 0, put); });
  }
  owner_->sessions[0]->Run();
  EXPECT_GT(stage_.refused(), 250u);
  GoOn(2'000, [&](uint64_t n) { return UpdateOrRead(n); });
  EraseAndDrain(1'000);
}

// The owner dies with what was refused in its log: the next client with memory finds all of it.
TEST_F(OwnedFullTest, WhatWasRefusedIsAdopted) {
  GoOn(1, [&](uint64_t n) { return UpdateOrRead(n); });
  FillMemory();
  const uint64_t taken = InsertUntilRefused();
  GoOn(4'000, [&](uint64_t n) { return UpdateOrRead(n); });
  stage_.Kill(owner_);
  stage_.Leave(owner_);
  ASSERT_TRUE(other_->client->DropTree("ballast").ok());
  stage_.Quiet(5 * kSecondNs);
  OwnedActor* const next = stage_.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage_.Open(next, 0));
  for (uint64_t n = 0; n < taken; ++n) {
    ASSERT_TRUE(stage_.Do(next, 0, 0, Make(OperationKind::kGet, NewKey(n))));
  }
  stage_.LookAtTheEnd();
  EXPECT_EQ(stage_.what(), "");
}

// Somebody takes over while the memory servers are full still: what they refuse is in its own log
// from then on, and all goes on as it did. So it does for who takes over from that one.
TEST_F(OwnedFullTest, WhatWasRefusedIsAdoptedWhileTheyAreFull) {
  GoOn(1, [&](uint64_t n) { return UpdateOrRead(n); });
  std::vector<OwnedActor*> heirs;
  for (int i = 0; i < 2; ++i) {
    OwnedActor* const heir = stage_.Join(OwnedStage::SmallOwner());
    heirs.push_back(heir);
    // It is a member, with a log, by what it owns in another tree.
    ASSERT_TRUE(stage_.Open(heir, 0) && stage_.Open(heir, 1 + i));
    ASSERT_TRUE(stage_.Do(heir, 0, 1 + i, Make(OperationKind::kInsert, 1)));
  }
  FillMemory();
  uint64_t taken = InsertUntilRefused();
  EXPECT_GT(taken, 100u);
  for (OwnedActor* const heir : heirs) {
    OwnedActor* const dead = std::exchange(owner_, heir);
    AdvanceBaseMeanwhile(heir == heirs[0] ? 1 : 2);
    stage_.Kill(dead);
    stage_.Leave(dead);
    GoOn(1, [&](uint64_t n) { return Make(OperationKind::kGet, NewKey(n)); });
    EXPECT_GE(Stats().adoptions, 1u);
    if (heir == heirs[0]) continue;
    GoOn(taken, [&](uint64_t n) { return Make(OperationKind::kGet, NewKey(n)); });
    // What the logs of the dead took is free, and may be enough for all that was refused.
    FillMemory();
    taken = InsertUntilRefused(taken);
    ExpectRefused(NewKey(4'999));
    GoOn(2'000, [&](uint64_t n) {
      return n % 8 == 0 ? Make(OperationKind::kUpdate, NewKey(n / 8 % taken)) : UpdateOrRead(n);
    });
    ExpectRefused(NewKey(4'999));
  }
  EraseAndDrain(taken);
}

// Who takes over while they are full dies, or its queue pairs break, at some place on that way;
// another one follows. `packets`: of those that it sends from then on.
class OwnedFullAdoptionTest : public OwnedFullTest, public testing::WithParamInterface<uint64_t> {
 protected:
  OwnedFullAdoptionTest() : OwnedFullTest(/*breaks=*/true) {}

  void TakeOver(uint64_t packets, bool breaks, bool late) {
    GoOn(1, [&](uint64_t n) { return UpdateOrRead(n); });
    std::vector<OwnedActor*> heirs;
    for (int i = 0; i < 2; ++i) {
      OwnedActor* const heir = stage_.Join(OwnedStage::SmallOwner());
      heirs.push_back(heir);
      ASSERT_TRUE((i == 1 || stage_.Open(heir, 0)) && stage_.Open(heir, 1 + i));
      ASSERT_TRUE(stage_.Do(heir, 0, 1 + i, Make(OperationKind::kInsert, 1)));
    }
    FillMemory();
    const uint64_t taken = InsertUntilRefused();
    stage_.Kill(owner_);
    if (breaks) {
      stage_.BreakAfter(heirs[0], packets, late);
    } else {
      stage_.KillAfter(heirs[0], packets);
    }
    stage_.Leave(owner_);
    (void)stage_.Do(heirs[0], 0, 0, Make(OperationKind::kGet, NewKey(0)));
    stage_.Quiet(3 * kSecondNs);
    if (!breaks) {
      stage_.Kill(heirs[0]);
      stage_.Leave(heirs[0]);
      stage_.Quiet(3 * kSecondNs);
    }
    owner_ = breaks ? heirs[0] : heirs[1];
    ASSERT_TRUE(breaks || stage_.Open(owner_, 0));
    GoOn(taken, [&](uint64_t n) { return Make(OperationKind::kGet, NewKey(n)); });
    ASSERT_TRUE(other_->client->DropTree("ballast").ok());
    stage_.LookAtTheEnd();
    EXPECT_EQ(stage_.what(), "") << packets << " packets";
  }
};

TEST_P(OwnedFullAdoptionTest, IsCompleteWhereItsClaimantDies) {
  TakeOver(GetParam(), /*breaks=*/false, /*late=*/false);
}
TEST_P(OwnedFullAdoptionTest, IsCompleteWhereQueuePairsBreak) {
  TakeOver(GetParam(), /*breaks=*/true, /*late=*/GetParam() % 16 == 0);
}
// The range comes to it with some 535 packets; its own log has the messages shortly before.
INSTANTIATE_TEST_SUITE_P(Packets, OwnedFullAdoptionTest,
                         testing::Range(uint64_t{488}, uint64_t{556}, uint64_t{8}));

// Rule W7: the only owner has died, and nobody else is a member. The next client gets room for its
// log from what is kept for it, takes over, goes on, and so does the one after it.
TEST_F(OwnedFullTest, WhoComesWhileTheyAreFullTakesOver) {
  GoOn(1, [&](uint64_t n) { return UpdateOrRead(n); });
  FillMemory();
  const uint64_t taken = InsertUntilRefused();
  EXPECT_GT(taken, 100u);
  for (int heirs = 0; heirs < 3; ++heirs) {
    stage_.Kill(owner_);
    stage_.Leave(owner_);
    ClientOptions options = OwnedStage::SmallOwner();
    if (heirs == 1) options.log_bytes = 1 << 20;  // there is no room for so much
    owner_ = stage_.Join(options);
    ASSERT_TRUE(stage_.Open(owner_, 0));
    GoOn(taken, [&](uint64_t n) { return Make(OperationKind::kGet, NewKey(n)); });
    EXPECT_EQ(Stats().adoptions, 1u);
    GoOn(1'000, [&](uint64_t n) {
      return n % 8 == 0 ? Make(OperationKind::kUpdate, NewKey(n / 8 % taken)) : UpdateOrRead(n);
    });
    ExpectRefused(NewKey(4'999));
  }
  EraseAndDrain(taken);
}

// Two come at once: one gets the room, the other one has it execute its operations.
TEST_F(OwnedFullTest, OfTwoThatComeWhileTheyAreFullOneTakesOver) {
  GoOn(1, [&](uint64_t n) { return UpdateOrRead(n); });
  FillMemory();
  const uint64_t taken = InsertUntilRefused();
  stage_.Kill(owner_);
  stage_.Leave(owner_);
  std::vector<OwnedActor*> heirs;
  for (int i = 0; i < 2; ++i) {
    heirs.push_back(stage_.Join(OwnedStage::SmallOwner()));
    ASSERT_TRUE(stage_.Open(heirs[i], 0));
  }
  for (int i = 0; i < 2; ++i) {
    stage_.Spawn(heirs[i], 0, [&, heir = heirs[i]] {
      for (uint64_t n = 0; n < taken; ++n) {
        ASSERT_TRUE(stage_.Do(heir, 0, 0, Make(OperationKind::kGet, NewKey(n))));
      }
    });
  }
  const uint64_t refused = stage_.refused();
  for (OwnedActor* const heir : heirs) heir->sessions[0]->Run();
  EXPECT_EQ(stage_.refused(), refused);
  EXPECT_EQ(stage_.what(), "");
  const auto adoptions = [&](int i) { return heirs[i]->client->Stats().owned.adoptions; };
  EXPECT_EQ(adoptions(0) + adoptions(1), 1u);
  owner_ = heirs[adoptions(0) == 1 ? 0 : 1];
  EraseAndDrain(taken);
}

// What its owner has left is in the leaves, and others have filled the memory since: what was kept
// is for the next client.
TEST_F(OwnedFullTest, WhoComesWhenTheOwnerHasLeft) {
  GoOn(100, [&](uint64_t n) { return UpdateOrRead(n); });
  // Somebody has created a tree that nobody uses.
  OwnedActor* const late = stage_.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage_.Open(late, 1) && stage_.Open(late, 0));
  stage_.Leave(owner_);
  FillMemory();
  owner_ = stage_.Join(OwnedStage::SmallOwner());
  ASSERT_TRUE(stage_.Open(owner_, 0));
  GoOn(500, [&](uint64_t n) { return UpdateOrRead(n); });
  // Somebody else beside it has none, and need not: the keys are owned.
  EXPECT_TRUE(stage_.Do(late, 0, 0, Make(OperationKind::kUpdate, 10)));
  EXPECT_EQ(late->client->Stats().owned.claims, 0u);
  // For keys that nobody has it would need one, and says why it cannot.
  const absl::Status put = late->sessions[0]->Put(*late->trees[1], KeyOf(10), "x");
  EXPECT_TRUE(absl::IsResourceExhausted(put)) << put;
  EXPECT_EQ(stage_.what(), "");
}

// Who comes while they are full dies, or its queue pairs break, at some place on its way.
class OwnedFullComingTest : public OwnedFullTest, public testing::WithParamInterface<uint64_t> {
 protected:
  OwnedFullComingTest() : OwnedFullTest(/*breaks=*/true) {}

  void Come(uint64_t packets, bool breaks) {
    GoOn(1, [&](uint64_t n) { return UpdateOrRead(n); });
    FillMemory();
    const uint64_t taken = InsertUntilRefused();
    stage_.Kill(owner_);
    stage_.Leave(owner_);
    owner_ = stage_.Join(OwnedStage::SmallOwner());
    if (breaks) {
      stage_.BreakAfter(owner_, packets, /*late=*/packets % 16 == 0);
    } else {
      stage_.KillAfter(owner_, packets);
    }
    (void)(stage_.Open(owner_, 0) && stage_.Do(owner_, 0, 0, Make(OperationKind::kGet, NewKey(0))));
    stage_.Quiet(3 * kSecondNs);
    if (!breaks) {
      stage_.Kill(owner_);
      stage_.Leave(owner_);
      stage_.Quiet(3 * kSecondNs);
      owner_ = stage_.Join(OwnedStage::SmallOwner());
    }
    ASSERT_TRUE(owner_->trees[0] != nullptr || stage_.Open(owner_, 0));
    GoOn(taken, [&](uint64_t n) { return Make(OperationKind::kGet, NewKey(n)); });
    EraseAndDrain(taken);
  }
};

TEST_P(OwnedFullComingTest, TakesOverWhereWhoCameBeforeHasDied) { Come(GetParam(), false); }
TEST_P(OwnedFullComingTest, TakesOverWhereQueuePairsBreak) { Come(GetParam(), true); }
INSTANTIATE_TEST_SUITE_P(Packets, OwnedFullComingTest,
                         testing::Values(0, 10, 30, 60, 100, 150, 220, 300, 400, 480, 540));

}  // namespace
}  // namespace pando
