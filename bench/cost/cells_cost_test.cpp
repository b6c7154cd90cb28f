// Values in cells (rules K): what operations cost in round trips and bytes, and what the memory
// holds after churn; counted on the simulated fabric.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/cost/large_tree.h"
#include "common/base/random.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/value/cell_store.h"

namespace pando {
namespace {

TEST(CellsCost, AGetIsTwoRoundTripsAndAWriteOneMoreThanOthers) {
  constexpr uint64_t kRecords = 20'000, kEach = 2'000;
  LargeTree large(kRecords);
  Random random(1);
  OperationCost get, update, insert, erase, replace;
  for (uint64_t i = 0; i < kEach; ++i) {
    const uint64_t n = random.Uniform(kRecords);
    const auto value = large.session->Get(*large.tree, KeyOf(n * 2), {.cost = &get});
    ASSERT_TRUE(value.ok()) << value.status();
    ASSERT_EQ(*value, LargeValue(n));
  }
  for (uint64_t i = 0; i < kEach; ++i) {
    const uint64_t n = random.Uniform(kRecords);
    ASSERT_TRUE(
        large.session->Update(*large.tree, KeyOf(n * 2), LargeValue(n), {.cost = &update}).ok());
    ASSERT_TRUE(
        large.session
            ->Replace(*large.tree, KeyOf(n * 2), LargeValue(n), LargeValue(n), {.cost = &replace})
            .ok());
  }
  for (uint64_t i = 0; i < kEach; ++i) {
    const std::string key = KeyOf(2 * i * (kRecords / kEach) + 1);
    ASSERT_TRUE(large.session->Insert(*large.tree, key, LargeValue(i), {.cost = &insert}).ok());
    ASSERT_TRUE(large.session->Erase(*large.tree, key, {.cost = &erase}).ok());
  }
  EXPECT_LE(get.round_trips, kEach * 2.02);
  // The leaf, and the lines of the cell that the value needs.
  EXPECT_LE(get.bytes_read, kEach * (large.tree->node_bytes() + 1088) * 1.02);
  EXPECT_LE(update.round_trips, kEach * 3.05);
  EXPECT_LE(insert.round_trips, kEach * 3.2);
  EXPECT_LE(erase.round_trips, kEach * 2.2);
  EXPECT_LE(replace.round_trips, kEach * 5.05);
}

// Rule K5: slot and cell in one round trip, if any session of this client has met the value before.
TEST(CellsCost, AGetOfAValueWhosePlaceIsKnownIsOneRoundTrip) {
  constexpr uint64_t kRecords = 2'000;
  LargeTree large(kRecords);
  const auto get_all = [&](Session& session, OperationCost* cost) {
    for (uint64_t n = 0; n < kRecords; ++n) {
      const auto value = session.Get(*large.tree, KeyOf(n * 2), {.cost = cost});
      ASSERT_TRUE(value.ok()) << value.status();
      ASSERT_EQ(*value, LargeValue(n));
    }
  };
  OperationCost first, again, of_others, many;
  ASSERT_NO_FATAL_FAILURE(get_all(*large.session, &first));
  ASSERT_NO_FATAL_FAILURE(get_all(*large.session, &again));
  const auto other = *large.client->NewSession();
  ASSERT_NO_FATAL_FAILURE(get_all(*other, &of_others));
  std::vector<std::string> keys;
  for (uint64_t n = 0; n < kRecords; ++n) keys.push_back(KeyOf(n * 2));
  const auto values = large.session->MultiGet(*large.tree, keys, {.cost = &many});
  for (uint64_t n = 0; n < kRecords; ++n) ASSERT_EQ(*values[n], LargeValue(n));
  constexpr uint64_t kMetBefore = kRecords / 100;  // by LargeTree()
  EXPECT_GE(first.round_trips, kRecords * 2 - kMetBefore);
  for (const OperationCost* cost : {&again, &of_others, &many}) {
    EXPECT_EQ(cost->round_trips, kRecords);
    EXPECT_EQ(cost->verbs, kRecords * 2);
    EXPECT_EQ(cost->bytes_read, kRecords * (large.tree->node_bytes() + 1088));
  }
  const TreeStats stats = large.client->Stats().tree;
  EXPECT_EQ(stats.place_hits, kRecords * 3 + kMetBefore);
  EXPECT_EQ(stats.place_bytes, kRecords * 128 / 5);
}

// The place of a value that this client has written is known, too; what others have done since
// costs the round trip that is saved else, once.
TEST(CellsCost, AGetOfAValueThatHasChangedIsTwoRoundTripsOnce) {
  constexpr uint64_t kRecords = 500;
  LargeTree large(0);
  const auto other_client = large.cluster.NewClient();
  const auto other_tree = *other_client->OpenTree("t");
  const auto other = *other_client->NewSession();
  for (uint64_t n = 0; n < kRecords; ++n) {
    ASSERT_TRUE(large.session->Insert(*large.tree, KeyOf(n), LargeValue(n)).ok());
  }
  const auto get_all = [&](uint64_t added) {
    OperationCost cost;
    for (uint64_t n = 0; n < kRecords; ++n) {
      EXPECT_EQ(*large.session->Get(*large.tree, KeyOf(n), {.cost = &cost}), LargeValue(n + added));
    }
    return cost.round_trips;
  };
  EXPECT_LE(get_all(0), kRecords * 1.05);
  for (uint64_t n = 0; n < kRecords; ++n) {
    ASSERT_TRUE(other->Put(*other_tree, KeyOf(n), LargeValue(n + 1)).ok());
  }
  EXPECT_LE(get_all(1), kRecords * 2.05);
  EXPECT_EQ(get_all(1), kRecords);
  ASSERT_TRUE(large.session->Put(*large.tree, KeyOf(7), LargeValue(8)).ok());
  EXPECT_EQ(get_all(1), kRecords);
  // Erased, short, or there again: each is met once, and then known.
  const auto get = [&](uint64_t n) {
    OperationCost cost;
    const auto value = large.session->Get(*large.tree, KeyOf(n), {.cost = &cost});
    return std::pair(value.ok() ? *value : std::string(value.status().message()), cost.verbs);
  };
  ASSERT_TRUE(other->Erase(*other_tree, KeyOf(1)).ok());
  ASSERT_TRUE(other->Put(*other_tree, KeyOf(2), "short").ok());
  EXPECT_EQ(get(1).second, 2u);
  EXPECT_EQ(get(1).second, 1u);
  EXPECT_EQ(get(2), std::pair(std::string("short"), 2u));
  EXPECT_EQ(get(2), std::pair(std::string("short"), 1u));
  ASSERT_TRUE(other->Put(*other_tree, KeyOf(1), LargeValue(3)).ok());
  EXPECT_EQ(get(1), std::pair(LargeValue(3), 2u));
}

TEST(CellsCost, PlacesOfValuesTakeWhatTheyMayTake) {
  constexpr uint64_t kRecords = 1'000;
  LargeTree large(kRecords);
  constexpr size_t kBytesMax = 4096;
  for (const size_t bytes_max : {kBytesMax, size_t{0}}) {
    const auto client = large.cluster.NewClient({.value_places_bytes = bytes_max});
    const auto tree = *client->OpenTree("t");
    const auto session = *client->NewSession();
    for (uint64_t turn = 0; turn < 2; ++turn) {
      for (uint64_t n = 0; n < kRecords; ++n) {
        ASSERT_EQ(*session->Get(*tree, KeyOf(n * 2)), LargeValue(n));
      }
    }
    const TreeStats stats = client->Stats().tree;
    EXPECT_LE(stats.place_bytes, bytes_max);
    EXPECT_GE(stats.place_bytes, bytes_max * 0.9);
    EXPECT_EQ(stats.place_hits + stats.place_misses, kRecords * 2);
    EXPECT_LE(stats.place_hits, bytes_max / 20);
  }
}

// With windows, too: line 0, the window and the cell.
TEST(CellsCost, ANarrowGetOfAValueWhosePlaceIsKnownIsOneRoundTrip) {
  constexpr uint64_t kRecords = 1'000;
  LargeTree large(kRecords, {.value_bytes_max = 1000, .narrow_reads = true});
  OperationCost cost;
  for (uint64_t turn = 0; turn < 2; ++turn) {
    cost = {};
    for (uint64_t n = 0; n < kRecords; ++n) {
      ASSERT_EQ(*large.session->Get(*large.tree, KeyOf(n * 2), {.cost = &cost}), LargeValue(n));
    }
  }
  EXPECT_LE(cost.round_trips, kRecords * 1.05);
  EXPECT_LE(cost.bytes_read, kRecords * (large.tree->node_bytes() / 2 + 1088));
}

// Somebody else replaces all values between two gets: what is remembered of them is wrong.
TEST(CellsCost, PlacesThatAreMostlyWrongCostLittle) {
  constexpr uint64_t kRecords = 1'000;
  LargeTree large(kRecords);
  const auto other = large.cluster.NewClient({.value_places_bytes = 0});
  const auto tree = *other->OpenTree("t");
  const auto session = *other->NewSession();
  const auto read_all = [](Session& reader, const Tree& of, uint64_t round) {
    OperationCost cost;
    for (uint64_t n = 0; n < kRecords; ++n) {
      const auto value = reader.Get(of, KeyOf(n * 2), {.cost = &cost});
      EXPECT_EQ(value.value_or(""), LargeValue(n + round)) << value.status();
    }
    return cost;
  };
  // In the first one it meets the values, in the second one it learns.
  OperationCost cost;
  for (uint64_t round = 1; round <= 3; ++round) {
    for (uint64_t n = 0; n < kRecords; ++n) {
      ASSERT_TRUE(session->Put(*tree, KeyOf(n * 2), LargeValue(n + round)).ok());
    }
    cost = read_all(*large.session, *large.tree, round);
    EXPECT_LE(cost.round_trips, kRecords * 2.1);
  }
  const OperationCost without = read_all(*session, *tree, 3);
  EXPECT_LE(static_cast<double>(cost.bytes_read), 1.1 * static_cast<double>(without.bytes_read));
  read_all(*large.session, *large.tree, 3);  // nobody changes them any more
  EXPECT_LE(read_all(*large.session, *large.tree, 3).round_trips, kRecords * 1.05);
}

TEST(CellsCost, WritesOfOneLeafWriteTheirCellsTogether) {
  LargeTree large(10'000);
  std::vector<Write> writes;
  for (uint64_t n = 0; n < 10'000; ++n)
    writes.push_back({.kind = Write::Kind::kPut, .key = KeyOf(n * 2), .value = LargeValue(n + 1)});
  OperationCost cost;
  for (const WriteResult& result : large.session->WriteMany(*large.tree, writes, {.cost = &cost})) {
    ASSERT_TRUE(result.status.ok()) << result.status;
  }
  const auto report = large.session->Check(*large.tree);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->cells, 10'000u);
  // A leaf: its cells, the lock and the image, the lines that have changed.
  EXPECT_LE(cost.round_trips, report->nodes_per_level[0] * 4.2);
}

TEST(CellsCost, MemoryAfterChurnIsLittleMoreThanWhatItHolds) {
  constexpr uint64_t kRecords = 20'000;
  LargeTree large(kRecords, {.key_bytes_max = 24, .value_bytes_max = 1000},
                  {.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole},
                   .main_bytes = kMainBytes,
                   .chunk_bytes = 64 << 10});
  Random random(1);
  for (uint64_t i = 0; i < 4 * kRecords; ++i) {
    const uint64_t n = random.Uniform(kRecords);
    ASSERT_TRUE(large.session->Put(*large.tree, KeyOf(n * 2), LargeValue(n)).ok());
    // All of the data in a second, nearly: far more than rests at a time.
    if (i % 20 == 0) {
      large.session->SleepUntil(large.cluster.world().clock().NowNs() + kMillisecondNs);
    }
  }
  EXPECT_LE(static_cast<double>(large.UsedBytes()), 1.3 * kRecords * (8 + kValueBytes));
}

TEST(CellsCost, EveryLengthComesBackAsItWas) {
  LargeTree large(0);
  std::map<std::string, std::string> model;
  Random random(2);
  for (uint64_t i = 0; i < 400; ++i) {
    const uint64_t bits = random.Uniform(17);
    const auto bytes = static_cast<uint32_t>(random.Uniform((uint64_t{1} << bits) + 1));
    const std::string key = KeyOf(random.Uniform(100)), value = LargeValue(i, bytes);
    ASSERT_TRUE(large.session->Put(*large.tree, key, value).ok());
    model[key] = value;
  }
  EXPECT_TRUE(
      absl::IsInvalidArgument(large.session->Put(*large.tree, "x", std::string(65'537, 'x'))));
  std::vector<KeyValue> rows;
  ASSERT_TRUE(large.session->Scan(*large.tree, {}, &rows).ok());
  ASSERT_EQ(rows.size(), model.size());
  for (const KeyValue& row : rows) ASSERT_EQ(row.value, model[row.key]);
  ASSERT_TRUE(large.session->Scan(*large.tree, {.reverse = true, .limit = 7}, &rows).ok());
  ASSERT_EQ(rows.size(), 7u);
  auto expected = model.rbegin();
  for (const KeyValue& row : rows)
    ASSERT_EQ(row, (KeyValue{expected->first, (expected++)->second}));
}

TEST(CellsCost, UpsertsAndConditionsSeeTheValue) {
  LargeTree large(0);
  Session& session = *large.session;
  const std::string first = LargeValue(1), second = LargeValue(2, 3000);
  ASSERT_TRUE(session.Insert(*large.tree, "k", first).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(session.Insert(*large.tree, "k", second)));
  std::string actual;
  EXPECT_TRUE(IsConditionFailed(session.Replace(*large.tree, "k", second, first, {}, &actual)));
  EXPECT_EQ(actual, first);
  EXPECT_TRUE(session.Replace(*large.tree, "k", first, second).ok());
  const auto appended = session.Upsert(*large.tree, "k", UpsertFunction::kAppend, "!");
  ASSERT_TRUE(appended.ok()) << appended.status();
  EXPECT_EQ(*appended, second + "!");
  EXPECT_EQ(*session.Get(*large.tree, "k"), second + "!");
  EXPECT_TRUE(IsConditionFailed(session.EraseIf(*large.tree, "k", second)));
  EXPECT_TRUE(session.EraseIf(*large.tree, "k", second + "!").ok());
  EXPECT_TRUE(absl::IsNotFound(session.Get(*large.tree, "k").status()));
  SweepResult swept;
  ASSERT_TRUE(session.Sweep(*large.tree, &swept).ok());
  EXPECT_EQ(swept.freed, 0u);
  const auto report = session.Check(*large.tree, {.quiet_tree = true});
  ASSERT_TRUE(report.ok() && report->ok());
  EXPECT_EQ(report->cells, 0u);
  EXPECT_EQ(report->cells_unused, 0u);
}

TEST(CellsCost, ADamagedCellIsDataLossAndCheckSaysWhere) {
  LargeTree large(100);
  uint64_t damaged = 0;
  const std::string bs(600, 'b');  // of the values alone
  for (int server = 1; server <= 2; ++server) {
    std::byte* const main = large.cluster.At(RemoteAddress(static_cast<ServerId>(server), 0));
    for (uint64_t at = 0; at + bs.size() < kMainBytes && damaged == 0; at += 64) {
      if (std::memcmp(main + at, bs.data(), bs.size()) != 0) continue;
      main[at + 100] = std::byte{'x'};
      ++damaged;
    }
  }
  ASSERT_EQ(damaged, 1u);
  uint64_t lost = 0;
  for (uint64_t n = 0; n < 100; ++n) {
    const auto value = large.session->Get(*large.tree, KeyOf(n * 2));
    if (absl::IsDataLoss(value.status())) ++lost;
  }
  EXPECT_EQ(lost, 1u);
  const auto report = large.session->Check(*large.tree);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->problems.size(), 1u);
}

TEST(CellsCost, ErasesGoOnWhereThereIsNoMemoryForCells) {
  LargeTree large(0, {.value_bytes_max = 65'536},
                  {.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole},
                   .main_bytes = 4 << 20,
                   .chunk_bytes = 64 << 10});
  uint64_t keys = 0;
  absl::Status put;
  for (; put.ok() && keys < 1000; ++keys) {
    put = large.session->Put(*large.tree, KeyOf(keys), LargeValue(keys, 16'000));
  }
  ASSERT_TRUE(absl::IsResourceExhausted(put)) << put << " after " << keys;
  ASSERT_TRUE(absl::IsResourceExhausted(
      large.session->Update(*large.tree, KeyOf(0), LargeValue(0, 16'000))));
  EXPECT_EQ(*large.session->Get(*large.tree, KeyOf(0)), LargeValue(0, 16'000));
  std::vector<Write> writes;
  for (uint64_t n = 0; n < 10; ++n) {
    writes.push_back({.kind = Write::Kind::kErase, .key = KeyOf(n)});
    writes.push_back({.key = KeyOf(5000 + n), .value = LargeValue(n, 60'000)});
  }
  const std::vector<WriteResult> results =
      large.session->WriteMany(*large.tree, writes, {.timeout_ms = 20'000});
  for (size_t i = 0; i < results.size(); i += 2) EXPECT_TRUE(results[i].status.ok()) << i;
  const auto report = large.session->Check(*large.tree, {.quiet_tree = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ok());
}

// Rule K5: the slots are on a server that lives, and refer to nothing on the dead one any more; but
// this client remembers that they did.
TEST(CellsCost, PlacesOnADeadServerCostOneWait) {
  constexpr uint64_t kKeys = 20;
  LargeTree large(0);
  for (uint64_t n = 0; n <= kKeys; ++n) {
    ASSERT_TRUE(large.session->Put(*large.tree, KeyOf(n), LargeValue(n)).ok());
  }
  const auto other = large.cluster.NewClient();
  const auto tree = *other->OpenTree("t");
  const auto session = *other->NewSession();
  for (uint64_t n = 0; n < kKeys; ++n) ASSERT_TRUE(session->Put(*tree, KeyOf(n), "short").ok());
  large.cluster.world().KillServer(2);
  const auto ns_of_get = [&](uint64_t n) {
    const int64_t before_ns = large.cluster.world().clock().NowNs();
    const auto value = large.session->Get(*large.tree, KeyOf(n));
    EXPECT_EQ(value.value_or(""), "short") << value.status();
    return large.cluster.world().clock().NowNs() - before_ns;
  };
  EXPECT_LT(ns_of_get(0), 3 * kSecondNs);
  for (uint64_t n = 0; n < kKeys; ++n) EXPECT_LT(ns_of_get(n), kMillisecondNs) << n;
  EXPECT_FALSE(large.session->Get(*large.tree, KeyOf(kKeys)).ok()) << "the cells are elsewhere";
}

// Spare cells for values of so many bytes, at least that many on each of two servers.
struct SpareCells {
  SpareCells(LargeTree* large, uint32_t bytes, size_t each)
      : tree(&ImplOf(*large->tree).context()),
        pool(tree->id(), static_cast<uint16_t>(CellLines(8, bytes))),
        value(bytes, 'v') {
    for (int refills = 0; here.size() < each || there.size() < each; ++refills) {
      PANDO_CHECK(refills < 10);
      const auto refill = [&](OperationContext& operation) {
        return tree->RefillCells(operation, pool.cell_lines);
      };
      PANDO_CHECK_OK(ImplOf(*large->session).Perform(*large->tree, {}, refill));
      while (std::optional<SpareNode> spare = tree->environment.allocator.TryTake(pool, 0)) {
        (spare->address.server() == 2 ? there : here).push_back(*std::move(spare));
      }
    }
  }
  // The next to be taken.
  void PutBackLast(std::vector<SpareNode>* spares) {
    tree->environment.allocator.PutBack(pool, std::move(spares->back()));
    spares->pop_back();
  }
  // Of the keys 1, 2, ...
  absl::Status Write(LargeTree* large, uint64_t count) {
    std::vector<std::string> keys;
    for (uint64_t n = 1; n <= count; ++n) keys.push_back(KeyOf(n));
    return ImplOf(*large->session).Perform(*large->tree, {}, [&](OperationContext& operation) {
      std::vector<CellStore::NewValue> values;
      for (const std::string& key : keys) values.push_back({.key = key, .value = value});
      return CellStore(tree).WriteAll(operation, absl::MakeSpan(values));
    });
  }

  TreeContext* const tree;
  const NodePoolId pool;
  const std::string value;
  std::vector<SpareNode> here, there;
};

// Rule R6: only cells of the server to which something was posted may be written yet.
TEST(CellsCost, CellsOnAServerThatWasNotWrittenToAreSpareAgain) {
  LargeTree large(0);
  ASSERT_TRUE(large.session->Put(*large.tree, KeyOf(0), "short").ok());
  // A chain for itself, nearly: the second one on the server is behind a chain that was posted.
  SpareCells cells(&large, 60'000, 2);
  const RemoteAddress spare = cells.here.back().address;
  cells.PutBackLast(&cells.here);  // comes last
  for (int i = 0; i < 2; ++i) cells.PutBackLast(&cells.there);
  large.cluster.world().KillServer(2);
  const absl::Status written = cells.Write(&large, 3);
  EXPECT_TRUE(absl::IsUnavailable(written)) << written;
  const auto next = cells.tree->environment.allocator.TryTake(cells.pool, 0);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->address, spare);
}

// Rule R6: nothing is in flight to the other server, and nothing will refer to what is there.
TEST(CellsCost, CellsThatAreWrittenWhereAnotherServerFailsAreFreed) {
  constexpr uint64_t kEach = 3;
  // In one chain to each server; in several, of which the last one is not posted where the first
  // one fails.
  for (const uint32_t bytes : {2'000, 30'000}) {
    LargeTree large(0);
    ASSERT_TRUE(large.session->Put(*large.tree, KeyOf(0), "short").ok());
    SpareCells cells(&large, bytes, kEach);
    for (uint64_t i = 0; i < kEach; ++i) {
      cells.PutBackLast(&cells.there);
      cells.PutBackLast(&cells.here);
    }
    large.cluster.world().KillServer(2);
    const absl::Status written = cells.Write(&large, 2 * kEach);
    EXPECT_TRUE(absl::IsUnavailable(written)) << written;
    for (std::vector<SpareNode>* spares : {&cells.here, &cells.there}) {
      while (!spares->empty()) cells.PutBackLast(spares);
    }
    EXPECT_TRUE(large.client->DropTree("t").ok());
    large.tree.reset();
    EXPECT_EQ(large.cluster.Counter("nodes_freed"), kEach) << bytes;
    EXPECT_EQ(large.client->Servers()[0].used_bytes, 0u) << bytes << ", and in doubt";
  }
}

}  // namespace
}  // namespace pando
