// Members that come, have their share of the load, and leave under load, and a hotspot that moves
// (rule O13): in virtual seconds, with every record known.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/owned/owned_world.h"
#include "common/wire/lock_word.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/owner/member.h"

namespace pando {
namespace {

constexpr uint64_t kKeys = 600;
constexpr int kCoroutines = 4;
// Of a coroutine, about; the mean of a member's load has to be known to some percent.
constexpr int64_t kPauseNs = 2'500'000;
const TreeOptions kTree = {.key_bytes_max = 8,
                           .value_bytes_max = 8,
                           .node_bytes = 1024,
                           .mode = TreeOptions::Mode::kOwned};

std::string KeyAt(uint64_t n) {
  std::string key(8, '\0');
  for (int i = 0; i < 8; ++i) key[static_cast<size_t>(i)] = static_cast<char>(n >> (56 - 8 * i));
  return key;
}

ClientOptions Options() {
  ClientOptions options;
  options.index_cache_bytes = 1 << 20;
  options.hot_bytes = 256 << 10;
  options.log_bytes = 256 << 10;
  options.owner = true;
  return options;
}

class SpreadTest : public testing::Test {
 protected:
  explicit SpreadTest(const sim::SimOptions& sim = {.seed = 1})
      : cluster_({.sim = sim,
                  .memory_servers = 2,
                  .main_bytes = 16 << 20,
                  .lock_words = 1024,
                  .chunk_bytes = 64 << 10}) {}

  // A compute server whose coroutines read and write their own keys of the tree all the time.
  struct Worker {
    Worker(SimCluster* cluster, const ClientOptions& options) : process(cluster, options, kTree) {}
    OwnerProcess process;
    bool works = true;
    int running = 0;
  };

  SimCluster& cluster() { return cluster_; }
  sim::SimWorld& world() { return cluster_.world(); }

  Worker* Join(const ClientOptions& options = Options()) {
    Worker* const worker =
        workers_.emplace_back(std::make_unique<Worker>(&cluster_, options)).get();
    for (int i = 0; i < kCoroutines; ++i) {
      ++worker->running;
      worker->process.session().Spawn([this, worker] { Work(worker); });
    }
    ImplOf(worker->process.session()).scheduler().endpoint().Wake();
    return worker;
  }
  void Run(int64_t for_ns) { world().RunUntil(world().clock().NowNs() + for_ns); }
  // Nine of ten operations are in a twentieth of the keys, from here on.
  void SetHotspot(uint64_t first) { hot_ = first; }

  static Member* MemberOf(Worker* worker) { return ImplOf(worker->process.client()).member(); }
  // Of all that own something or could.
  std::vector<double> Loads(const std::vector<Worker*>& of) {
    std::vector<double> loads;
    for (Worker* const worker : of) {
      OwnedTree* const tree = ImplOf(worker->process.tree()).routed().owned();
      loads.push_back(
          static_cast<double>(MemberOf(worker)->ReportLoad(tree, "").member_operations_per_s));
    }
    return loads;
  }
  static std::string ToText(const std::vector<double>& loads) {
    std::string text;
    for (const double load : loads) text += std::to_string(static_cast<int>(load)) + " ";
    return text;
  }
  static double MeanOf(const std::vector<double>& loads) {
    double sum = 0;
    for (const double load : loads) sum += load;
    return sum / static_cast<double>(loads.size());
  }
  // All have their share, now and for a while.
  void ExpectShares(const std::vector<Worker*>& of, double most, double least) {
    for (int i = 0; i < 8; ++i) {
      Run(kSecondNs / 4);
      const std::vector<double> loads = Loads(of);
      const double mean = MeanOf(loads);
      EXPECT_GT(mean, 300) << "they have something to do";
      for (const double load : loads) {
        EXPECT_LE(load, most * mean) << ToText(loads);
        EXPECT_GE(load, least * mean) << ToText(loads);
      }
    }
  }
  void Stop() {
    for (const auto& worker : workers_) worker->works = false;
    for (const auto& worker : workers_) worker->process.session().Run();
  }
  // Everything that was acknowledged is there.
  void CheckAll() {
    Worker* const any = workers_.back().get();
    for (const auto& [key, value] : written_) {
      const auto got = any->process.session().Get(any->process.tree(), KeyAt(key));
      ASSERT_TRUE(got.ok()) << got.status();
      ASSERT_EQ(*got, value);
    }
  }
  uint64_t done() const { return done_; }

 private:
  void Work(Worker* worker) {
    Session& session = worker->process.session();
    const Tree& tree = worker->process.tree();
    const uint64_t me = next_++;
    for (uint64_t n = 0; worker->works && !HasFailure(); ++n) {
      const uint64_t any = random_.Chance(0.9) && hot_ < kKeys ? hot_ + random_.Uniform(kKeys / 20)
                                                               : random_.Uniform(kKeys);
      // One writer a key: what was acknowledged last is what is found.
      const uint64_t key = any % kKeys * 64 + me % 64;
      const std::string value = KeyAt(n + 1);
      const auto known = written_.find(key);
      if (random_.Chance(0.5) || known == written_.end()) {
        const absl::Status put = session.Put(tree, KeyAt(key), value);
        EXPECT_TRUE(put.ok()) << put;
        written_[key] = value;
      } else {
        const auto got = session.Get(tree, KeyAt(key));
        EXPECT_TRUE(got.ok()) << got.status();
        if (got.ok()) {
          EXPECT_EQ(*got, known->second);
        }
      }
      ++done_;
      const int64_t pause_ns = kPauseNs / 2 + static_cast<int64_t>(random_.Uniform(kPauseNs));
      session.SleepUntil(ImplOf(session).context().NowNs() + pause_ns);
    }
    --worker->running;
  }

  SimCluster cluster_;
  Random random_{1};
  std::vector<std::unique_ptr<Worker>> workers_;
  std::map<uint64_t, std::string> written_;
  uint64_t hot_ = kKeys, next_ = 0, done_ = 0;
};

TEST_F(SpreadTest, WhoComesHasItsShareAndWhoLeavesLeavesNothing) {
  std::vector<Worker*> workers = {Join()};
  Run(2 * kSecondNs);
  for (int i = 0; i < 2; ++i) {
    workers.push_back(Join());
    Run(8 * kSecondNs);
    ExpectShares(workers, 1.25, 0.75);
  }
  const absl::Status left = workers[0]->process.client().Leave(1000);
  ASSERT_TRUE(left.ok()) << left;
  EXPECT_EQ(workers[0]->process.client().Stats().owned.ranges, 0u);
  Run(8 * kSecondNs);
  // It works on, and others execute what it wants.
  ExpectShares({workers[1], workers[2]}, 1.25, 0.75);
  const auto members = workers[1]->process.client().ListMembers();
  ASSERT_TRUE(members.ok());
  EXPECT_EQ(members->size(), 2u);
  Stop();
  CheckAll();
  std::printf("%lu operations\n", done());
}

TEST_F(SpreadTest, AHotspotThatMovesIsSpread) {
  std::vector<Worker*> workers;
  for (int i = 0; i < 4; ++i) workers.push_back(Join());
  Run(6 * kSecondNs);
  for (const uint64_t place : {100, 480, 30, 300}) {
    SetHotspot(place);
    Run(5 * kSecondNs);
    ExpectShares(workers, 1.5, 0);
  }
  uint64_t given = 0;
  for (Worker* const worker : workers) given += worker->process.client().Stats().owned.given;
  std::printf("%lu operations, %lu moves\n", done(), given);
  // What stays as it is is left alone.
  Run(5 * kSecondNs);
  uint64_t before = 0, after = 0;
  for (Worker* const worker : workers) before += worker->process.client().Stats().owned.given;
  Run(10 * kSecondNs);
  for (Worker* const worker : workers) after += worker->process.client().Stats().owned.given;
  EXPECT_LE(after, before + 2);
  Stop();
  CheckAll();
}

// What is dirty is moved in one step, which is to be short: most of it is flushed before.
TEST_F(SpreadTest, AnOwnerOfManyDirtyRecordsIsDividedWhenFewOfThemHaveToMove) {
  ClientOptions options = Options();
  options.hot_bytes = options.log_bytes = 6 << 20;
  Worker* const owner = Join(options);
  std::vector<KeyValue> records;
  for (uint64_t key = 0; key < kKeys * 64; ++key) {
    if (key % 64 >= 32) records.push_back({KeyAt(key), "a record"});
  }
  auto session = owner->process.client().NewSession();
  ASSERT_TRUE(session.ok());
  for (const absl::Status& put : (*session)->MultiPut(owner->process.tree(), records)) {
    ASSERT_TRUE(put.ok()) << put;
  }
  OwnedTree* const tree = ImplOf(owner->process.tree()).routed().owned();
  const auto dirty = [&](const std::string& key) {
    return MemberOf(owner)->ReportLoad(tree, key).dirty_records;
  };
  EXPECT_GE(dirty(KeyAt(0)), records.size());
  Join(options);
  for (int i = 0; i < 5000 && owner->process.client().Stats().owned.splits == 0; ++i) {
    Run(kMillisecondNs);
  }
  ASSERT_EQ(owner->process.client().Stats().owned.splits, 1u);
  EXPECT_LE(dirty(KeyAt(0)), 4096u);
  EXPECT_GE(dirty(KeyAt(kKeys * 64 - 1)), 4096u) << "the upper part stays as it is";
  Run(4 * kSecondNs);
  Stop();
  CheckAll();
  for (size_t i = 0; i < records.size(); i += 7) {
    const auto got = (*session)->Get(owner->process.tree(), records[i].key);
    ASSERT_TRUE(got.ok()) << got.status();
    ASSERT_EQ(*got, records[i].value);
  }
}

// What is to be given waits for leaves whose locks somebody who is stopped holds.
TEST_F(SpreadTest, AMemberThatSpreadsIsStillMeasured) {
  ClientOptions options = Options();
  options.hot_bytes = options.log_bytes = 6 << 20;
  Worker* const owner = Join(options);
  Run(2 * kSecondNs);
  const auto stop_all = [&](uint64_t from, uint64_t to) {
    for (uint32_t word = kRootLockWords; word < 1024; ++word) {
      const LockTarget lock = {.server = 2, .word = word};
      if (cluster().LockWordAt(lock) == from) cluster().SetLockWord(lock, to);
    }
  };
  constexpr LockWord kStopped = {.owner = 777, .incarnation = 5};
  stop_all(LockWord::kFree, kStopped.Encode());
  Worker* const other = Join(options);
  Run(3 * kSecondNs);
  EXPECT_GT(Loads({owner})[0], 1000);
  EXPECT_EQ(owner->process.client().Stats().owned.given, 0u) << "or this shows nothing";
  owner->works = other->works = false;
  Run(3 * kSecondNs);
  EXPECT_EQ(owner->process.client().Stats().owned.given, 0u) << "or this shows nothing";
  EXPECT_LT(Loads({owner})[0], 100);
  stop_all(kStopped.Encode(), LockWord::kFree);
  Stop();
  CheckAll();
}

// Flushes are no faster than writers.
class SlowSpreadTest : public SpreadTest {
 protected:
  SlowSpreadTest() : SpreadTest({.seed = 1, .delay_ns = 200 * kMicrosecondNs}) {}
};

// More is always dirty than may be: flushes never come to their end.
TEST_F(SlowSpreadTest, WritersThatNeverStopKeepNobodyFromDividingOrClaiming) {
  ClientOptions options = Options();
  options.hot_bytes = options.log_bytes = 1 << 20;
  Worker* const owner = Join(options);
  auto session = owner->process.client().NewSession();
  ASSERT_TRUE(session.ok());
  bool writes = true;
  uint64_t puts = 0;
  constexpr uint64_t kWriters = 64;
  for (uint64_t me = 0; me < kWriters; ++me) {
    (*session)->Spawn([&, me] {
      Random random(me);
      while (writes && !HasFailure()) {
        std::vector<KeyValue> records;
        for (int i = 0; i < 16; ++i) {
          records.push_back({KeyAt(random.Uniform(kKeys) * 64 + 32 + me % 32), "a record"});
        }
        for (const absl::Status& put : (*session)->MultiPut(owner->process.tree(), records)) {
          EXPECT_TRUE(put.ok()) << put;
        }
        puts += records.size();
      }
    });
  }
  ImplOf(**session).scheduler().endpoint().Wake();
  Run(kSecondNs / 2);
  Worker* const second = Join(options);
  Run(kSecondNs);
  // A job of another tree's map.
  TreeOptions tree_options = kTree;
  auto other = owner->process.client().CreateTree("other", tree_options);
  ASSERT_TRUE(other.ok()) << other.status();
  auto asking = owner->process.client().NewSession();
  ASSERT_TRUE(asking.ok());
  const absl::Status put = (*asking)->Put(**other, "a key", "a record", {.timeout_ms = 2000});
  EXPECT_TRUE(put.ok()) << put;
  const auto ranges = [&] { return second->process.client().Stats().owned.ranges; };
  const int64_t end_ns = world().clock().NowNs() + 3 * kSecondNs / 2;
  while (ranges() == 0 && world().clock().NowNs() < end_ns) Run(50 * kMillisecondNs);
  EXPECT_GE(ranges(), 1u) << "3 seconds after it came";
  std::printf("%lu puts\n", puts);
  writes = false;
  (*session)->Run();
  Stop();
  CheckAll();
}

TEST_F(SpreadTest, WhereItIsSwitchedOffNothingGoes) {
  ClientOptions options = Options();
  options.spread_ranges = false;
  std::vector<Worker*> workers = {Join(options), Join(options)};
  Run(4 * kSecondNs);
  for (Worker* const worker : workers) {
    EXPECT_EQ(worker->process.client().Stats().owned.given, 0u);
    EXPECT_EQ(worker->process.client().Stats().owned.splits, 0u);
  }
  Stop();
}

// Of few sessions that may all meet in one range.
TEST_F(SpreadTest, AnOwnerDividesItsKeysUntilItHasAsManyRangesAsItShould) {
  constexpr size_t kRanges = 12;
  ClientOptions options = Options();
  options.ranges_min = kRanges;
  Worker* const owner = Join(options);
  OwnedTree* const tree = ImplOf(owner->process.tree()).routed().owned();
  Run(5 * kSecondNs);
  ASSERT_EQ(tree->OwnRanges().size(), kRanges);
  EXPECT_EQ(owner->process.client().Stats().owned.splits, kRanges - 1);
  // Each has its part of what there is to do.
  const std::vector<double> all = Loads({owner});
  for (OwnRange* const range : tree->OwnRanges()) {
    EXPECT_LE(range->meter.operations_per_s(), all[0] * 3 / kRanges);
    EXPECT_EQ(range->behind, nullptr) << "records have followed";
  }
  // It stays so, and none of two has fewer.
  Worker* const other = Join(options);
  Run(8 * kSecondNs);
  ExpectShares({owner, other}, 1.25, 0.75);
  for (Worker* const worker : {owner, other}) {
    const size_t ranges = ImplOf(worker->process.tree()).routed().owned()->OwnRanges().size();
    EXPECT_GE(ranges, kRanges);
    EXPECT_LE(ranges, 2 * kRanges);
  }
  const uint64_t splits = owner->process.client().Stats().owned.splits;
  Run(4 * kSecondNs);
  EXPECT_EQ(owner->process.client().Stats().owned.splits, splits);
  const absl::Status left = owner->process.client().Leave(1000);
  ASSERT_TRUE(left.ok()) << left;
  Run(2 * kSecondNs);
  EXPECT_EQ(tree->OwnRanges().size(), 0u);
  Stop();
  CheckAll();
}

// A popular key stays in one range: to divide it once more takes nothing off.
TEST_F(SpreadTest, WhereOneKeyIsMostOfARangeOthersAreDivided) {
  constexpr size_t kRanges = 8;
  ClientOptions options = Options();
  options.ranges_min = kRanges;
  options.spread_ranges = false;
  Worker* const owner = Join(options);
  SetHotspot(100);
  Run(5 * kSecondNs);
  OwnedTree* const tree = ImplOf(owner->process.tree()).routed().owned();
  EXPECT_EQ(tree->OwnRanges().size(), kRanges);
  SetHotspot(400);
  Run(2 * kSecondNs);
  EXPECT_EQ(tree->OwnRanges().size(), kRanges);
  Stop();
  CheckAll();
}

TEST_F(SpreadTest, RangesSayWhatTheyHaveToDo) {
  std::vector<Worker*> workers = {Join(), Join()};
  Run(8 * kSecondNs);
  const auto ranges = workers[0]->process.client().ListRanges(workers[0]->process.tree());
  ASSERT_TRUE(ranges.ok()) << ranges.status();
  uint64_t sum = 0, of_other = 0;
  std::string border;
  for (const RangeInfo& range : *ranges) {
    EXPECT_EQ(range.low, border);
    border = range.high;
    EXPECT_TRUE(range.is_known);
    EXPECT_GT(range.since, 0u);
    EXPECT_LE(range.dirty_records, kKeys * 64);
    sum += range.operations_per_s;
    if (range.owner.compute_server != ranges->front().owner.compute_server) ++of_other;
  }
  EXPECT_EQ(border, "");
  EXPECT_GT(of_other, 0u) << "both have some";
  EXPECT_NEAR(static_cast<double>(sum), 2 * kCoroutines * 1e9 / kPauseNs, 1000);
  Stop();
}

}  // namespace
}  // namespace pando
