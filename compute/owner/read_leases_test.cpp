#include "compute/owner/read_leases.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "compute/owner/set_clock.h"

namespace pando {
namespace {

constexpr int64_t kLease = 4 * kMillisecondNs;

TEST(ReadLeases, HoldFromBeforeTheRequest) {
  SetClock clock;
  ReadLeases leases(&clock);
  EXPECT_EQ(leases.Find("a"), nullptr);
  const int64_t sent_ns = leases.NowNs();
  clock.now_ns += kMillisecondNs;
  ReadLease* const lease = leases.Learn("b", "d", /*lent=*/true, sent_ns, kLease);
  EXPECT_EQ(leases.Find("b"), lease);
  EXPECT_EQ(leases.Find("cz"), lease);
  EXPECT_EQ(leases.Find("a"), nullptr);
  EXPECT_EQ(leases.Find("d"), nullptr);
  EXPECT_TRUE(lease->held.IsAhead(clock));
  EXPECT_TRUE(lease->fresh.IsAhead(clock));
  clock.now_ns = sent_ns + kLease / 4 * 3;
  EXPECT_TRUE(lease->held.IsAhead(clock));
  EXPECT_FALSE(lease->fresh.IsAhead(clock));
  clock.now_ns = sent_ns + kLease;
  EXPECT_FALSE(lease->held.IsAhead(clock));
  EXPECT_FALSE(lease->fresh.IsAhead(clock));
  // Renewed: the same one.
  EXPECT_EQ(leases.Learn("b", "d", /*lent=*/true, leases.NowNs(), kLease), lease);
  EXPECT_TRUE(lease->held.IsAhead(clock));
  // Not renewed: it holds to its end.
  EXPECT_EQ(leases.Learn("b", "d", /*lent=*/false, leases.NowNs(), kLease), lease);
  EXPECT_TRUE(lease->held.IsAhead(clock));
  EXPECT_TRUE(lease->refused.IsAhead(clock));
  clock.now_ns += 64 * kLease;
  EXPECT_FALSE(lease->refused.IsAhead(clock));
}

TEST(ReadLeases, AnswersThatComeLate) {
  SetClock clock;
  ReadLeases leases(&clock);
  const int64_t sent_ns = leases.NowNs();
  clock.now_ns += kLease / 4 * 3;
  ReadLease* const lease = leases.Learn("", "", /*lent=*/true, sent_ns, kLease);
  EXPECT_FALSE(lease->held.IsAhead(clock));
  EXPECT_TRUE(lease->refused.IsAhead(clock));
}

TEST(ReadLeases, LeavesThatCannotBeRead) {
  SetClock clock;
  ReadLeases leases(&clock);
  ReadLease* const lease = leases.Learn("", "", /*lent=*/true, leases.NowNs(), kLease);
  EXPECT_TRUE(lease->held.IsAhead(clock));
  leases.NoteUnreadable(lease, kLease);
  EXPECT_FALSE(lease->fresh.IsAhead(clock));
  EXPECT_FALSE(lease->held.IsAhead(clock));
  clock.now_ns += kSecondNs;
  EXPECT_TRUE(lease->refused.IsAhead(clock));
}

// A clock that is set back, as a counter may be, does not come by the same time again.
TEST(ReadLeases, WhatIsOverIsOver) {
  SetClock clock;
  Until until;
  EXPECT_FALSE(until.IsAhead(clock));
  until.Set(clock, clock.now_ns + 10);
  EXPECT_TRUE(until.IsAhead(clock));
  clock.now_ns += 10;
  EXPECT_FALSE(until.IsAhead(clock));
  clock.now_ns -= 10;
  EXPECT_FALSE(until.IsAhead(clock));
}

TEST(ReadLeases, RangesThatChange) {
  SetClock clock;
  ReadLeases leases(&clock);
  ReadLease* const whole = leases.Learn("", "", /*lent=*/true, leases.NowNs(), kLease);
  EXPECT_EQ(leases.Find("x"), whole);
  ReadLease* const lower = leases.Learn("", "m", /*lent=*/false, leases.NowNs(), kLease);
  EXPECT_EQ(leases.Find("a"), lower);
  EXPECT_FALSE(lower->held.IsAhead(clock));
  EXPECT_EQ(leases.Find("x"), nullptr) << "what there was is not the whole any more";
  ReadLease* const upper = leases.Learn("m", "", /*lent=*/true, leases.NowNs(), kLease);
  EXPECT_EQ(leases.Find("m"), upper);
  EXPECT_EQ(leases.Find("a"), lower);
  EXPECT_TRUE(whole->held.IsAhead(clock)) << "somebody may still look at it";
}

TEST(ReadLeases, WorthAQuestion) {
  ReadCount reads;
  for (uint32_t i = 0; i < ReadCount::kWorthIt; ++i) {
    EXPECT_FALSE(reads.Take());
    reads.Note();
  }
  EXPECT_TRUE(reads.IsWorthIt());
  EXPECT_TRUE(reads.Take());
  EXPECT_FALSE(reads.Take()) << "one asks";
}

// For ThreadSanitizer: looks while ranges change.
TEST(ReadLeases, ManyThreads) {
  ReadLeases leases(&BoottimeClock());
  std::atomic<bool> over{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!over.load()) {
        ReadLease* const lease = leases.Find("k");
        if (lease == nullptr) continue;
        EXPECT_TRUE(lease->Covers("k"));
        lease->reads.Note();
        if (!lease->held.IsAhead(leases.clock())) lease->reads.Take();
      }
    });
  }
  for (char c = 'a'; c < 'k'; ++c) {
    for (int i = 0; i < 50; ++i) {
      leases.Learn(std::string(1, c), "z", /*lent=*/i % 2 == 0, leases.NowNs(), kLease);
    }
  }
  over.store(true);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace pando
