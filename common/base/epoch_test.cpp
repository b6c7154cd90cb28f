#include "common/base/epoch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

namespace pando {
namespace {

// Counts how many of its kind are alive.
struct Tracked {
  explicit Tracked(std::atomic<int>* alive) : alive(alive) { ++*alive; }
  ~Tracked() { --*alive; }
  static void Delete(void* object) { delete static_cast<Tracked*>(object); }
  std::atomic<int>* const alive;
  int payload = 42;
};

TEST(EpochDomain, FreesWhatNobodyCanSee) {
  std::atomic<int> alive{0};
  EpochDomain domain;
  EpochDomain::Slot* const slot = domain.Register();
  domain.Retire(new Tracked(&alive), &Tracked::Delete, sizeof(Tracked));
  EXPECT_EQ(alive, 1) << "the work is amortised";
  domain.Collect();
  EXPECT_EQ(alive, 0);
  EXPECT_EQ(domain.retired(), 0u);
  domain.Unregister(slot);
}

TEST(EpochDomain, KeepsWhatAnOlderGuardMaySee) {
  std::atomic<int> alive{0};
  EpochDomain domain;
  EpochDomain::Slot* const slot = domain.Register();
  {
    const EpochDomain::Guard guard(domain, slot);
    domain.Retire(new Tracked(&alive), &Tracked::Delete, sizeof(Tracked));
    domain.Retire(new Tracked(&alive), &Tracked::Delete, sizeof(Tracked));
    domain.Collect();
    EXPECT_EQ(alive, 2);
  }
  domain.Collect();
  EXPECT_EQ(alive, 0);
  domain.Unregister(slot);
}

TEST(EpochDomain, AYoungerGuardDoesNotHoldUpOlderRetirements) {
  std::atomic<int> alive{0};
  EpochDomain domain;
  EpochDomain::Slot* const old_slot = domain.Register();
  EpochDomain::Slot* const young_slot = domain.Register();
  domain.Retire(new Tracked(&alive), &Tracked::Delete, sizeof(Tracked));
  {
    const EpochDomain::Guard young(domain, young_slot);
    domain.Collect();
    EXPECT_EQ(alive, 0);
    domain.Retire(new Tracked(&alive), &Tracked::Delete, sizeof(Tracked));
    {
      const EpochDomain::Guard younger(domain, old_slot);
      domain.Retire(new Tracked(&alive), &Tracked::Delete, sizeof(Tracked));
    }
    domain.Collect();
    EXPECT_EQ(alive, 2) << "`young` was there first";
  }
  domain.Collect();
  EXPECT_EQ(alive, 0);
  domain.Unregister(old_slot);
  domain.Unregister(young_slot);
}

TEST(EpochDomain, RetirementsAreFreedAsTheyComeWithoutACall) {
  std::atomic<int> alive{0};
  EpochDomain domain;
  EpochDomain::Slot* const slot = domain.Register();
  for (int i = 0; i < 10'000; ++i) {
    domain.Retire(new Tracked(&alive), &Tracked::Delete, sizeof(Tracked));
    ASSERT_LE(alive, 64);
  }
  domain.Unregister(slot);
}

TEST(EpochDomain, WhatTakesManyBytesIsFreedSooner) {
  std::atomic<int> alive{0};
  EpochDomain domain;
  EpochDomain::Slot* const slot = domain.Register();
  constexpr size_t kQuarter = EpochDomain::kCollectBytes / 4;
  for (int i = 0; i < 1'000; ++i) {
    domain.Retire(new Tracked(&alive), &Tracked::Delete, kQuarter);
    ASSERT_LT(alive, 4);
    ASSERT_EQ(domain.retired_bytes(), static_cast<size_t>(alive) * kQuarter);
  }
  domain.Retire(new Tracked(&alive), &Tracked::Delete, 10 * EpochDomain::kCollectBytes);
  EXPECT_EQ(alive, 0);
  domain.Unregister(slot);
}

TEST(EpochDomain, SaysWhatIsFreed) {
  std::atomic<int> alive{0};
  EpochDomain domain;
  EpochDomain::Slot* const slot = domain.Register();
  EXPECT_TRUE(domain.IsFreed(0));
  const uint64_t first = domain.Retire(new Tracked(&alive), &Tracked::Delete, 1);
  EXPECT_TRUE(domain.IsFreed(0));
  EXPECT_FALSE(domain.IsFreed(first));
  {
    const EpochDomain::Guard guard(domain, slot);
    const uint64_t second = domain.Retire(new Tracked(&alive), &Tracked::Delete, 1);
    domain.Collect();
    EXPECT_TRUE(domain.IsFreed(first));
    EXPECT_FALSE(domain.IsFreed(second));
    EXPECT_EQ(domain.retired_bytes(), 1u);
  }
  domain.Unregister(slot);
}

TEST(EpochDomain, TheDestructorFreesTheRest) {
  std::atomic<int> alive{0};
  {
    EpochDomain domain;
    for (int i = 0; i < 10; ++i)
      domain.Retire(new Tracked(&alive), &Tracked::Delete, sizeof(Tracked));
    EXPECT_EQ(alive, 10);
  }
  EXPECT_EQ(alive, 0);
}

TEST(EpochDomainDeathTest, ASlotIsNotUnregisteredUnderItsGuard) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EpochDomain domain;
  EpochDomain::Slot* const slot = domain.Register();
  EXPECT_DEATH(
      {
        const EpochDomain::Guard guard(domain, slot);
        domain.Unregister(slot);
      },
      "under a guard");
  domain.Unregister(slot);
}

// Readers follow a pointer that a writer replaces and retires all the time; sanitizers see any
// object that is freed under a reader. Readers come and go.
TEST(EpochDomain, ReadersNeverMeetAFreedObject) {
  constexpr int kReaders = 3, kReplacements = 20'000;
  std::atomic<int> alive{0};
  {
    EpochDomain domain;
    std::atomic<Tracked*> current{new Tracked(&alive)};
    std::atomic<bool> stop{false};
    std::vector<std::thread> readers;
    std::atomic<uint64_t> reads{0};
    for (int r = 0; r < kReaders; ++r) {
      readers.emplace_back([&] {
        do {
          EpochDomain::Slot* const slot = domain.Register();
          for (int i = 0; i < 100; ++i) {
            const EpochDomain::Guard guard(domain, slot);
            const Tracked* const seen = current.load(std::memory_order_seq_cst);
            EXPECT_EQ(seen->payload, 42);
            EXPECT_EQ(seen->alive, &alive);
          }
          reads += 100;
          domain.Unregister(slot);
        } while (!stop);
      });
    }
    for (int i = 0; i < kReplacements; ++i) {
      Tracked* const old = current.exchange(new Tracked(&alive), std::memory_order_seq_cst);
      domain.Retire(old, &Tracked::Delete, sizeof(Tracked));
    }
    stop = true;
    for (std::thread& reader : readers) reader.join();
    EXPECT_GE(reads, uint64_t{kReaders} * 100);
    domain.Collect();
    EXPECT_EQ(alive, 1);
    domain.Retire(current.load(), &Tracked::Delete, sizeof(Tracked));
  }
  EXPECT_EQ(alive, 0);
}

}  // namespace
}  // namespace pando
