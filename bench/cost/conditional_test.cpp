// Conditional writes and upserts: what they cost, and that they are done once.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/cost/loaded_tree.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr uint64_t kRecords = 10'000;

SimCluster::Options Quiet(uint64_t seed) {
  return {.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole}};
}

TEST(Conditional, UncontendedOnesAreTwoRoundTrips) {
  const LoadedTree loaded(Quiet(1), {}, kRecords);
  Session& session = *loaded.session;
  OperationCost cost;
  const OperationOptions options{.cost = &cost};
  uint64_t operations = 0;
  std::string value;
  for (uint64_t i = 0; i < 1000; ++i) {
    const std::string key = KeyOf(i * 2);
    EXPECT_TRUE(session.Replace(*loaded.tree, key, KeyOf(i), Int64Value(1), options).ok());
    EXPECT_TRUE(
        session.UpsertTo(*loaded.tree, key, UpsertFunction::kAdd, Int64Value(41), &value, options)
            .ok());
    EXPECT_EQ(ParseInt64Value(value), 42);
    // Refused, and one that changes nothing: the lock is taken and given back all the same.
    EXPECT_TRUE(
        IsConditionFailed(session.Replace(*loaded.tree, key, KeyOf(i), "never", options, &value)));
    EXPECT_EQ(ParseInt64Value(value), 42);
    EXPECT_TRUE(
        session.Upsert(*loaded.tree, key, UpsertFunction::kMax, Int64Value(7), options).ok());
    operations += 4;
  }
  EXPECT_EQ(cost.round_trips, 2 * operations);
  cost = {};
  for (uint64_t i = 0; i < 100; ++i) {  // few enough that no leaf becomes underfull
    const std::string key = KeyOf(i * 200);
    EXPECT_TRUE(
        session.Replace(*loaded.tree, key, i * 100 < 1000 ? Int64Value(42) : KeyOf(i * 100), "gone")
            .ok());
    EXPECT_TRUE(session.EraseIf(*loaded.tree, key, "gone", options).ok());
    EXPECT_TRUE(absl::IsNotFound(session.Get(*loaded.tree, key).status()));
  }
  EXPECT_EQ(cost.round_trips, 200u);
}

// 4 sessions with 16 coroutines each, of one client or of one each. Returns round trips an
// operation.
double Together(bool one_client,
                const std::function<void(Session&, const Tree&, const OperationOptions&)>& work,
                const std::function<void(Session&, const Tree&)>& look) {
  constexpr size_t kSessions = 4;
  constexpr int kCoroutines = 16, kEach = 250;
  SimCluster cluster(Quiet(2));
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::unique_ptr<Tree>> trees;
  std::vector<std::unique_ptr<Session>> sessions;
  for (size_t i = 0; i < kSessions; ++i) {
    if (i == 0 || !one_client) {
      clients.push_back(cluster.NewClient({.operation_timeout_ms = 60'000}));
      trees.push_back(*clients.back()->CreateTree("t", {}));
    }
    sessions.push_back(*clients.back()->NewSession());
  }
  OperationCost cost;
  for (size_t s = 0; s < kSessions; ++s) {
    for (int k = 0; k < kCoroutines; ++k) {
      sessions[s]->Spawn([&, s] {
        for (int i = 0; i < kEach; ++i) {
          work(*sessions[s], *trees[s % trees.size()], {.cost = &cost});
        }
      });
    }
  }
  for (auto& session : sessions) session->Run();
  look(*sessions[0], *trees[0]);
  EXPECT_GT(clients[0]->Stats().tree.combined, 0u);
  return static_cast<double>(cost.round_trips) / (kSessions * kCoroutines * kEach);
}

TEST(Conditional, EverybodyAddsToOneCounter) {
  for (const bool one_client : {true, false}) {
    const double round_trips = Together(
        one_client,
        [](Session& session, const Tree& tree, const OperationOptions& options) {
          const auto added =
              session.Upsert(tree, "counter", UpsertFunction::kAdd, Int64Value(1), options);
          ASSERT_TRUE(added.ok()) << added.status();
        },
        [](Session& session, const Tree& tree) {
          EXPECT_EQ(ParseInt64Value(*session.Get(tree, "counter")), 4 * 16 * 250);
        });
    std::printf("round trips an add, %s: %.3f\n", one_client ? "one client" : "four", round_trips);
    EXPECT_LE(round_trips, 0.3);
  }
}

// A counter by compare and swap: each success counts once, on any client.
TEST(Conditional, WhoeverReplacesAValueDoesItAlone) {
  int64_t replaced = 0;
  Together(
      /*one_client=*/true,
      [&](Session& session, const Tree& tree, const OperationOptions& options) {
        std::string seen = Int64Value(0);
        absl::Status status = session.Insert(tree, "counter", seen, options);
        for (int tries = 0; tries < 3 && !status.ok(); ++tries) {
          const std::string next = Int64Value(*ParseInt64Value(seen) + 1);
          status = session.Replace(tree, "counter", seen, next, options, &seen);
          ASSERT_TRUE(status.ok() || IsConditionFailed(status)) << status;
          if (status.ok()) ++replaced;
        }
      },
      [&](Session& session, const Tree& tree) {
        EXPECT_GT(replaced, 0);
        EXPECT_EQ(ParseInt64Value(*session.Get(tree, "counter")), replaced);
      });
}

// Each of them needs a slot that no leaf has: what is stored after a split, or after memory had to
// be asked for, is decided once.
TEST(Conditional, UpsertsThatSplitAreAppliedOnce) {
  SimCluster cluster(Quiet(3));
  auto client = cluster.NewClient();
  auto tree = *client->CreateTree("t", {});
  auto session = *client->NewSession();
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string value;
    ASSERT_TRUE(
        session
            ->UpsertTo(*tree, KeyOf(i * 7919 % 3000), UpsertFunction::kAdd, Int64Value(1), &value)
            .ok());
    ASSERT_EQ(ParseInt64Value(value), 1);
  }
  EXPECT_GT(client->Stats().tree.splits, 50u);
  for (uint64_t i = 0; i < 3000; ++i) {
    EXPECT_EQ(ParseInt64Value(*session->Get(*tree, KeyOf(i))), 1);
  }
}

TEST(Conditional, FunctionsOfTheProgram) {
  const LoadedTree loaded(Quiet(4), {}, kRecords);
  Session& session = *loaded.session;
  const auto mine = static_cast<UpsertFunction>(2000);
  OperationCost cost;
  EXPECT_TRUE(absl::IsInvalidArgument(
      session.Upsert(*loaded.tree, KeyOf(0), mine, "x", {.cost = &cost}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(
      session.Upsert(*loaded.tree, KeyOf(0), UpsertFunction::kAdd, "x", {.cost = &cost}).status()));
  EXPECT_EQ(cost.round_trips, 0u) << "before anything is posted";
  ASSERT_TRUE(
      loaded.client
          ->RegisterUpsertFunction(2000,
                                   [](std::string_view, std::optional<std::string_view> present,
                                      std::string_view operand) -> absl::StatusOr<std::string> {
                                     if (operand == "throw") throw std::runtime_error("as told");
                                     if (operand == "long") return std::string(9, 'x');
                                     if (!present.has_value())
                                       return absl::NotFoundError("nothing there");
                                     return std::string(operand) + "!";
                                   })
          .ok());
  EXPECT_EQ(*session.Upsert(*loaded.tree, KeyOf(0), mine, "x"), "x!");
  for (const char* operand : {"throw", "long"}) {
    std::string value;
    EXPECT_TRUE(IsConditionFailed(session.UpsertTo(*loaded.tree, KeyOf(0), mine, operand, &value)));
    EXPECT_EQ(value, "x!") << "the present one";
  }
  EXPECT_TRUE(IsConditionFailed(session.Upsert(*loaded.tree, KeyOf(1), mine, "x").status()));
  EXPECT_EQ(*session.Get(*loaded.tree, KeyOf(0)), "x!");
  EXPECT_TRUE(absl::IsNotFound(session.Get(*loaded.tree, KeyOf(1)).status()));
}

// A caller with one string for everything: the key is a view of what gets the answer.
TEST(Conditional, TheAnswerMayGoWhereTheKeyIs) {
  SimCluster cluster(Quiet(5));
  auto client = cluster.NewClient();
  auto tree = *client->CreateTree("t", {});
  auto session = *client->NewSession();
  const std::string key = KeyOf(7);
  ASSERT_TRUE(session->Put(*tree, key, Int64Value(1)).ok());
  std::string text = key;
  ASSERT_TRUE(session->UpsertTo(*tree, text, UpsertFunction::kAdd, Int64Value(41), &text).ok());
  EXPECT_EQ(ParseInt64Value(text), 42);
  text = key;
  EXPECT_TRUE(IsConditionFailed(session->Replace(*tree, text, text, "never", {}, &text)));
  EXPECT_EQ(ParseInt64Value(text), 42);
  std::vector<KeyValue> rows;
  ASSERT_TRUE(session->Scan(*tree, "", 10, &rows).ok());
  EXPECT_EQ(rows, (std::vector<KeyValue>{{key, Int64Value(42)}}));
}

}  // namespace
}  // namespace pando
