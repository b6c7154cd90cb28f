// Lists of chains on a queue pair that is none (fake_queue_pair.h): every shape of a few short
// chains, in every division into lists, and every place where they can break. Rule L5.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "common/fabric/chain_list.h"
#include "common/fabric/verbs/chain_queue.h"
#include "common/fabric/verbs/chain_queue_bench.h"

namespace pando {
namespace {

using testing::HasSubstr;

// Of 1 to `chains_max` chains of 1 to `verbs_max` verbs.
std::vector<Shape> AllShapes(size_t chains_max, uint32_t verbs_max) {
  std::vector<Shape> shapes = {{}};
  for (size_t first = 0; first < shapes.size(); ++first) {
    for (uint32_t verbs = 1; shapes[first].size() < chains_max && verbs <= verbs_max; ++verbs) {
      shapes.push_back(shapes[first]);
      shapes.back().push_back(verbs);
    }
  }
  shapes.erase(shapes.begin());
  return shapes;
}

// Calls visit(shape, rings): every shape, in every division into lists, the last chains waiting or
// not.
template <typename Visit>
void ForEachDivision(size_t chains_max, uint32_t verbs_max, Visit visit) {
  for (const Shape& shape : AllShapes(chains_max, verbs_max)) {
    for (uint32_t rings = 1; rings < 1u << shape.size(); ++rings) {
      visit(shape, rings);
      if (testing::Test::HasFailure()) return;
    }
  }
}

std::string Describe(const Shape& shape, uint32_t rings) {
  std::string text = "chains";
  for (size_t i = 0; i < shape.size(); ++i) {
    text += " " + std::to_string(shape[i]) + ((rings >> i & 1) != 0 ? " |" : "");
  }
  return text;
}

// How many chains, and how many of their verbs, were told to the NIC.
size_t Rung(uint32_t rings) { return static_cast<size_t>(std::bit_width(rings)); }
uint32_t RungVerbs(const Shape& shape, uint32_t rings) {
  return VerbsOf({shape.begin(), shape.begin() + static_cast<ptrdiff_t>(Rung(rings))});
}

TEST(ChainQueueTest, AllShapesAreVisitedOnce) {
  std::vector<Shape> shapes = AllShapes(3, 4);
  EXPECT_EQ(shapes.size(), 4u + 16 + 64);
  std::sort(shapes.begin(), shapes.end());
  EXPECT_EQ(std::unique(shapes.begin(), shapes.end()), shapes.end());
}

TEST(ChainQueueTest, ListsAreExecutedInOrderAndEachChainIsToldOnce) {
  ForEachDivision(4, 4, [](const Shape& shape, uint32_t rings) {
    SCOPED_TRACE(Describe(shape, rings));
    Bench bench;
    bench.PushAll(shape, rings);
    const uint32_t verbs = RungVerbs(shape, rings);
    ASSERT_EQ(bench.nic().accepted(), verbs);
    EXPECT_EQ(bench.counters.doorbells, static_cast<uint64_t>(std::popcount(rings)));
    EXPECT_EQ(bench.counters.work_requests, verbs);
    EXPECT_EQ(bench.counters.inlined, bench.SmallWrites(Rung(rings)));
    for (uint32_t executed = 1; executed <= verbs; ++executed) {
      bench.Execute(1);
      ASSERT_EQ(bench.ended.size(), bench.ChainsIn(executed)) << "of " << executed << " verbs";
    }
    ASSERT_TRUE(bench.queue->Pump(1).ok());
    bench.Execute(VerbsOf(shape) - verbs);
    bench.ExpectEnds(shape.size());
    bench.ExpectResults(0, shape.size());
    EXPECT_EQ(bench.counters.work_requests, VerbsOf(shape));
    EXPECT_EQ(bench.nic().accepted(), 0u);
  });
}

// The completion of a verb that was not signaled says which one it is, too.
void BreakAtVerb(const Shape& shape, uint32_t rings, uint32_t failing, bool posts_later) {
  Bench bench;
  bench.PushAll(shape, rings);
  bench.Execute(failing);
  const size_t failed = bench.ChainsIn(failing);
  const Shape before(shape.begin(), shape.begin() + static_cast<ptrdiff_t>(failed));
  const uint32_t verb = failing - VerbsOf(before);
  const std::string what = DescribeVerb(bench.chains[failed]->verb(verb));
  const ibv_wc error = bench.nic().Fail(IBV_WC_REM_ACCESS_ERR);
  if (posts_later) {  // before anybody has looked
    bench.Push(2);
    ASSERT_TRUE(bench.queue->Pump(1).ok());
  }
  const std::vector<ibv_wc> flushed = bench.nic().Flush();
  bench.Handle(error);
  bench.ExpectEnds(failed);
  EXPECT_THAT(std::string(bench.chains[failed]->status().message()), HasSubstr(what));
  bench.ExpectResults(0, failed);
  for (const ibv_wc& completion : flushed) bench.Handle(completion);
  bench.ExpectEnds(failed);
  bench.ExpectWorksAgain(flushed);
}

TEST(ChainQueueTest, AnyVerbOfAnyChainMayFail) {
  for (const bool posts_later : {false, true}) {
    ForEachDivision(4, 4, [&](const Shape& shape, uint32_t rings) {
      for (uint32_t failing = 0; failing < RungVerbs(shape, rings); ++failing) {
        SCOPED_TRACE(Describe(shape, rings) + ": verb " + std::to_string(failing));
        BreakAtVerb(shape, rings, failing, posts_later);
      }
    });
  }
}

// The doorbell itself fails at one work request of the last list. What was taken of the list is
// executed, or not; the lists before it were, or not; nobody hears of either.
void RefusePost(const Shape& shape, uint32_t rings, uint32_t place, int error, bool executed) {
  const size_t rung = Rung(rings), last = rung - 1;
  Bench bench;
  for (size_t i = 0; i < rung; ++i) {
    bench.Push(shape[i]);
    if (i == last) bench.nic().RefuseAt(place, error);
    if ((rings >> i & 1) == 0) continue;
    const absl::Status posted = bench.queue->Pump(1);
    ASSERT_EQ(posted.ok(), i < last) << posted;
    if (i < last) continue;
    EXPECT_TRUE(absl::IsUnavailable(posted)) << posted;
    EXPECT_THAT(std::string(posted.message()), HasSubstr(std::strerror(error)));
  }
  for (size_t i = rung; i < shape.size(); ++i) bench.Push(shape[i]);
  EXPECT_EQ(bench.counters.doorbells, static_cast<uint64_t>(std::popcount(rings)));
  EXPECT_EQ(bench.counters.work_requests, RungVerbs(shape, rings));
  std::vector<ibv_wc> late;
  while (executed && bench.nic().accepted() > 0) {
    const std::optional<ibv_wc> completion = bench.nic().Execute();
    if (completion.has_value()) late.push_back(*completion);
  }
  bench.Break(0, "the doorbell failed");
  bench.ExpectEnds(0);
  for (const ibv_wc& completion : late) bench.Handle(completion);
  bench.ExpectEnds(0);
  bench.ExpectWorksAgain(late);
}

TEST(ChainQueueTest, ADoorbellMayBeRefusedAtAnyVerb) {
  for (const int error : {ENOMEM, EINVAL}) {
    ForEachDivision(3, 4, [&](const Shape& shape, uint32_t rings) {
      const size_t last = Rung(rings) - 1;
      // Chains of the last list.
      size_t first = last;
      while (first > 0 && (rings >> (first - 1) & 1) == 0) --first;
      const auto at = [&](size_t i) { return shape.begin() + static_cast<ptrdiff_t>(i); };
      for (uint32_t place = 0; place < VerbsOf({at(first), at(last + 1)}); ++place) {
        for (const bool executed : {false, true}) {
          SCOPED_TRACE(Describe(shape, rings) + ": refused at " + std::to_string(place));
          RefusePost(shape, rings, place, error, executed);
        }
      }
    });
  }
}

// As when a link is down, a server is gone, or the NIC says nothing any more.
TEST(ChainQueueTest, AQueuePairIsDestroyedWithListsInFlight) {
  ForEachDivision(3, 4, [](const Shape& shape, uint32_t rings) {
    for (uint32_t executed = 0; executed <= RungVerbs(shape, rings); ++executed) {
      for (const bool heard : {true, false}) {
        SCOPED_TRACE(Describe(shape, rings) + ": after " + std::to_string(executed));
        Bench bench;
        bench.PushAll(shape, rings);
        std::vector<ibv_wc> late;
        for (uint32_t i = 0; i < executed; ++i) {
          const std::optional<ibv_wc> completion = bench.nic().Execute();
          if (!completion.has_value()) continue;
          heard ? bench.Handle(*completion) : late.push_back(*completion);
        }
        for (const ibv_wc& flushed : bench.nic().Flush()) late.push_back(flushed);
        bench.Break(0, "broken by a test");
        const size_t done = heard ? bench.ChainsIn(executed) : 0;
        bench.ExpectEnds(done);
        bench.ExpectResults(0, done);
        for (const ibv_wc& completion : late) bench.Handle(completion);
        bench.ExpectEnds(done);
        bench.ExpectWorksAgain(late);
      }
    }
  });
}

// A completion that cannot be: the provider left one out. Nothing it says is relied on then.
TEST(ChainQueueTest, ACompletionOutOfTurnBreaks) {
  Bench bench;
  bench.PushAll({2, 1, 3}, 0b101);
  std::vector<ibv_wc> completions;
  while (bench.nic().accepted() > 0) {
    const std::optional<ibv_wc> completion = bench.nic().Execute();
    if (completion.has_value()) completions.push_back(*completion);
  }
  ASSERT_EQ(completions.size(), 3u);
  bench.Handle(completions[0]);
  bench.Handle(completions[2]);
  bench.ExpectEnds(1);
  bench.Handle(completions[1]);
  bench.ExpectEnds(1);
}

// chain_list.h: each verb comes with a doorbell of its own, and the chain is as any other.
TEST(ChainQueueTest, AShortChainThatIsAloneHasADoorbellForEachVerb) {
  for (uint32_t verbs = 1; verbs <= kAloneVerbsMax + 1; ++verbs) {
    Bench bench;
    bench.Push(verbs);
    ASSERT_TRUE(bench.queue->Pump(1, /*alone=*/true).ok());
    EXPECT_EQ(bench.counters.doorbells, verbs <= kAloneVerbsMax ? verbs : 1);
    EXPECT_EQ(bench.counters.work_requests, verbs);
    bench.Execute(verbs - 1);
    EXPECT_TRUE(bench.ended.empty()) << "its last verb alone is signaled";
    bench.Execute(1);
    ASSERT_EQ(bench.ended.size(), 1u);
    EXPECT_TRUE(bench.chains[0]->status().ok()) << bench.chains[0]->status();
  }
}

TEST(ChainQueueTest, AnyVerbOfAChainWithADoorbellForEachMayFailOrBeRefused) {
  for (uint32_t verbs = 2; verbs <= kAloneVerbsMax; ++verbs) {
    for (uint32_t at = 0; at < verbs; ++at) {
      Bench failing;
      failing.Push(verbs);
      ASSERT_TRUE(failing.queue->Pump(1, /*alone=*/true).ok());
      failing.Execute(at);
      failing.Handle(failing.nic().Fail(IBV_WC_RETRY_EXC_ERR));
      ASSERT_EQ(failing.ended.size(), 1u);
      EXPECT_TRUE(absl::IsUnavailable(failing.chains[0]->status()));
      Bench refused;
      refused.Push(verbs);
      refused.nic().RefuseAt(0, ENOMEM, at);
      const absl::Status posted = refused.queue->Pump(1, /*alone=*/true);
      EXPECT_TRUE(absl::IsUnavailable(posted)) << posted;
      EXPECT_EQ(refused.counters.doorbells, at + 1) << "what is behind is not posted";
      refused.Break(0, std::string(posted.message()));
      ASSERT_EQ(refused.ended.size(), 1u);
      EXPECT_TRUE(absl::IsUnavailable(refused.chains[0]->status()));
    }
  }
}

// Chains of any length, more than there is room for: they wait, nobody overtakes, and as many go
// with each doorbell as fit. Numbers and places come around many times.
TEST(ChainQueueTest, WhatDoesNotFitGoesFirstNextTime) {
  for (const uint32_t places : {16u, 32u, 64u, 256u}) {
    SCOPED_TRACE(places);
    Random random(places);
    Bench bench(places);
    uint32_t waiting = 0, in_use = 0, executed = 0;
    for (size_t posted = 0, done = 0; done < 2000;) {
      for (uint64_t pushes = random.Uniform(8); pushes > 0; --pushes) {
        bench.Push(1 + static_cast<uint32_t>(random.Uniform(Chain::kMaxVerbs)));
        waiting += bench.shape.back();
        ASSERT_EQ(bench.queue->list_is_full(), waiting >= ChainQueue::kListMax);
      }
      // What the lists have to be.
      std::vector<uint32_t> lists = bench.nic().lists();
      uint32_t list = 0;
      for (; posted < bench.shape.size() && in_use + bench.shape[posted] <= places; ++posted) {
        if (list + bench.shape[posted] > ChainQueue::kListMax) {
          lists.push_back(std::exchange(list, 0));
        }
        list += bench.shape[posted];
        in_use += bench.shape[posted];
        waiting -= bench.shape[posted];
      }
      if (list > 0) lists.push_back(list);
      ASSERT_TRUE(bench.queue->Pump(1).ok());
      ASSERT_EQ(bench.nic().lists(), lists);
      ASSERT_EQ(bench.counters.doorbells, lists.size());
      const auto count = static_cast<uint32_t>(random.Uniform(bench.nic().accepted() + 1));
      bench.Execute(count);
      executed += count;
      for (; done < bench.ended.size(); ++done) in_use -= bench.shape[done];
      ASSERT_EQ(done, bench.ChainsIn(executed));
    }
    const size_t ended = bench.ended.size();
    bench.ExpectResults(0, ended);
    bench.Break(0, "the end");
    bench.ExpectEnds(ended);
  }
}

// Before there is a queue pair chains wait, each for as long as it may.
TEST(ChainQueueTest, WhoWaitsTooLongLeavesTheOthersInOrder) {
  constexpr int64_t kWithinNs = 1000;
  for (uint32_t hasty = 0; hasty < 16; ++hasty) {
    Bench bench;
    bench.Break(0, "no queue pair");
    std::vector<Chain*> late, others;
    for (uint32_t i = 0; i < 4; ++i) {
      bench.Push(9);
      Chain& chain = *bench.chains.back();
      chain.MarkPosted(1);
      if ((hasty >> i & 1) != 0) chain.LimitWait(500, kNeverNs);
      ((hasty >> i & 1) != 0 ? late : others).push_back(&chain);
    }
    EXPECT_EQ(bench.queue->NextLateNs(kNeverNs, kWithinNs), hasty != 0 ? 500 : 1 + kWithinNs);
    std::vector<Chain*> taken;
    for (const ChainQueue::Entry& entry : bench.queue->TakeLate(500, kWithinNs)) {
      taken.push_back(entry.chain);
    }
    EXPECT_EQ(taken, late);
    EXPECT_EQ(bench.queue->list_is_full(), others.size() == 4);
    EXPECT_EQ(bench.queue->size(), others.size());
    bench.Attach();
    ASSERT_TRUE(bench.queue->Pump(1).ok());
    bench.Execute(9 * static_cast<uint32_t>(others.size()));
    EXPECT_EQ(bench.ended, others);
    EXPECT_EQ(bench.counters.doorbells, (others.size() + 2) / 3) << "27 verbs of 32 a list";
  }
}

// As often as the generation takes to come around: no completion is taken for another's.
TEST(ChainQueueTest, QueuePairsMayBreakForEver) {
  Bench bench;
  for (int i = 0; i < 70'000; ++i) {
    if (bench.queue->connected()) bench.Break(0, "again");
    bench.chains.clear();
    bench.ended.clear();
    bench.shape.clear();
    bench.Attach();
    bench.PushAll({2, 1}, 0b11);
    bench.Execute(2);
    const ibv_wc late = *bench.nic().Execute();
    ASSERT_EQ(bench.ended.size(), 1u);
    bench.Break(0, "again");
    bench.Handle(late);
    bench.ExpectEnds(1);
  }
}

}  // namespace
}  // namespace pando
