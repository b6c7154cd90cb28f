// The ring by itself: what is promised fits, wherever fillers fall; nothing in use is given away
// (rules W2, W5).
#include "compute/log/log_ring.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "common/base/random.h"

namespace pando {
namespace {

constexpr LogPlace kFirst = {.log_id = 5, .epoch = 2};

// A ring with its memory, as a reader sees it.
class RingTest : public testing::TestWithParam<uint64_t> {
 protected:
  bool Promise(uint32_t value_bytes, bool last) {
    return ring_.TryPromise(CostOf(value_bytes), last);
  }
  static uint64_t CostOf(uint32_t value_bytes) {
    return LogRing::CostOf(LogMessageBytes(8, value_bytes));
  }
  void Append(uint32_t value_bytes) {
    const std::string key = "key" + std::to_string(10'000 + ring_.next_lsn() % 10'000);
    const Lsn lsn = ring_.next_lsn();
    EXPECT_EQ(
        ring_.Append({.key = key, .value = std::string(value_bytes, 'v')}, CostOf(value_bytes)),
        lsn);
    keys_[lsn] = key;
  }
  // What a chain writes.
  void Store(LogBatch* batch) {
    if (batch->has_filler()) Copy(batch->start, batch->filler);
    Copy(batch->position, batch->bytes);
  }
  void Copy(uint64_t position, std::span<const std::byte> bytes) {
    const uint64_t at = position % memory_.size();
    ASSERT_LE(at + bytes.size(), memory_.size()) << "it wraps";
    std::memcpy(memory_.data() + at, bytes.data(), bytes.size());
  }
  // All from the mark on is there, and it is what was appended.
  void ExpectReadable(const LogRing::Mark& from, Lsn end) {
    LogPlace next = from.place;
    uint64_t at = from.position % memory_.size();
    while (next.lsn < end) {
      const LogBatchView view = LookAtLogBatch(std::span(memory_).subspan(at), next);
      ASSERT_TRUE(view.kind == LogBatchView::Kind::kBatch ||
                  view.kind == LogBatchView::Kind::kFiller)
          << next.lsn;
      at = view.kind == LogBatchView::Kind::kFiller ? 0 : (at + view.bytes) % memory_.size();
      EXPECT_TRUE(ParseLogMessages(view.messages, [&](const LogMessage& message) {
                    EXPECT_EQ(message.key, keys_[next.lsn]);
                    ++next.lsn;
                    return absl::OkStatus();
                  }).ok());
      next.seed = view.seed;
      ++next.counter;
    }
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(16 << 10);
  LogRing ring_{{16 << 10, 2 << 10}, kFirst};
  std::map<Lsn, std::string> keys_;
};

TEST_P(RingTest, WhatIsPromisedFitsAndWhatIsInUseStays) {
  Random random(GetParam());
  std::vector<uint32_t> promised;
  std::vector<std::shared_ptr<LogBatch>> writing;
  LogRing::Mark base = ring_.MarkAt(1);
  uint64_t fillers = 0, refused = 0;
  for (int step = 0; step < 60'000; ++step) {
    const auto value_bytes =
        static_cast<uint32_t>(random.Chance(0.8) ? random.Uniform(16) : random.Uniform(256));
    switch (random.Uniform(6)) {
      case 0:
      case 1:
        if (Promise(value_bytes, random.Chance(0.1))) {
          promised.push_back(value_bytes);
        } else {
          ++refused;
        }
        break;
      case 2:
        if (promised.empty()) break;
        if (random.Chance(0.05)) {
          ring_.TakeBack(CostOf(promised.back()));
        } else {
          Append(promised.back());
        }
        promised.pop_back();
        break;
      case 3:
        if (ring_.in_flight() < 2 &&
            (ring_.FirstClosed() != nullptr || ring_.open_messages() > 0)) {
          writing.push_back(ring_.Take());
          ++writing.back()->chains;
          fillers += writing.back()->has_filler() ? 1 : 0;
        }
        break;
      case 4: {
        if (writing.empty()) break;
        const size_t which = random.Uniform(writing.size());
        const std::shared_ptr<LogBatch> batch = writing[which];
        writing.erase(writing.begin() + static_cast<std::ptrdiff_t>(which));
        if (random.Chance(0.1)) {
          ring_.NotePutBack(batch.get());
        } else {
          Store(batch.get());
          ring_.NoteWritten(batch.get());
        }
        ring_.NoteChainOver(batch.get());
        break;
      }
      default: {
        if (!random.Chance(0.1)) break;
        ExpectReadable(base, ring_.durable() + 1);
        const Lsn lsn = base.place.lsn + random.Uniform(ring_.durable() + 2 - base.place.lsn);
        const LogRing::Mark mark = ring_.MarkAt(lsn);
        ASSERT_LE(mark.place.lsn, lsn);
        ASSERT_GE(mark.position, base.position);
        ring_.NoteBase(base = mark);
      }
    }
    ASSERT_LE(ring_.used_bytes() + ring_.promised_bytes(), memory_.size());
  }
  ExpectReadable(base, ring_.durable() + 1);
  EXPECT_GT(fillers, 5u);
  EXPECT_GT(refused, 10u);
}
INSTANTIATE_TEST_SUITE_P(Seeds, RingTest, testing::Range(uint64_t{1}, uint64_t{21}));

TEST_F(RingTest, TheLastSixteenthIsForThoseWhoMustGetOn) {
  uint64_t writers = 0, others = 0;
  while (Promise(8, false)) ++writers;
  while (Promise(8, true)) ++others;
  EXPECT_EQ(writers, ring_.capacity_bytes() / 16 * 15 / 64);
  EXPECT_EQ(writers + others, ring_.capacity_bytes() / 64);
}

TEST_F(RingTest, WhoIsStillInFlightKeepsTheSpaceBehindIt) {
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Promise(8, false));
    Append(8);
    const auto batch = ring_.Take();
    batch->chains = i == 0 ? 2 : 1;  // the first one has been written again
    ring_.NoteWritten(batch.get());
    ring_.NoteChainOver(batch.get());
    ring_.NoteBase(ring_.MarkAt(ring_.durable() + 1));
    EXPECT_EQ(ring_.used_bytes(), uint64_t{64} * (i + 1));
  }
}

TEST_F(RingTest, DurableIsWhatHasNoGapBeforeIt) {
  std::vector<std::shared_ptr<LogBatch>> batches;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(Promise(8, false));
    Append(8);
    batches.push_back(ring_.Take());
  }
  ring_.NoteWritten(batches[1].get());
  EXPECT_EQ(ring_.durable(), 0u);
  EXPECT_EQ(ring_.OldestInFlight(), batches[0]);
  ring_.NoteWritten(batches[0].get());
  EXPECT_EQ(ring_.durable(), 2u);
  EXPECT_EQ(ring_.OldestInFlight(), nullptr);
}

}  // namespace
}  // namespace pando
