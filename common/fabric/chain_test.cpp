#include "common/fabric/chain.h"

#include <array>
#include <vector>

#include "common/fabric/meter.h"
#include "gtest/gtest.h"

namespace pando {
namespace {

class ChainTest : public ::testing::Test {
 protected:
  LocalBuffer Buffer(uint32_t bytes) { return {memory_.data(), bytes, 0}; }

  std::array<std::byte, 4096> memory_{};
};

TEST_F(ChainTest, BuildersFillTheVerbs) {
  Chain chain(3);
  chain.CompareSwap(MemorySpace::kLocks, 64, 0, 7);
  chain.Read(MemorySpace::kMain, 4096, Buffer(1024));
  const std::array<LocalBuffer, 2> pieces = {Buffer(64), Buffer(8)};
  chain.WriteGather(MemorySpace::kMain, 8192, pieces).fence = true;
  chain.FetchAdd(MemorySpace::kMain, 8, 5);

  ASSERT_EQ(chain.size(), 4u);
  EXPECT_EQ(chain.server(), 3);
  EXPECT_TRUE(chain.verb(0).is_atomic());
  EXPECT_EQ(chain.verb(0).space, MemorySpace::kLocks);
  EXPECT_EQ(chain.verb(0).bytes, 8u);
  EXPECT_EQ(chain.verb(0).swap_or_add, 7u);
  EXPECT_EQ(chain.verb(1).piece_count, 1);
  EXPECT_EQ(chain.verb(1).bytes, 1024u);
  EXPECT_EQ(chain.verb(2).piece_count, 2);
  EXPECT_EQ(chain.verb(2).bytes, 72u);
  EXPECT_EQ(chain.verb(3).kind, VerbKind::kFetchAdd);
  EXPECT_EQ(chain.round_trips(), 2);
}

TEST_F(ChainTest, SwappedComparesTheValueFound) {
  Chain chain(1);
  Verb& verb = chain.CompareSwap(MemorySpace::kLocks, 0, 5, 6);
  EXPECT_FALSE(verb.swapped());
  verb.old_value = 5;
  EXPECT_TRUE(verb.swapped());
}

TEST_F(ChainTest, AReusedChainKeepsNothing) {
  Chain chain(1);
  chain.Write(MemorySpace::kMain, 0, Buffer(64)).fence = true;
  chain.MarkPosted(10);
  chain.Complete(absl::UnavailableError("gone"), 20);
  chain.Reset(2);
  EXPECT_EQ(chain.size(), 0u);
  EXPECT_EQ(chain.server(), 2);
  EXPECT_FALSE(chain.done());
  EXPECT_TRUE(chain.ok());
  chain.Read(MemorySpace::kMain, 0, Buffer(64));
  EXPECT_FALSE(chain.verb(0).fence);
  EXPECT_EQ(chain.round_trips(), 1);
}

TEST_F(ChainTest, CompletionTellsTheOutcomeBeforeTheCall) {
  struct Seen {
    bool done = false;
    absl::Status status;
  } seen;
  Chain chain(1);
  chain.set_on_done(
      [](Chain* c, void* context) {
        static_cast<Seen*>(context)->done = c->done();
        static_cast<Seen*>(context)->status = c->status();
      },
      &seen);
  chain.MarkPosted(100);
  EXPECT_FALSE(chain.done());
  chain.Complete(absl::UnavailableError("server 1 is gone"), 250);
  EXPECT_TRUE(seen.done);
  EXPECT_EQ(seen.status, absl::UnavailableError("server 1 is gone"));
  EXPECT_EQ(chain.completed_ns() - chain.posted_ns(), 150);
}

TEST_F(ChainTest, OverfullIsOurBug) {
  Chain chain(1);
  for (int i = 0; i < Chain::kMaxVerbs; ++i) chain.Read(MemorySpace::kMain, 0, Buffer(8));
  EXPECT_DEATH(chain.Read(MemorySpace::kMain, 0, Buffer(8)), "full");
}

TEST_F(ChainTest, MeterCountsVerbsBytesAndRoundTrips) {
  Chain lock(1);
  lock.CompareSwap(MemorySpace::kLocks, 0, 0, 1);
  lock.Read(MemorySpace::kMain, 0, Buffer(1024));
  Chain write(1);
  write.Read(MemorySpace::kMain, 0, Buffer(64));
  write.Write(MemorySpace::kMain, 0, Buffer(64)).fence = true;
  write.Write(MemorySpace::kLocks, 0, Buffer(8));
  write.FetchAdd(MemorySpace::kMain, 0, 1);

  Meter meter, sum;
  meter.Count(lock.Tally());
  meter.Count(write.Tally());
  sum.Add(meter);
  sum.Add(meter);
  EXPECT_EQ(meter.chains, 2u);
  EXPECT_EQ(meter.round_trips, 3u);
  EXPECT_EQ(meter.reads, 2u);
  EXPECT_EQ(meter.writes, 2u);
  EXPECT_EQ(meter.cas, 1u);
  EXPECT_EQ(meter.faa, 1u);
  EXPECT_EQ(meter.verbs(), 6u);
  EXPECT_EQ(meter.bytes_read, 1024u + 64u);
  EXPECT_EQ(meter.bytes_written, 8u + 64u + 8u + 8u);
  EXPECT_EQ(sum.verbs(), 12u);
  EXPECT_EQ(sum.bytes_written, 2 * meter.bytes_written);
  EXPECT_EQ(sum.round_trips, 6u);
}

}  // namespace
}  // namespace pando
