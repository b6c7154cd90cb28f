// Owned trees on the simulator: answers against a model, what they cost, and that nothing that was
// acknowledged is lost with its owner.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "bench/owned/owned_world.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr TreeOptions kOwned = {.mode = TreeOptions::Mode::kOwned};
// Values lie in cells (rules K).
constexpr TreeOptions kWithCells = {.mode = TreeOptions::Mode::kOwned, .inline_value_bytes_max = 4};

// Of trees of both kinds.
class OwnedTreeTest : public testing::TestWithParam<TreeOptions> {};
INSTANTIATE_TEST_SUITE_P(Values, OwnedTreeTest, testing::Values(kOwned, kWithCells),
                         [](const auto& info) {
                           return info.param.inline_value_bytes_max > 0 ? "Cells" : "Slots";
                         });

// Nothing is wrong, and no cell is nobody's, once a sweep has gone through all.
void ExpectInOrder(OwnerProcess* owner, const std::string& where) {
  SweepResult swept;
  const absl::Status sweep = owner->session().Sweep(owner->tree(), &swept);
  ASSERT_TRUE(sweep.ok()) << sweep << ", " << where;
  const auto report = owner->session().Check(owner->tree(), {.quiet_tree = true});
  ASSERT_TRUE(report.ok()) << report.status() << ", " << where;
  EXPECT_TRUE(report->ok()) << report->problems[0] << ", " << where;
  EXPECT_EQ(report->cells_unused, 0u) << where;
}

ClientOptions SmallOwner() {
  ClientOptions options;
  options.hot_bytes = 64 << 10;
  options.log_bytes = 256 << 10;
  return options;
}

std::string ValueOf(uint64_t n) { return KeyOf(n * 0x9e3779b97f4a7c15); }

using Model = std::map<std::string, std::string>;

// One random operation and what it has to say.
void Step(Random* random, OwnerProcess* owner, uint64_t keys, uint64_t n, Model* model) {
  Session& session = owner->session();
  const std::string key = KeyOf(random->Uniform(keys)), value = ValueOf(n);
  const auto known = model->find(key);
  const bool is_there = known != model->end();
  switch (random->Uniform(8)) {
    case 0:
    case 1: {
      const auto got = session.Get(owner->tree(), key);
      ASSERT_EQ(got.ok(), is_there) << got.status();
      if (is_there) {
        ASSERT_EQ(*got, known->second);
      }
      return;
    }
    case 2:
    case 3:
      ASSERT_TRUE(session.Put(owner->tree(), key, value).ok());
      (*model)[key] = value;
      return;
    case 4:
      ASSERT_EQ(session.Insert(owner->tree(), key, value).code(),
                is_there ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kOk);
      if (!is_there) (*model)[key] = value;
      return;
    case 5:
      ASSERT_EQ(session.Update(owner->tree(), key, value).code(),
                is_there ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
      if (is_there) (*model)[key] = value;
      return;
    case 6:
      ASSERT_EQ(session.Erase(owner->tree(), key).code(),
                is_there ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
      model->erase(key);
      return;
    case 7: {
      const size_t limit = 1 + random->Uniform(60);
      std::vector<KeyValue> rows;
      ASSERT_TRUE(session.Scan(owner->tree(), key, limit, &rows).ok());
      auto expected = model->lower_bound(key);
      for (const KeyValue& row : rows) {
        ASSERT_NE(expected, model->end());
        ASSERT_EQ(row, (KeyValue{expected->first, expected->second}));
        ++expected;
      }
      ASSERT_TRUE(rows.size() == limit || expected == model->end());
      return;
    }
  }
}

// Rules T1 to T8, B1 to B3: memory for some hundred records, so that they come and go. Rules O1,
// O4, O7, O9: each life gives everything up and leaves.
TEST_P(OwnedTreeTest, AnswersAsAModelDoesWhileRecordsComeAndGo) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SimCluster cluster({.sim = {.seed = seed}});
    Random random(seed);
    Model model;
    for (int life = 0; life < 3; ++life) {
      OwnerProcess owner(&cluster, SmallOwner(), GetParam());
      for (uint64_t n = 0; n < 6000; ++n) {
        Step(&random, &owner, 4000, n, &model);
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed << ", step " << n;
      }
      const OwnedStats stats = owner.client().Stats().owned;
      EXPECT_GT(stats.flushed, 0u);
      EXPECT_GT(stats.hits, 0u);
      EXPECT_EQ(stats.adoptions, 0u) << "the one before has left in order";
      owner.Close();
    }
    EXPECT_EQ(cluster.Counter("extents"), 0u);
  }
}

// Rule T7: the clocks of all trees go equally fast.
TEST(OwnedMemoryTest, WhatNobodyReadsAnyMoreMakesRoomForAnotherTree) {
  SimCluster cluster({.sim = {.seed = 1}});
  OwnerProcess owner(&cluster, SmallOwner(), kOwned);
  const auto other = owner.client().CreateTree("other", kOwned);
  ASSERT_TRUE(other.ok()) << other.status();
  constexpr uint64_t kFirst = 4'000, kSecond = 200;
  Session& session = owner.session();
  for (uint64_t n = 0; n < kSecond; ++n) {
    ASSERT_TRUE(session.Put(**other, KeyOf(n), ValueOf(n)).ok());
  }
  for (uint64_t n = 0; n < kFirst; ++n) {
    ASSERT_TRUE(session.Put(owner.tree(), KeyOf(n), ValueOf(n)).ok());
  }
  ASSERT_TRUE(session.Flush(owner.tree()).ok());
  const auto read = [&](const Tree& tree, uint64_t count) {
    const uint64_t before = owner.client().Stats().owned.misses;
    for (uint64_t n = 0; n < count; ++n) EXPECT_EQ(*session.Get(tree, KeyOf(n)), ValueOf(n));
    return owner.client().Stats().owned.misses - before;
  };
  const auto read_for_long = [&](const Tree& tree, uint64_t count) {
    for (int i = 0; i < 20; ++i) {
      read(tree, count);
      session.SleepUntil(cluster.world().clock().NowNs() + 300 * kMillisecondNs);
    }
  };
  read_for_long(owner.tree(), kFirst);
  EXPECT_GT(read(**other, kSecond), kSecond / 2) << "what nobody has read is kept";
  read_for_long(**other, kSecond);
  EXPECT_LT(read(**other, kSecond), kSecond / 20);
  EXPECT_LE(owner.client().Stats().owned.hot_bytes, SmallOwner().hot_bytes * 5 / 4);
}

// Rules O6, P1 to P4.
TEST_P(OwnedTreeTest, OthersAskTheOwnerAndFollowIt) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    SimCluster cluster({.sim = {.seed = seed}});
    Random random(seed);
    Model model;
    auto owner = std::make_unique<OwnerProcess>(&cluster, SmallOwner(), GetParam());
    ASSERT_TRUE(owner->session().Put(owner->tree(), KeyOf(1), "x").ok());
    model[KeyOf(1)] = "x";
    for (int life = 0; life < 3; ++life) {
      OwnerProcess asker(&cluster, SmallOwner(), GetParam());
      for (uint64_t n = 0; n < 1500; ++n) {
        Step(&random, random.Uniform(3) == 0 ? owner.get() : &asker, 1000, n, &model);
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed << ", step " << n;
      }
      EXPECT_EQ(asker.client().Stats().owned.ranges, 0u);
      // The owner leaves in order, and who has asked it goes on by himself.
      owner->Close();
      owner = nullptr;
      for (uint64_t n = 0; n < 300; ++n) {
        Step(&random, &asker, 1000, n, &model);
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed << ", step " << n;
      }
      EXPECT_EQ(asker.client().Stats().owned.ranges, 1u);
      asker.Close();
      owner = std::make_unique<OwnerProcess>(&cluster, SmallOwner(), GetParam());
      ASSERT_TRUE(owner->session().Put(owner->tree(), KeyOf(1), "x").ok());
      model[KeyOf(1)] = "x";
    }
    ASSERT_NO_FATAL_FAILURE(ExpectInOrder(owner.get(), "seed " + std::to_string(seed)));
    owner->Close();
    EXPECT_EQ(cluster.Counter("extents"), 0u);
  }
}

// Rules D1 to D5, T6, W5: owners die at any moment, and the next one goes on.
TEST_P(OwnedTreeTest, NothingAcknowledgedIsLostWithItsOwner) {
  uint64_t adopted = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SimCluster cluster({.sim = {.seed = seed}});
    Random random(seed);
    constexpr uint64_t kKeys = 400;
    constexpr int kClients = 8;
    std::vector<KeyTruth> truth(kKeys);
    uint64_t n = 0;
    for (int life = 0; life < 3; ++life) {
      OwnerProcess owner(&cluster, SmallOwner(), GetParam());
      // What the one before may have done is what it has done.
      for (uint64_t k = 0; k < kKeys; ++k) {
        const auto got = owner.session().Get(owner.tree(), KeyOf(k));
        ASSERT_TRUE(got.ok() || absl::IsNotFound(got.status())) << got.status();
        ASSERT_TRUE(truth[k].MayBe(Found(got)))
            << "seed " << seed << ", life " << life << ", key " << k << ": found "
            << (got.ok() ? *got : "nothing") << ", acknowledged was "
            << truth[k].known().value_or("nothing");
        truth[k].See(Found(got));
      }
      adopted += owner.client().Stats().owned.adopted_messages;
      owner.KillAt(cluster.world().clock().NowNs() + 1 + random.Uniform(3 * kMillisecondNs));
      for (int client = 0; client < kClients; ++client) {
        owner.session().Spawn([&, client] {
          while (!owner.killed()) {
            const uint64_t k = random.Uniform(kKeys / kClients) * kClients + client;
            const std::string key = KeyOf(k);
            if (random.Uniform(4) == 0) {
              truth[k].Try(std::nullopt);
              const absl::Status erased = owner.session().Erase(owner.tree(), key);
              if (erased.ok() || absl::IsNotFound(erased)) truth[k].Acknowledge(std::nullopt);
            } else if (random.Uniform(3) == 0) {
              const auto got = owner.session().Get(owner.tree(), key);
              if (got.ok() || absl::IsNotFound(got.status())) {
                ASSERT_TRUE(truth[k].MayBe(Found(got)));
              }
            } else {
              const std::string value = ValueOf(++n);
              truth[k].Try(value);
              if (owner.session().Put(owner.tree(), key, value).ok()) truth[k].Acknowledge(value);
            }
          }
        });
      }
      owner.session().Run();
      ASSERT_TRUE(owner.killed());
      owner.Close();
    }
    OwnerProcess last(&cluster, SmallOwner(), GetParam());
    ASSERT_NO_FATAL_FAILURE(ExpectInOrder(&last, "seed " + std::to_string(seed)));
    last.Close();
  }
  EXPECT_GT(adopted, 1'000u);
}

// Rule O8.
TEST_P(OwnedTreeTest, LoadedInBulkAndDropped) {
  SimCluster cluster({.sim = {.seed = 3}});
  OwnerProcess owner(&cluster, SmallOwner(), GetParam());
  OwnerProcess other(&cluster, SmallOwner(), GetParam());
  uint64_t n = 0;
  const auto next = [&](KeyValue* entry) {
    *entry = {KeyOf(n), ValueOf(n)};
    return n++ < 5000;
  };
  ASSERT_TRUE(owner.session().BulkLoad(owner.tree(), next).ok());
  EXPECT_EQ(*owner.session().Get(owner.tree(), KeyOf(4999)), ValueOf(4999));
  EXPECT_EQ(*other.session().Get(other.tree(), KeyOf(7)), ValueOf(7));
  n = 0;
  EXPECT_TRUE(absl::IsFailedPrecondition(other.session().BulkLoad(other.tree(), next)))
      << "somebody else owns it";
  EXPECT_TRUE(absl::IsFailedPrecondition(owner.session().BulkLoad(owner.tree(), next)))
      << "it is not empty";
  ASSERT_TRUE(other.session().Put(other.tree(), KeyOf(7), "new").ok());
  EXPECT_EQ(*owner.session().Get(owner.tree(), KeyOf(7)), "new");

  ASSERT_TRUE(other.client().DropTree("t").ok());
  // Once a second members look.
  owner.session().SleepUntil(cluster.world().clock().NowNs() + 3 * kSecondNs);
  for (OwnerProcess* const process : {&owner, &other}) {
    EXPECT_TRUE(
        absl::IsFailedPrecondition(process->session().Get(process->tree(), KeyOf(7)).status()))
        << process->session().Get(process->tree(), KeyOf(7)).status();
  }
  owner.Close();
  other.Close();
  OwnerProcess again(&cluster, SmallOwner(), GetParam());
  EXPECT_TRUE(absl::IsNotFound(again.session().Get(again.tree(), KeyOf(7)).status()));
  again.Close();
  EXPECT_EQ(cluster.Counter("extents"), 0u);
}

// Rule B4: leaves have everything then, as somebody sees who looks at them alone.
TEST_P(OwnedTreeTest, FlushedRecordsAreInTheirLeaves) {
  SimCluster cluster({.sim = {.seed = 4}});
  OwnerProcess owner(&cluster, ClientOptions(), GetParam());
  for (uint64_t k = 0; k < 500; ++k) {
    ASSERT_TRUE(owner.session().Put(owner.tree(), KeyOf(k), ValueOf(k)).ok());
  }
  for (uint64_t k = 0; k < 500; k += 3) {
    ASSERT_TRUE(owner.session().Erase(owner.tree(), KeyOf(k)).ok());
  }
  EXPECT_GT(owner.client().Stats().owned.dirty_bytes, 0u);
  ASSERT_TRUE(owner.session().Flush(owner.tree()).ok());
  EXPECT_EQ(owner.client().Stats().owned.dirty_bytes, 0u);
  const auto report = owner.session().Check(owner.tree());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->keys, 333u);
  owner.Close();
}

TEST(OwnedTreeCost, WhatReadsAndWritesCostAtTheOwner) {
  SimCluster cluster({.sim = {.seed = 1}});
  ClientOptions options;
  OwnerProcess owner(&cluster, options, kOwned);
  Session& session = owner.session();
  constexpr uint64_t kKeys = 20'000;
  std::vector<KeyValue> entries;
  for (uint64_t k = 0; k < kKeys; ++k) entries.push_back({KeyOf(k), ValueOf(k)});
  for (const absl::Status& put : session.MultiPut(owner.tree(), entries)) {
    ASSERT_TRUE(put.ok()) << put;
  }
  // A hit costs nothing.
  OperationCost cost;
  const OperationOptions counted = {.cost = &cost};
  const ClientStats before = owner.client().Stats();
  for (uint64_t k = 0; k < 100; ++k) {
    ASSERT_TRUE(session.Get(owner.tree(), KeyOf(k), counted).ok());
  }
  EXPECT_EQ(cost.verbs, 0u);
  // Puts of 32 coroutines share batches (rule W3).
  const OwnedStats logged = owner.client().Stats().owned;
  constexpr int kCoroutines = 32, kPuts = 200;
  for (int c = 0; c < kCoroutines; ++c) {
    session.Spawn([&, c] {
      for (int i = 0; i < kPuts; ++i) {
        ASSERT_TRUE(session.Put(owner.tree(), KeyOf((c * kPuts + i) * 7 % kKeys), "x").ok());
      }
    });
  }
  session.Run();
  const OwnedStats now = owner.client().Stats().owned;
  const double messages = static_cast<double>(now.log_messages - logged.log_messages);
  EXPECT_EQ(messages, kCoroutines * kPuts);
  EXPECT_GE(messages / static_cast<double>(now.log_batches - logged.log_batches), 8.0);
  EXPECT_GT(before.fabric.chains, 0u);
}

// What is counted against hot_bytes of a tree goes with it, however often that happens; and what a
// range had goes with the range.
TEST(OwnedTreeMemory, ATreeThatIsClosedLeavesNothingCounted) {
  SimCluster cluster({.memory_servers = 1});
  ClientOptions options = SmallOwner();
  options.hot_bytes = 8 << 20;
  options.log_bytes = 2 << 20;
  const auto client = cluster.NewClient(options);
  const auto session = *client->NewSession();
  for (int round = 0; round < 3; ++round) {
    auto tree = *client->CreateTree("t", kOwned);
    for (uint64_t k = 0; k < 4'000; ++k) {
      ASSERT_TRUE(session->Put(*tree, KeyOf(k), ValueOf(k)).ok());
    }
    EXPECT_GT(client->Stats().owned.hot_bytes, 4'000u * 24);
    tree.reset();
    EXPECT_EQ(client->Stats().owned.hot_bytes, 0u) << "round " << round;
    ASSERT_TRUE(client->DropTree("t").ok());
  }
}

}  // namespace
}  // namespace pando
