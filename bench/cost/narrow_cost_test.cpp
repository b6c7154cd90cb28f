// What narrow gets cost, and what their leaves cost writers (rules N): counted on the simulated
// fabric, as in cost_test.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/cost/loaded_tree.h"
#include "common/base/random.h"
#include "common/wire/leaf.h"
#include "compute/client/access.h"
#include "compute/client/tree_impl.h"

namespace pando {
namespace {

using MakeKey = std::function<std::string(Random*)>;

std::string RandomKey(Random* random, size_t bytes) {
  std::string key(bytes, '\0');
  for (char& byte : key) byte = static_cast<char>(random->Next());
  return key;
}
// 4 to 60 letters, most of them few.
std::string RandomWord(Random* random) {
  size_t bytes = 4;
  while (bytes < 60 && random->Chance(0.85)) ++bytes;
  std::string word;
  for (size_t i = 0; i < bytes; ++i) word += static_cast<char>('a' + random->Uniform(26));
  return word;
}

struct Shape {
  const char* name;
  uint32_t key_bytes, value_bytes;
  MakeKey make_key;
};
Shape Eights() {
  return {"8/8", 8, 8, [](Random* random) { return RandomKey(random, 8); }};
}
Shape TwentyFours() {
  return {"24/8", 24, 8, [](Random* random) { return RandomKey(random, 24); }};
}

ClientOptions Options(bool narrow_writes) {
  ClientOptions options;
  options.techniques.narrow_writes = narrow_writes;
  return options;
}

struct Each {
  double round_trips = 0, bytes_read = 0, bytes_written = 0;
};
Each PerOperation(const OperationCost& cost, double operations) {
  return {cost.round_trips / operations, static_cast<double>(cost.bytes_read) / operations,
          static_cast<double>(cost.bytes_written) / operations};
}

// A tree grows by random inserts to twice its size, so that leaves are as full as they ever are;
// each insert is followed by two gets.
struct SteadyState {
  Each put, found, absent;
};
SteadyState Grow(const Shape& shape, bool narrow, bool narrow_writes = false) {
  constexpr size_t kFirst = 30'000;
  SimCluster cluster({.sim = {.seed = 7, .mode = sim::DeliveryMode::kWhole}});
  const auto client = cluster.NewClient(Options(narrow_writes));
  const auto tree = *client->CreateTree("t", {.key_bytes_max = shape.key_bytes,
                                              .value_bytes_max = shape.value_bytes,
                                              .narrow_reads = narrow});
  const auto session = *client->NewSession();
  Random random(11);
  std::vector<std::string> keys;
  OperationCost puts, founds, absents;
  uint64_t wrong = 0;
  while (keys.size() < 2 * kFirst) {
    const bool counts = keys.size() >= kFirst;
    keys.push_back(shape.make_key(&random));
    wrong += !session->Put(*tree, keys.back(), "v", {.cost = counts ? &puts : nullptr}).ok();
    if (!counts) continue;
    const std::string& key = keys[random.Uniform(keys.size())];
    wrong += !session->Get(*tree, key, {.cost = &founds}).ok();
    const std::string absent = shape.make_key(&random);
    wrong += session->Get(*tree, absent, {.cost = &absents}).ok();
  }
  // Short words come again.
  EXPECT_LE(wrong, kFirst / 100);
  SteadyState steady{PerOperation(puts, kFirst), PerOperation(founds, kFirst),
                     PerOperation(absents, kFirst)};
  std::printf(
      "%s %s: put %.4f RT, %.1f bytes READ, %.1f written; found %.4f RT, %.1f bytes; absent %.4f "
      "RT, %.1f\n",
      shape.name,
      narrow_writes ? "narrow writes"
      : narrow      ? "narrow"
                    : "whole",
      steady.put.round_trips, steady.put.bytes_read, steady.put.bytes_written,
      steady.found.round_trips, steady.found.bytes_read, steady.absent.round_trips,
      steady.absent.bytes_read);
  return steady;
}

TEST(NarrowCost, AGetReadsThreeHundredBytesInsteadOfALeaf) {
  const SteadyState whole = Grow(Eights(), false), narrow = Grow(Eights(), true);
  EXPECT_GE(whole.found.bytes_read, 1024);
  EXPECT_LE(narrow.found.bytes_read, 310);
  EXPECT_LE(narrow.found.round_trips, 1.06);
  EXPECT_LE(narrow.absent.round_trips, 1.15);
  // Writers pay next to nothing for it.
  EXPECT_LE(narrow.put.round_trips, whole.put.round_trips * 1.01);
  EXPECT_LE(narrow.put.bytes_written, whole.put.bytes_written * 1.01);
}

TEST(NarrowCost, KeysOfTwentyFourBytes) {
  const SteadyState whole = Grow(TwentyFours(), false), narrow = Grow(TwentyFours(), true);
  EXPECT_GE(whole.found.bytes_read, 2048);
  EXPECT_LE(narrow.found.bytes_read, 450);
  EXPECT_LE(narrow.absent.round_trips, 1.2);
}

TEST(NarrowCost, Words) {
  const Shape shape = {"60/8 words", 60, 8, RandomWord};
  const SteadyState whole = Grow(shape, false), narrow = Grow(shape, true);
  EXPECT_GE(whole.found.bytes_read, 4096);
  EXPECT_LE(narrow.found.bytes_read, 750);
  EXPECT_LE(narrow.absent.round_trips, 1.2);
}

// A tree that keeps its size: each erased key is followed by a new one, and both by a get of a key
// that is there and by one of a key that is not. Few leaves are split or merged, so that flags go
// by the writes of entries alone (rule N7).
struct Churned {
  Each write, found, absent;
};
Churned Churn(const Shape& shape, bool narrow, bool narrow_writes = false) {
  constexpr size_t kKeys = 6'000, kChanges = 30'000, kFirst = 3 * kChanges / 4;
  SimCluster cluster({.sim = {.seed = 7, .mode = sim::DeliveryMode::kWhole}});
  const auto client = cluster.NewClient(Options(narrow_writes));
  const auto tree = *client->CreateTree("t", {.key_bytes_max = shape.key_bytes,
                                              .value_bytes_max = shape.value_bytes,
                                              .narrow_reads = narrow});
  const auto session = *client->NewSession();
  Random random(11);
  std::vector<std::string> keys;
  uint64_t wrong = 0;
  while (keys.size() < kKeys) {
    keys.push_back(shape.make_key(&random));
    wrong += !session->Put(*tree, keys.back(), "v").ok();
  }
  OperationCost writes, founds, absents;
  for (size_t change = 0; change < kChanges; ++change) {
    const bool counts = change >= kFirst;
    std::string& key = keys[random.Uniform(keys.size())];
    OperationCost* const cost = counts ? &writes : nullptr;
    wrong += !session->Erase(*tree, key, {.cost = cost}).ok();
    key = shape.make_key(&random);
    wrong += !session->Put(*tree, key, "v", {.cost = cost}).ok();
    if (!counts) continue;
    wrong += !session->Get(*tree, keys[random.Uniform(keys.size())], {.cost = &founds}).ok();
    wrong += session->Get(*tree, shape.make_key(&random), {.cost = &absents}).ok();
  }
  EXPECT_EQ(wrong, 0u);
  constexpr double kCounted = kChanges - kFirst;
  Churned churned{PerOperation(writes, 2 * kCounted), PerOperation(founds, kCounted),
                  PerOperation(absents, kCounted)};
  std::printf(
      "%s %s churned: write %.4f RT, %.1f bytes READ, %.1f written; found %.4f RT; absent %.4f RT, "
      "%.1f\n",
      shape.name,
      narrow_writes ? "narrow writes"
      : narrow      ? "narrow"
                    : "whole",
      churned.write.round_trips, churned.write.bytes_read, churned.write.bytes_written,
      churned.found.round_trips, churned.absent.round_trips, churned.absent.bytes_read);
  return churned;
}

TEST(NarrowCost, FlagsGoWhereKeysComeAndGo) {
  const Churned whole = Churn(Eights(), false), narrow = Churn(Eights(), true);
  EXPECT_LE(narrow.found.round_trips, 1.06);
  EXPECT_LE(narrow.absent.round_trips, 1.15);
  EXPECT_LE(narrow.write.round_trips, whole.write.round_trips * 1.01);
  EXPECT_LE(narrow.write.bytes_written, whole.write.bytes_written * 1.01);
}

TEST(NarrowCost, FlagsOfKeysOfTwentyFourBytesGoToo) {
  EXPECT_LE(Churn(TwentyFours(), true).absent.round_trips, 1.15);
}

// Gets of a tree that was loaded in bulk, in a row.
class BulkLoaded {
 public:
  BulkLoaded()
      : cluster_({.sim = {.seed = 7, .mode = sim::DeliveryMode::kWhole}}),
        client_(cluster_.NewClient()),
        tree_(*client_->CreateTree("t", {.narrow_reads = true})),
        session_(*client_->NewSession()) {
    BulkLoad(*session_, *tree_, kRecords);
    Warm(*session_, *tree_, kRecords);
  }
  Each Get(uint64_t gets, bool there, double* verbs = nullptr) {
    OperationCost cost;
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < gets; ++i) {
      const uint64_t n = random_.Uniform(kRecords);
      const auto value = session_->Get(*tree_, KeyOf(n * 2 + (there ? 0 : 1)), {.cost = &cost});
      wrong += there ? !value.ok() || *value != KeyOf(n) : !absl::IsNotFound(value.status());
    }
    EXPECT_EQ(wrong, 0u);
    if (verbs != nullptr) *verbs = cost.verbs / static_cast<double>(gets);
    return PerOperation(cost, static_cast<double>(gets));
  }

 private:
  static constexpr uint64_t kRecords = 200'000;

  SimCluster cluster_;
  const std::unique_ptr<Client> client_;
  const std::unique_ptr<Tree> tree_;
  const std::unique_ptr<Session> session_;
  Random random_{1};
};

TEST(NarrowCost, AfterBulkLoadNearlyAllKeysAreNearTheirHomes) {
  double verbs = 0;
  const Each get = BulkLoaded().Get(20'000, true, &verbs);
  std::printf("bulk loaded: found %.4f RT, %.1f bytes, %.3f verbs\n", get.round_trips,
              get.bytes_read, verbs);
  EXPECT_LE(get.round_trips, 1.01);
  // Line 0 and two lines. The near groups go round for one home of 14; line 0 is READ together with
  // what begins one line behind it, for two of them: a line for a verb.
  EXPECT_LE(get.bytes_read, 192 + 64 * 2 / 14.0 + 8);
  EXPECT_LE(verbs, 2 + 1 / 14.0 - 2 / 14.0 + 0.02);
}

// Near groups do not say that a key is absent: who asks for such keys READs whole windows soon.
TEST(NarrowCost, NearGroupsAreReadWhereThatPays) {
  BulkLoaded tree;
  EXPECT_LE(tree.Get(4'000, false).round_trips, 1.01);
  const Each first = tree.Get(1'000, true);
  EXPECT_GE(first.bytes_read, 256);
  (void)tree.Get(9'000, true);
  EXPECT_LE(tree.Get(1'000, true).bytes_read, 210);
}

// Rule N8, where leaves are as full as they ever are, and keys come and go.
TEST(NarrowCost, NewKeysAreWrittenByTheirWindows) {
  const SteadyState whole = Grow(Eights(), false), narrow = Grow(Eights(), true, true);
  EXPECT_LE(narrow.put.bytes_read, whole.put.bytes_read * 0.5);
  EXPECT_LE(narrow.put.round_trips, whole.put.round_trips * 1.1);
  EXPECT_LE(narrow.put.bytes_written, whole.put.bytes_written * 1.03);
  EXPECT_LE(narrow.found.round_trips, 1.06);
  EXPECT_LE(narrow.absent.round_trips, 1.15);
  const Churned churned = Churn(Eights(), true, true);
  EXPECT_LE(churned.found.round_trips, 1.06);
  EXPECT_LE(churned.absent.round_trips, 1.15);
}

// Chains, verbs and bytes of an update of a key that is there, of an insert, of one that is refused
// and of an erase.
TEST(NarrowCost, WritesReadTheirWindowsUnderTheLock) {
  constexpr uint64_t kRecords = 3'000;
  SimCluster cluster({.sim = {.seed = 7, .mode = sim::DeliveryMode::kWhole}});
  const auto client = cluster.NewClient(Options(true));
  const auto tree =
      *client->CreateTree("t", {.key_bytes_max = 24, .value_bytes_max = 8, .narrow_reads = true});
  const auto session = *client->NewSession();
  BulkLoad(*session, *tree, kRecords);
  for (uint64_t n = 0; n < kRecords; n += 20) ASSERT_TRUE(session->Get(*tree, KeyOf(n * 2)).ok());
  const auto cost_of = [&](const std::function<absl::Status(const OperationOptions&)>& call) {
    OperationCost cost;
    EXPECT_TRUE(call({.cost = &cost}).ok());
    return cost;
  };
  uint64_t narrow_inserts = 0, narrow_updates = 0;
  for (uint64_t n = 100; n < kRecords; n += 145) {  // each in another leaf
    const OperationCost update = cost_of([&](const OperationOptions& options) {
      return session->Update(*tree, KeyOf(n * 2), "v", options);
    });
    const OperationCost insert = cost_of([&](const OperationOptions& options) {
      return session->Insert(*tree, KeyOf(n * 2 + 1), "v", options);
    });
    // [CAS, READ line 0, READ window], which may go round, [WRITE, release].
    const auto is_narrow = [](const OperationCost& cost) {
      return cost.round_trips == 2 && cost.verbs <= 6 && cost.bytes_read == 64 + 256;
    };
    narrow_updates += is_narrow(update);
    narrow_inserts += is_narrow(insert);
    // What the window does not say costs one READ of the leaf.
    for (const OperationCost& cost : {update, insert}) {
      if (is_narrow(cost)) continue;
      EXPECT_EQ(cost.round_trips, 3u);
      EXPECT_EQ(cost.bytes_read, 64u + 256 + 1664);
    }
    OperationCost refused;
    EXPECT_TRUE(
        absl::IsAlreadyExists(session->Insert(*tree, KeyOf(n * 2), "v", {.cost = &refused})));
    EXPECT_EQ(refused.round_trips, update.round_trips);
    EXPECT_EQ(refused.bytes_read, update.bytes_read);
  }
  EXPECT_GE(narrow_updates, 17u);
  EXPECT_GE(narrow_inserts, 12u);
  // An erase has to know how full the leaf is.
  const OperationCost erase = cost_of(
      [&](const OperationOptions& options) { return session->Erase(*tree, KeyOf(2000), options); });
  EXPECT_EQ(erase.bytes_read, 1664u);
  EXPECT_EQ(erase.round_trips, 2u);
}

// Rules N8, M7: somebody died between the markers of a merge and its commit.
TEST(NarrowCost, AWriterLooksAfterAMarkedLeafFirst) {
  SimCluster cluster({.sim = {.seed = 7, .mode = sim::DeliveryMode::kWhole}});
  const auto client = cluster.NewClient(Options(true));
  const auto tree = *client->CreateTree("t", {.narrow_reads = true});
  const auto session = *client->NewSession();
  for (uint64_t n = 0; n < 200; ++n) ASSERT_TRUE(session->Put(*tree, KeyOf(n), "v").ok());
  const TreeContext& context = ImplOf(*tree).context();
  const NodeLayout& layout = context.layout;
  Reference root;
  ASSERT_EQ(context.root.Load(&root), 1);
  const Reference left = ReadHeader(cluster.At(root.address), layout).leftmost;
  std::byte* const survivor = cluster.At(left.address);
  const Reference right = RightOf(survivor);
  std::byte* const merging = cluster.At(right.address);
  std::vector<LeafEntry> entries;
  ASSERT_TRUE(ReadLeafEntries(merging, layout, &entries));
  const auto updated = [&] { return session->Update(*tree, entries.front().key, "w"); };
  ASSERT_TRUE(updated().ok());
  SetMarker(survivor, NodeState::kLive, right);
  SetMarker(merging, NodeState::kMerging, left);
  for (std::byte* const line : {survivor, merging}) SealEntryLevel(line, 0, 1, /*crc=*/false);
  ASSERT_TRUE(updated().ok());
  EXPECT_FALSE(IsMarked(survivor));
  EXPECT_FALSE(IsMarked(merging));
}

// Neither a client that is told not to, nor one on a tree that is not made for it.
TEST(NarrowCost, OffMeansWholeLeaves) {
  SimCluster cluster({.sim = {.seed = 7, .mode = sim::DeliveryMode::kWhole}});
  ClientOptions options;
  options.techniques.narrow_reads = false;
  const auto writer = cluster.NewClient(), reader = cluster.NewClient(options);
  const auto tree = *writer->CreateTree("t", {.narrow_reads = true});
  const auto session = *writer->NewSession();
  for (uint64_t i = 0; i < 500; ++i) ASSERT_TRUE(session->Put(*tree, KeyOf(i), "v").ok());
  const auto same = reader->OpenTree("t");
  ASSERT_TRUE(same.ok()) << same.status();
  const auto reading = *reader->NewSession();
  ASSERT_TRUE(reading->Get(**same, KeyOf(7)).ok());
  OperationCost whole, narrow;
  ASSERT_TRUE(reading->Get(**same, KeyOf(7), {.cost = &whole}).ok());
  ASSERT_TRUE(session->Get(*tree, KeyOf(7), {.cost = &narrow}).ok());
  EXPECT_EQ(whole.bytes_read, 1024u);
  EXPECT_LT(narrow.bytes_read, 1024u);
  // As with every other shape of a tree that is there.
  EXPECT_TRUE(absl::IsFailedPrecondition(writer->CreateTree("t", {}).status()));
}

}  // namespace
}  // namespace pando
