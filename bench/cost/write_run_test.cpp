// Runs of writes (rules U6, S4): what they cost, how leaves are divided, and that each operation is
// done once.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bench/cost/loaded_tree.h"
#include "common/base/check.h"
#include "common/base/random.h"
#include "common/base/status.h"
#include "common/wire/leaf.h"
#include "common/wire/node_image.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/index/write_run.h"

namespace pando {
namespace {

SimCluster::Options Quiet(uint64_t seed, int memory_servers = 2) {
  return {.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole},
          .memory_servers = memory_servers};
}

// Operations with their strings and results, sorted by key.
struct Batch {
  std::deque<std::string> texts;
  std::vector<WriteOperation> operations;
  std::vector<absl::Status> results;
  std::deque<std::string> answers;

  void Add(WriteKind kind, std::string key, std::string value) {
    operations.push_back(
        {kind, texts.emplace_back(std::move(key)), texts.emplace_back(std::move(value))});
  }
  // One run after the other until all have a result; returns how many runs that took.
  size_t Write(Session& session, const Tree& tree, OperationCost* cost = nullptr) {
    std::stable_sort(operations.begin(), operations.end(),
                     [](const auto& a, const auto& b) { return a.key < b.key; });
    results.assign(operations.size(), absl::UnknownError("not executed"));
    answers.assign(operations.size(), "");
    std::vector<RunWrite> writes;
    for (size_t i = 0; i < operations.size(); ++i) {
      writes.push_back({&operations[i], &results[i], &answers[i]});
    }
    size_t runs = 0;
    for (size_t next = 0; next < writes.size(); ++runs) {
      const absl::Status done =
          ImplOf(session).Perform(tree, {.cost = cost}, [&](OperationContext& context) {
            next += WriteRun(context, ImplOf(tree).context(), absl::MakeSpan(writes).subspan(next));
            return absl::OkStatus();
          });
      EXPECT_TRUE(done.ok()) << done;
    }
    return runs;
  }
};

void ExpectTree(Session& session, const Tree& tree,
                const std::map<std::string, std::string>& model) {
  std::vector<KeyValue> rows;
  ASSERT_TRUE(session.Scan(tree, "", model.size() + 10, &rows).ok());
  ASSERT_EQ(rows.size(), model.size());
  auto at = model.begin();
  for (const KeyValue& row : rows) {
    ASSERT_EQ(row.key, at->first);
    ASSERT_EQ(row.value, at->second);
    ++at;
  }
  const auto report = session.Check(tree, {.quiet_tree = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->problems.empty()) << report->problems.front();
}

// Two chains a leaf: the lock with the READ, the WRITEs with the release.
TEST(WriteRun, UpdatesAreTwoChainsALeaf) {
  constexpr uint64_t kRecords = 20'000;
  const LoadedTree loaded(Quiet(1), {}, kRecords);
  Batch batch;
  for (uint64_t n = 0; n < 3'000; ++n) batch.Add(WriteKind::kUpdate, KeyOf(2 * n), KeyOf(n + 7));
  OperationCost cost;
  const size_t runs = batch.Write(*loaded.session, *loaded.tree, &cost);
  for (const absl::Status& result : batch.results) ASSERT_TRUE(result.ok()) << result;
  std::printf("%zu keys, %zu leaves, %.2f round trips a leaf\n", batch.results.size(), runs,
              static_cast<double>(cost.round_trips) / static_cast<double>(runs));
  EXPECT_LT(runs, 3'000u / 20);
  EXPECT_EQ(cost.round_trips, 2 * runs);
}

// Sorted keys from all over the tree: most are by themselves at their leaf.
TEST(WriteRun, SortedKeysOfALargeTree) {
  constexpr uint64_t kRecords = 100'000, kKeys = 3'000;
  const LoadedTree loaded(Quiet(2), {}, kRecords);
  Random random(3);
  std::set<uint64_t> numbers;
  while (numbers.size() < kKeys) numbers.insert(random.Uniform(2 * kRecords));
  Batch batch;
  for (const uint64_t n : numbers) batch.Add(WriteKind::kPut, KeyOf(n), KeyOf(n));
  OperationCost cost;
  const size_t runs = batch.Write(*loaded.session, *loaded.tree, &cost);
  for (const absl::Status& result : batch.results) ASSERT_TRUE(result.ok()) << result;
  const double each = static_cast<double>(cost.round_trips) / static_cast<double>(runs);
  std::printf("%lu keys, %zu leaves, %.3f round trips a leaf, %lu splits\n", kKeys, runs, each,
              loaded.client->Stats().tree.splits);
  EXPECT_LE(each, 2.1);
}

// Beyond the end: several new leaves at once, nearly full, and one write to their parent.
TEST(WriteRun, AscendingKeysAreATenthOfAChainEach) {
  constexpr uint64_t kKeys = 20'000, kBatch = 200;
  SimCluster cluster(Quiet(4));
  auto client = cluster.NewClient();
  auto tree = *client->CreateTree("t", {});
  auto session = *client->NewSession();
  std::map<std::string, std::string> model;
  OperationCost cost;
  size_t runs = 0;
  for (uint64_t first = 0; first < kKeys; first += kBatch) {
    Batch batch;
    for (uint64_t n = first; n < first + kBatch; ++n) {
      batch.Add(WriteKind::kInsert, KeyOf(n), KeyOf(n));
      model[KeyOf(n)] = KeyOf(n);
    }
    runs += batch.Write(*session, *tree, &cost);
    for (const absl::Status& result : batch.results) ASSERT_TRUE(result.ok()) << result;
  }
  const ClientStats stats = client->Stats();
  std::printf("%zu runs, %lu splits, %.3f round trips a key, %.1f keys a leaf\n", runs,
              stats.tree.splits, static_cast<double>(cost.round_trips) / kKeys,
              static_cast<double>(kKeys) / static_cast<double>(stats.tree.splits));
  EXPECT_LE(static_cast<double>(cost.round_trips) / kKeys, 0.1);
  EXPECT_GE(kKeys / stats.tree.splits, 36u) << "leaves of 42 slots are nearly full";
  ExpectTree(*session, *tree, model);
  EXPECT_EQ(session->Check(*tree, {})->problems.size(), 0u);
}

// Many new keys between two that were there.
TEST(WriteRun, AGapIsFilledEvenlyBySeveralSplitsAtOnce) {
  const LoadedTree loaded(Quiet(5), {}, 1'000);
  Batch batch;
  std::map<std::string, std::string> model;
  for (uint64_t n = 0; n < 1'000; ++n) model[KeyOf(2 * n)] = KeyOf(n);
  for (int i = 100; i < 300; ++i) {
    const std::string key = KeyOf(500).substr(0, 5) + std::to_string(i);
    batch.Add(WriteKind::kInsert, key, "new");
    model[key] = "new";
  }
  const uint64_t splits_before = loaded.client->Stats().tree.splits;
  OperationCost cost;
  EXPECT_EQ(batch.Write(*loaded.session, *loaded.tree, &cost), 1u);
  const uint64_t splits = loaded.client->Stats().tree.splits - splits_before;
  EXPECT_GE(splits, 5u);
  EXPECT_LE(splits, 8u);
  // Lock and READ, WRITE; lock of the parent, READs of the children, WRITE.
  EXPECT_LE(cost.round_trips, 6u);
  ExpectTree(*loaded.session, *loaded.tree, model);
}

// Every kind of operation, several to one key, against a map; spare nodes on one and three servers.
TEST(WriteRun, RandomRunsAreLikeAMap) {
  static const UpsertCallback append = [](std::string_view, std::optional<std::string_view> present,
                                          std::string_view operand) -> absl::StatusOr<std::string> {
    return std::string(present.value_or("")).substr(0, 4) + std::string(operand);
  };
  for (const int memory_servers : {1, 3}) {
    SimCluster cluster(Quiet(6, memory_servers));
    auto client = cluster.NewClient();
    auto tree = *client->CreateTree("t", {});
    auto session = *client->NewSession();
    std::map<std::string, std::string> model;
    Random random(static_cast<uint64_t>(memory_servers));
    for (int round = 0; round < 300; ++round) {
      Batch batch;
      const bool clustered = random.Chance(0.5), grows = round % 100 < 60;
      const uint64_t around = random.Uniform(5'000);
      for (uint64_t n = 1 + random.Uniform(random.Chance(0.1) ? 600 : 60); n > 0; --n) {
        const uint64_t key = clustered ? around + random.Uniform(100) : random.Uniform(5'000);
        const auto kind =
            grows || random.Chance(0.3) ? WriteKind(random.Uniform(3)) : WriteKind::kErase;
        batch.Add(random.Chance(0.1) ? WriteKind::kUpsert : kind, KeyOf(key),
                  std::to_string(random.Uniform(10'000)));
        batch.operations.back().function = &append;
      }
      batch.Write(*session, *tree);
      for (size_t i = 0; i < batch.operations.size(); ++i) {
        const WriteOperation& o = batch.operations[i];
        const std::string key(o.key);
        const absl::Status& result = batch.results[i];
        const bool present = model.contains(key);
        if (o.kind == WriteKind::kInsert && present) {
          ASSERT_TRUE(absl::IsAlreadyExists(result)) << result;
        } else if ((o.kind == WriteKind::kUpdate || o.kind == WriteKind::kErase) && !present) {
          ASSERT_TRUE(absl::IsNotFound(result)) << result;
        } else {
          ASSERT_TRUE(result.ok()) << result;
          if (o.kind == WriteKind::kErase) {
            model.erase(key);
          } else if (o.kind == WriteKind::kUpsert) {
            model[key] = model[key].substr(0, 4) + std::string(o.value);
            ASSERT_EQ(batch.answers[i], model[key]);
          } else {
            model[key] = o.value;
          }
        }
      }
    }
    EXPECT_GT(client->Stats().tree.splits, 100u);
    ExpectTree(*session, *tree, model);
  }
}

// Several clients put many keys of one stretch at once: parents are split more than once in a call,
// a left half after its right one was made, and by then others have split the level above.
TEST(WriteRun, SeparatorsOfParentsThatSplitTwiceComeInAnyOrder) {
  constexpr int kClients = 4, kCalls = 12;
  constexpr uint64_t kKeysACall = 400;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SimCluster cluster(Quiet(100 + seed));
    std::vector<std::unique_ptr<Client>> clients;
    std::vector<std::unique_ptr<Tree>> trees;
    std::vector<std::unique_ptr<Session>> sessions;
    for (int i = 0; i < kClients; ++i) {
      clients.push_back(cluster.NewClient());
      trees.push_back(*clients.back()->CreateTree("t", {.key_bytes_max = 60, .node_bytes = 1024}));
      sessions.push_back(*clients.back()->NewSession());
    }
    std::map<std::string, std::string> model;
    Random random(seed);
    for (int call = 0; call < kCalls; ++call) {
      std::vector<std::vector<KeyValue>> rows(kClients);
      int left = kClients;
      const uint64_t base = random.Uniform(20'000);
      for (size_t i = 0; i < kClients; ++i) {
        for (uint64_t n = 0; n < kKeysACall; ++n) {
          const std::string key =
              std::string(44, 'p') + KeyOf(base + random.Uniform(3 * kKeysACall));
          rows[i].push_back({key, "v"});
          model[key] = "v";
        }
        sessions[i]->Spawn([&, i] {
          for (const absl::Status& put : sessions[i]->MultiPut(*trees[i], rows[i])) {
            EXPECT_TRUE(put.ok()) << put;
          }
          --left;
        });
        ImplOf(*sessions[i]).scheduler().endpoint().Wake();
      }
      sessions[0]->Run();
      for (int ms = 0; left > 0 && ms < 20'000; ++ms) {
        cluster.world().RunUntil(cluster.world().clock().NowNs() + kMillisecondNs);
      }
      ASSERT_EQ(left, 0);
    }
    ExpectTree(*sessions[0], *trees[0], model);
  }
}

// The first leaf that has more keys than it counts as full with (rules N4, N8): those. Empty: none.
std::vector<LeafEntry> LeafBeyondFull(SimCluster* cluster, const TreeContext& tree) {
  Reference node;
  PANDO_CHECK_GT(tree.root.Load(&node), 0);
  NodeHeader header = ReadHeader(cluster->At(node.address), tree.layout);
  while (header.level > 0) {
    node = header.leftmost;
    header = ReadHeader(cluster->At(node.address), tree.layout);
  }
  for (; !node.is_null(); node = ReadHeader(cluster->At(node.address), tree.layout).right) {
    std::vector<LeafEntry> entries;
    PANDO_CHECK(ReadLeafEntries(cluster->At(node.address), tree.layout, &entries));
    if (entries.size() <= tree.layout.entries_max()) continue;
    std::ranges::sort(entries, {}, &LeafEntry::key);
    return entries;
  }
  return {};
}

// A leaf beyond full, an update, a new key, and no spare node at hand: the update is done, and the
// key splits the leaf once there is one.
TEST(WriteRun, WhatALeafBeyondFullHasIsWrittenWithoutASpareNode) {
  SimCluster cluster(Quiet(8));
  ClientOptions options;
  options.techniques.narrow_writes = true;
  const auto client = cluster.NewClient(options);
  const auto tree = *client->CreateTree("t", {.key_bytes_max = 24, .narrow_reads = true});
  const auto session = *client->NewSession();
  TreeContext& context = ImplOf(*tree).context();
  std::map<std::string, std::string> model;
  Random random(9);
  std::vector<LeafEntry> leaf;
  while (leaf.empty()) {
    ASSERT_LT(model.size(), 20'000u);
    for (int i = 0; i < 50; ++i) {
      const std::string key = KeyOf(random.Next());
      ASSERT_TRUE(session->Put(*tree, key, "old").ok());
      model[key] = "old";
    }
    leaf = LeafBeyondFull(&cluster, context);
  }
  NodeAllocator& allocator = context.environment.allocator;
  std::vector<SpareNode> spares;
  while (std::optional<SpareNode> spare = allocator.TryTake(context.id(), 1)) {
    spares.push_back(*std::move(spare));
  }
  Batch batch;
  batch.Add(WriteKind::kUpdate, leaf.front().key, "new");
  batch.Add(WriteKind::kPut, leaf.front().key + "a", "new");
  for (const WriteOperation& o : batch.operations) model[std::string(o.key)] = o.value;
  const uint64_t splits = client->Stats().tree.splits;
  EXPECT_EQ(batch.Write(*session, *tree), 2u);
  EXPECT_EQ(client->Stats().tree.splits, splits + 1);
  for (const absl::Status& result : batch.results) EXPECT_TRUE(result.ok()) << result;
  ExpectTree(*session, *tree, model);
  for (SpareNode& spare : spares) allocator.PutBack(context.id(), std::move(spare));
}

// Where the neighbours' leaves end, by what is cached.
TEST(WriteRun, TheNextBorderIsALeafsFence) {
  const LoadedTree loaded(Quiet(7), {}, 10'000);
  std::string key = KeyOf(0);
  size_t leaves = 0;
  while (true) {
    std::optional<std::string> border;
    const absl::Status done =
        ImplOf(*loaded.session).Perform(*loaded.tree, {}, [&](OperationContext& context) {
          border = NextBorder(context, ImplOf(*loaded.tree).context(), key);
          return absl::OkStatus();
        });
    ASSERT_TRUE(done.ok());
    ASSERT_TRUE(border.has_value());
    ++leaves;
    if (border->empty()) break;
    ASSERT_LT(key, *border);
    key = *border;
  }
  const auto report = loaded.session->Check(*loaded.tree, {});
  EXPECT_EQ(leaves, report->nodes_per_level.front());
}

}  // namespace
}  // namespace pando
