#include "common/sched/coroutine.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "common/base/sanitizer.h"
#include "gtest/gtest.h"

namespace pando::sched {
namespace {

struct Counter {
  Coroutine* self = nullptr;
  int steps = 0;
  int count = 0;
};

void CountUp(void* argument) {
  auto* const counter = static_cast<Counter*>(argument);
  for (int i = 0; i < counter->steps; ++i) {
    ++counter->count;
    counter->self->Suspend();
  }
}

constexpr size_t kStackBytes = 64 * 1024;

TEST(CoroutineTest, RunsFromSuspensionToSuspension) {
  Counter counter{.steps = 3};
  auto coroutine = Coroutine::Create(kStackBytes, &CountUp, &counter);
  ASSERT_NE(coroutine, nullptr);
  counter.self = coroutine.get();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(counter.count, i);
    coroutine->Resume();
    EXPECT_FALSE(coroutine->done());
  }
  coroutine->Resume();
  EXPECT_TRUE(coroutine->done());
  EXPECT_EQ(counter.count, 3);
}

TEST(CoroutineTest, OneThatWasNeverResumedMayGo) {
  Counter counter{.steps = 1};
  Coroutine::Create(kStackBytes, &CountUp, &counter).reset();
  EXPECT_EQ(counter.count, 0);
}

TEST(CoroutineTest, AnUnfinishedOneIsOurBug) {
  EXPECT_DEATH(
      {
        Counter counter{.steps = 2};
        auto coroutine = Coroutine::Create(kStackBytes, &CountUp, &counter);
        counter.self = coroutine.get();
        coroutine->Resume();
        coroutine.reset();
      },
      "unfinished");
}

// Many switches: whatever a sanitizer books on the wrong stack piles up.
TEST(CoroutineTest, SwitchesManyTimesInsideEachOther) {
  Counter inner{.steps = 200'000};
  auto coroutine = Coroutine::Create(kStackBytes, &CountUp, &inner);
  inner.self = coroutine.get();
  struct Outer {
    Coroutine* self;
    Coroutine* inner;
  } outer{nullptr, coroutine.get()};
  auto outside = Coroutine::Create(
      kStackBytes,
      [](void* argument) {
        auto* const o = static_cast<Outer*>(argument);
        while (!o->inner->done()) {
          o->inner->Resume();
          o->self->Suspend();
        }
      },
      &outer);
  outer.self = outside.get();
  while (!outside->done()) outside->Resume();
  EXPECT_EQ(inner.count, 200'000);
}

TEST(CoroutineTest, ExceptionsInsideStayInside) {
  struct Result {
    Coroutine* self = nullptr;
    std::string what;
  } result;
  auto coroutine = Coroutine::Create(
      kStackBytes,
      [](void* argument) {
        auto* const r = static_cast<Result*>(argument);
        r->self->Suspend();
        try {
          throw std::runtime_error("inside");
        } catch (const std::exception& e) {
          r->what = e.what();
        }
      },
      &result);
  result.self = coroutine.get();
  coroutine->Resume();
  coroutine->Resume();
  EXPECT_TRUE(coroutine->done());
  EXPECT_EQ(result.what, "inside");
}

TEST(CoroutineTest, MovesToAnotherThreadWhileSuspended) {
  Counter counter{.steps = 2};
  auto coroutine = Coroutine::Create(kStackBytes, &CountUp, &counter);
  counter.self = coroutine.get();
  coroutine->Resume();
  std::thread([&] { coroutine->Resume(); }).join();
  coroutine->Resume();
  EXPECT_TRUE(coroutine->done());
  EXPECT_EQ(counter.count, 2);
}

TEST(CoroutineTest, NoMemoryForAStackIsNotAnAbort) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer's own address space is in the way";
  Counter counter;
  EXPECT_EQ(Coroutine::Create(size_t{1} << 46, &CountUp, &counter), nullptr);
}

int Overflow(int depth) {
  volatile char frame[512] = {};
  frame[depth % 512] = 1;
  return depth == 0 ? frame[0] : Overflow(depth - 1) + frame[1];
}

TEST(CoroutineTest, TheGuardPageCatchesAnOverflow) {
  EXPECT_DEATH(
      {
        auto coroutine = Coroutine::Create(
            kStackBytes, [](void*) { Overflow(10'000); }, nullptr);
        coroutine->Resume();
      },
      "");
}

}  // namespace
}  // namespace pando::sched
