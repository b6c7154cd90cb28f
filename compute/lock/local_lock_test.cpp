#include "compute/lock/local_lock.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "common/base/sanitizer.h"
#include "compute/lock/lock_test_util.h"

namespace pando {
namespace {

using State = LockRequest::State;

constexpr uint32_t kTree = 3;
const Reference kNode{RemoteAddress(1, 4096), 7};
const Reference kOtherNode{RemoteAddress(1, 8192), 7};
constexpr std::array<std::byte, 16> kImage{std::byte{1}, std::byte{2}};

class LocalLockTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(lock_.TryAcquire(&stay_away_ns_)); }

  // A waiter behind the holder that SetUp() made.
  LockRequestPtr Wait(const Reference& node = {}, uint32_t tree = kTree) {
    auto request = node.is_null()
                       ? std::make_shared<LockRequest>(&session_.scheduler, kNeverNs)
                       : std::make_shared<LockRequest>(&session_.scheduler, kNeverNs, tree, node);
    EXPECT_FALSE(lock_.AcquireOrEnqueue(request, &stay_away_ns_));
    return request;
  }
  std::vector<LockRequestPtr> Take(size_t max = 100) {
    return lock_.TakeCombinable(kTree, kNode, max);
  }
  // Who is granted the lock, in order, when every holder releases it.
  std::vector<LockRequestPtr> Drain(const std::vector<LockRequestPtr>& waiters) {
    std::vector<LockRequestPtr> order;
    while (lock_.HasWaiters()) {
      lock_.Release(0);
      for (const LockRequestPtr& waiter : waiters) {
        const bool granted = waiter->state() == State::kGrantedLocal;
        if (granted && std::find(order.begin(), order.end(), waiter) == order.end()) {
          order.push_back(waiter);
        }
      }
    }
    return order;
  }

  LockTestSession session_;
  LocalLock lock_;
  int64_t stay_away_ns_ = 0;
};

TEST_F(LocalLockTest, IsHeldByOne) {
  EXPECT_FALSE(lock_.TryAcquire(&stay_away_ns_));
  lock_.Release(0);
  const auto request = std::make_shared<LockRequest>(&session_.scheduler, kNeverNs);
  EXPECT_TRUE(lock_.AcquireOrEnqueue(request, &stay_away_ns_));
  EXPECT_EQ(request->state(), State::kQueued) << "it was never queued, so never granted";
  EXPECT_FALSE(lock_.TryAcquire(&stay_away_ns_));
}

TEST_F(LocalLockTest, WaitersAreServedInOrderOfArrival) {
  std::vector<LockRequestPtr> waiters;
  for (int i = 0; i < 5; ++i) waiters.push_back(Wait());
  EXPECT_TRUE(lock_.HasWaiters());
  EXPECT_FALSE(lock_.TryAcquire(&stay_away_ns_));
  EXPECT_EQ(Drain(waiters), waiters);
  lock_.Release(0);
  EXPECT_TRUE(lock_.TryAcquire(&stay_away_ns_));
}

// Rule L6.
TEST_F(LocalLockTest, RemembersWhoElseHadTheWordWhoeverHoldsTheLock) {
  EXPECT_EQ(lock_.CountRivals(0, 100), 0);
  lock_.NoteRival(7, 10, 100);
  lock_.Release(0);
  ASSERT_TRUE(lock_.TryAcquire(&stay_away_ns_));
  lock_.NoteRival(8, 20, 100);
  EXPECT_EQ(lock_.CountRivals(30, 100), 2);
}

// Rule L6: the one who has been waiting, and the one who comes later.
TEST_F(LocalLockTest, TellsTheNextHolderHowLongToStayAway) {
  const LockRequestPtr waiter = Wait();
  lock_.Release(5'678);
  EXPECT_EQ(waiter->state(), State::kGrantedLocal);
  EXPECT_EQ(waiter->stay_away_until_ns, 5'678);
  lock_.Release(1'234);
  ASSERT_TRUE(lock_.TryAcquire(&stay_away_ns_));
  EXPECT_EQ(stay_away_ns_, 1'234);
  lock_.Release(0);
  ASSERT_TRUE(lock_.TryAcquire(&stay_away_ns_));
  EXPECT_EQ(stay_away_ns_, 0);
}

// A word that is contended once is there as long as the client.
TEST_F(LocalLockTest, AnImageThatWasTakenOrLeftTakesNoMemory) {
  if (kSanitized) GTEST_SKIP() << "another allocator";
  constexpr size_t kBytes = 8 << 20;
  std::vector<std::byte> image(kBytes);
  const auto used = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = used();
  const auto waiters = {Wait(), Wait(), Wait()};
  ASSERT_TRUE(lock_.Handover(1, kNode, image.data(), kBytes));
  EXPECT_GT(used(), before + kBytes / 2);
  EXPECT_TRUE(lock_.TakeImage(kNode, image.data(), kBytes));
  EXPECT_LT(used(), before + kBytes / 2) << "taken";
  ASSERT_TRUE(lock_.Handover(2, kNode, image.data(), kBytes));
  ASSERT_TRUE(lock_.Handover(3, {}, nullptr, 0));
  EXPECT_LT(used(), before + kBytes / 2) << "handed on without one";
  EXPECT_FALSE(lock_.TakeImage(kNode, image.data(), kBytes));
  const LockRequestPtr last = Wait();
  ASSERT_TRUE(lock_.Handover(4, kNode, image.data(), kBytes));
  lock_.Release(0);
  EXPECT_LT(used(), before + kBytes / 2) << "left";
}

TEST_F(LocalLockTest, HandsOverWithTheImage) {
  EXPECT_FALSE(lock_.Handover(1, kNode, kImage.data(), kImage.size())) << "nobody waits";
  const LockRequestPtr waiter = Wait();
  ASSERT_TRUE(lock_.Handover(4, kNode, kImage.data(), kImage.size()));
  EXPECT_EQ(waiter->state(), State::kGrantedGlobal);
  EXPECT_EQ(waiter->handovers, 4);
  std::array<std::byte, 16> image{};
  EXPECT_TRUE(lock_.TakeImage(kNode, image.data(), image.size()));
  EXPECT_EQ(image, kImage);
  EXPECT_FALSE(lock_.TakeImage(kNode, image.data(), image.size())) << "once";
}

// Rule L5: an image is of one (address, life).
TEST_F(LocalLockTest, TheImageOfAnotherNodeIsNotTaken) {
  Wait();
  Wait();
  std::array<std::byte, 16> image{};
  ASSERT_TRUE(lock_.Handover(1, kNode, kImage.data(), kImage.size()));
  EXPECT_FALSE(lock_.TakeImage(kOtherNode, image.data(), image.size()));
  EXPECT_FALSE(lock_.TakeImage({kNode.address, kNode.life + 1}, image.data(), image.size()));
  EXPECT_FALSE(lock_.TakeImage(kNode, image.data(), 8)) << "another size";
  ASSERT_TRUE(lock_.Handover(2, kNode, nullptr, 0));
  EXPECT_FALSE(lock_.TakeImage(kNode, image.data(), image.size())) << "none came with it";
}

TEST_F(LocalLockTest, NoImageOutlivesARelease) {
  Wait();
  Wait();
  std::array<std::byte, 16> image{};
  ASSERT_TRUE(lock_.Handover(1, kNode, kImage.data(), kImage.size()));
  lock_.Release(0);
  EXPECT_FALSE(lock_.TakeImage(kNode, image.data(), image.size()));
}

TEST_F(LocalLockTest, AWaiterInTheQueueMayGiveUp) {
  const LockRequestPtr first = Wait(), second = Wait(), third = Wait();
  EXPECT_EQ(lock_.Resolve(second, /*timed_out=*/true), State::kAbandoned);
  EXPECT_EQ(lock_.Resolve(first, /*timed_out=*/false), State::kQueued) << "an early wake-up";
  EXPECT_EQ(Drain({first, second, third}), (std::vector{first, third}));
}

TEST_F(LocalLockTest, WhenAllGiveUpNothingIsHandedOver) {
  const LockRequestPtr waiter = Wait();
  EXPECT_EQ(lock_.Resolve(waiter, true), State::kAbandoned);
  EXPECT_FALSE(lock_.HasWaiters());
  EXPECT_FALSE(lock_.Handover(1, kNode, kImage.data(), kImage.size()));
  lock_.Release(0);
  EXPECT_TRUE(lock_.TryAcquire(&stay_away_ns_));
}

TEST_F(LocalLockTest, AGrantThatCrossesTheDeadlineStaysAGrant) {
  const LockRequestPtr first = Wait(), second = Wait();
  lock_.Release(0);
  EXPECT_EQ(lock_.Resolve(first, true), State::kGrantedLocal);
  ASSERT_TRUE(lock_.Handover(1, kNode, nullptr, 0));
  EXPECT_EQ(lock_.Resolve(second, true), State::kGrantedGlobal);
}

TEST_F(LocalLockTest, TakesOnlyOperationsOnTheNodeInOrder) {
  const LockRequestPtr a = Wait(kNode), lock_only = Wait(), b = Wait(kNode),
                       other_node = Wait(kOtherNode), other_tree = Wait(kNode, kTree + 1),
                       other_life = Wait({kNode.address, kNode.life + 1}), d = Wait(kNode);
  EXPECT_EQ(Take(2), (std::vector{a, b}));
  EXPECT_EQ(Take(), (std::vector{d}));
  EXPECT_TRUE(Take().empty());
  for (const LockRequestPtr& taken : {a, b, d}) EXPECT_EQ(taken->state(), State::kExecuting);
  const std::vector rest = {lock_only, other_node, other_tree, other_life};
  EXPECT_EQ(Drain(rest), rest);
}

TEST_F(LocalLockTest, ExecutedOperationsGetTheirResults) {
  const LockRequestPtr a = Wait(kNode), b = Wait(kNode);
  const std::vector<LockRequestPtr> taken = Take();
  lock_.Finish(taken, {absl::OkStatus(), absl::NotFoundError("b")});
  EXPECT_EQ(lock_.Resolve(a, false), State::kDone);
  EXPECT_EQ(lock_.Resolve(b, true), State::kDone) << "done just in time";
  EXPECT_TRUE(a->result.ok());
  EXPECT_TRUE(absl::IsNotFound(b->result));
}

TEST_F(LocalLockTest, WhatIsPutBackIsServedFirstAndInOrder) {
  const LockRequestPtr a = Wait(kNode), b = Wait(kNode), c = Wait(kNode);
  std::vector<LockRequestPtr> taken = Take();
  const LockRequestPtr late = Wait(kNode);
  lock_.PutBack({taken[1], taken[2]});
  lock_.Finish({taken[0]}, {absl::OkStatus()});
  EXPECT_EQ(b->state(), State::kQueued);
  EXPECT_EQ(Take(), (std::vector{b, c, late}));
}

TEST_F(LocalLockTest, GivingUpWhileTheHolderExecutesLeavesTheOutcomeUnknown) {
  const LockRequestPtr a = Wait(kNode), b = Wait(kNode), c = Wait(kNode);
  std::vector<LockRequestPtr> taken = Take();
  EXPECT_EQ(lock_.Resolve(a, true), State::kExecuting);
  EXPECT_EQ(lock_.Resolve(b, true), State::kExecuting);
  EXPECT_EQ(a->state(), State::kAbandoned);
  // Neither the result nor the way back finds it; the others are not affected.
  lock_.PutBack({taken[1], taken[2]});
  lock_.Finish({taken[0]}, {absl::OkStatus()});
  EXPECT_EQ(a->state(), State::kAbandoned);
  EXPECT_EQ(b->state(), State::kAbandoned);
  EXPECT_EQ(Take(), std::vector{c});
}

TEST_F(LocalLockTest, GrantsWakeTheWaiter) {
  LockTestSession session;
  std::vector<State> seen;
  for (int i = 0; i < 3; ++i) {
    session.scheduler.Spawn([&, i] {
      const auto request =
          i < 2 ? std::make_shared<LockRequest>(&session.scheduler, kNeverNs)
                : std::make_shared<LockRequest>(&session.scheduler, kNeverNs, kTree, kNode);
      int64_t stay_away_ns = 0;
      ASSERT_FALSE(lock_.AcquireOrEnqueue(request, &stay_away_ns));
      ASSERT_TRUE(request->parking.ParkUntil(session.In(20 * kSecondNs)));
      seen.push_back(lock_.Resolve(request, false));
    });
  }
  session.scheduler.Spawn([&] {
    lock_.Finish(Take(), {absl::OkStatus()});
    session.scheduler.Yield();
    lock_.Release(0);
    session.scheduler.Yield();
    ASSERT_TRUE(lock_.Handover(1, kNode, nullptr, 0));
  });
  session.scheduler.Drain();
  EXPECT_EQ(seen, (std::vector{State::kDone, State::kGrantedLocal, State::kGrantedGlobal}));
}

// Sessions on threads of their own, several coroutines each, that increment a plain counter by all
// the ways there are: as holder, by handover, executed by another holder, put back, given up.
class LocalLockThreadsTest : public testing::Test {
 protected:
  static constexpr int kThreads = 4, kCoroutines = 4, kOperations = 500;

  struct Outcome {
    int64_t done = 0, none = 0, unknown = 0;
  };

  void Work(LockTestSession& session, Random& random, Outcome& outcome) {
    for (int i = 0; i < kOperations; ++i) Operate(session, random, outcome);
  }

  void Operate(LockTestSession& session, Random& random, Outcome& outcome) {
    const int64_t deadline_ns = random.Uniform(4) == 0
                                    ? session.In(static_cast<int64_t>(random.Uniform(20'000)))
                                    : kNeverNs;
    const auto request =
        std::make_shared<LockRequest>(&session.scheduler, deadline_ns, kTree, kNode);
    int64_t stay_away_ns = 0;
    int handovers = 0;
    if (!lock_.AcquireOrEnqueue(request, &stay_away_ns)) {
      while (true) {
        const bool woken = request->parking.ParkUntil(deadline_ns);
        const State state = lock_.Resolve(request, !woken);
        if (state == State::kDone) {
          ++outcome.done;
          return;
        }
        if (state == State::kAbandoned) {
          ++outcome.none;
          return;
        }
        if (state == State::kExecuting && !woken) {
          ++outcome.unknown;
          return;
        }
        if (state == State::kGrantedLocal || state == State::kGrantedGlobal) break;
      }
      handovers = request->handovers;
      CheckImage(request->state());
    }
    Hold(session, random, handovers);
    ++outcome.done;
  }

  void CheckImage(State granted) {
    std::array<std::byte, 8> image;
    if (!lock_.TakeImage(kNode, image.data(), image.size())) return;
    EXPECT_EQ(granted, State::kGrantedGlobal);
    EXPECT_EQ(std::memcmp(image.data(), &counter_, 8), 0) << "an image of the past";
  }

  void Hold(LockTestSession& session, Random& random, int handovers) {
    ++counter_;
    if (random.Uniform(3) == 0) session.scheduler.Yield();
    std::vector<LockRequestPtr> taken = lock_.TakeCombinable(kTree, kNode, random.Uniform(6));
    std::vector<LockRequestPtr> rest;
    for (size_t keep = random.Uniform(taken.size() + 1); taken.size() > keep; taken.pop_back()) {
      rest.insert(rest.begin(), taken.back());
    }
    if (!rest.empty()) lock_.PutBack(rest);
    if (random.Uniform(3) == 0) session.scheduler.Yield();
    counter_ += static_cast<int64_t>(taken.size());
    if (!taken.empty()) {
      lock_.Finish(taken, std::vector<absl::Status>(taken.size(), absl::OkStatus()));
    }
    const auto* const image = reinterpret_cast<const std::byte*>(&counter_);
    if (handovers < 8 && lock_.Handover(handovers + 1, kNode, image, 8)) return;
    lock_.Release(0);
  }

  LocalLock lock_;
  int64_t counter_ = 0;  // guarded by lock_ alone
};

TEST_F(LocalLockThreadsTest, EveryOperationTakesEffectOnceOrIsGivenUp) {
  std::vector<Outcome> outcomes(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      LockTestSession session;
      Random random(static_cast<uint64_t>(t));
      for (int c = 0; c < kCoroutines; ++c) {
        session.scheduler.Spawn(
            [&, t] { Work(session, random, outcomes[static_cast<size_t>(t)]); });
      }
      session.scheduler.Drain();
    });
  }
  for (std::thread& thread : threads) thread.join();
  Outcome sum;
  for (const Outcome& outcome : outcomes) {
    sum.done += outcome.done;
    sum.none += outcome.none;
    sum.unknown += outcome.unknown;
  }
  EXPECT_EQ(sum.done + sum.none + sum.unknown, kThreads * kCoroutines * kOperations);
  EXPECT_GE(counter_, sum.done);
  EXPECT_LE(counter_, sum.done + sum.unknown);
  EXPECT_GT(sum.done, kThreads * kCoroutines * kOperations / 2);
  int64_t stay_away_ns = 0;
  EXPECT_TRUE(lock_.TryAcquire(&stay_away_ns)) << "it is free in the end";
}

TEST(LocalLockTable, OneLockAWord) {
  LocalLockTable table(1'000);
  EXPECT_EQ(table.words(), 1'000u);
  EXPECT_EQ(&table.At(999), &table.At(999));
  EXPECT_NE(&table.At(0), &table.At(1));
  int64_t stay_away_ns = 0;
  for (uint32_t word = 0; word < 1'000; ++word) {
    EXPECT_TRUE(table.At(word).TryAcquire(&stay_away_ns)) << word;
  }
  for (uint32_t word = 0; word < 1'000; ++word) table.At(word).Release(0);
}

TEST(LocalLockTable, ThreadsThatTouchABlockFirstAgreeOnIt) {
  LocalLockTable table(256);
  constexpr int kThreads = 4;
  std::array<std::array<LocalLock*, 256>, kThreads> seen;
  std::vector<std::thread> threads;
  for (auto& locks : seen) {
    threads.emplace_back([&] {
      for (uint32_t word = 0; word < 256; ++word) locks[word] = &table.At(word);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& locks : seen) EXPECT_EQ(locks, seen[0]);
}

TEST(LocalLockTableDeathTest, AWordBeyondTheTableIsABug) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  LocalLockTable table(100);
  EXPECT_DEATH(table.At(100), "");
}

}  // namespace
}  // namespace pando
