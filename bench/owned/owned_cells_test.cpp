// Large values of owned trees (rules K6 to K8): at the owner and elsewhere, what they cost, and
// what becomes of their memory; counted on the simulated fabric.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cost/list_counter.h"
#include "bench/owned/owned_world.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/base/time_constants.h"
#include "common/wire/control.h"
#include "common/wire/value_cell.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"

namespace pando {
namespace {

constexpr TreeOptions kTree = {.value_bytes_max = 65'536, .mode = TreeOptions::Mode::kOwned};
constexpr uint64_t kKeys = 400;

// Recognizes itself; of all lengths, the short ones are in slots.
std::string ValueOf(uint64_t key, uint64_t write, size_t bytes) {
  std::string value = KeyOf(key) + KeyOf(write);
  value.resize(bytes, static_cast<char>('a' + write % 26));
  return value;
}
std::string ValueOf(uint64_t key, uint64_t write) {
  constexpr size_t kLengths[] = {1000, 255, 256, 16, 3000, 9000, 65'536};
  return ValueOf(key, write, kLengths[(key + write) % std::size(kLengths)]);
}

using Model = std::map<std::string, std::string>;

void ExpectAsModel(OwnerProcess* process, const Model& model) {
  Session& session = process->session();
  std::vector<KeyValue> rows;
  ASSERT_TRUE(session.Scan(process->tree(), {}, &rows).ok());
  ASSERT_EQ(rows.size(), model.size());
  auto expected = model.begin();
  for (const KeyValue& row : rows) {
    ASSERT_EQ(row.key, expected->first);
    ASSERT_EQ(row.value, (expected++)->second);
  }
  const auto down = session.NewCursor(process->tree(), {.reverse = true});
  for (size_t i = rows.size(); i > 0; --i) {
    ASSERT_TRUE(down->Next()) << down->status();
    ASSERT_EQ(down->value(), rows[i - 1].value);
  }
  std::vector<std::string> keys;
  for (uint64_t key = 0; key < kKeys; ++key) keys.push_back(KeyOf(key));
  const auto got = session.MultiGet(process->tree(), keys);
  for (size_t i = 0; i < got.size(); ++i) {
    const auto known = model.find(keys[i]);
    ASSERT_EQ(got[i].ok(), known != model.end()) << got[i].status();
    if (got[i].ok()) {
      ASSERT_EQ(*got[i], known->second);
    }
  }
}

// Nothing is nobody's, and nothing is out of order.
void ExpectInOrder(OwnerProcess* process, uint64_t keys) {
  SweepResult swept;
  const absl::Status sweep = process->session().Sweep(process->tree(), &swept);
  ASSERT_TRUE(sweep.ok()) << sweep;
  const auto report = process->session().Check(process->tree(), {.quiet_tree = true});
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ok()) << report->problems[0];
  EXPECT_EQ(report->keys, keys);
  EXPECT_EQ(report->cells_unused, 0u);
}

// One of each kind of write to a key, by this one or that.
void Churn(OwnerProcess* process, uint64_t turn, uint64_t key, Model* model) {
  Session& session = process->session();
  const Tree& tree = process->tree();
  const std::string name = KeyOf(key), value = ValueOf(key, turn);
  const auto known = model->find(name);
  const bool is_there = known != model->end();
  const std::string present = is_there ? known->second : "";
  switch (turn % 7) {
    case 0:
      ASSERT_TRUE(session.Put(tree, name, value).ok());
      break;
    case 1:
      ASSERT_EQ(session.Insert(tree, name, value).code(),
                is_there ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kOk);
      if (is_there) return;
      break;
    case 2:
      ASSERT_EQ(session.Update(tree, name, value).ok(), is_there);
      if (!is_there) return;
      break;
    case 3: {
      std::string actual;
      const absl::Status wrong = session.Replace(tree, name, "another", "no", {}, &actual);
      ASSERT_EQ(IsConditionFailed(wrong), is_there) << wrong;
      if (!is_there) return;
      ASSERT_EQ(actual, present);
      ASSERT_TRUE(session.Replace(tree, name, present, value).ok());
      break;
    }
    case 4:
      ASSERT_EQ(session.Erase(tree, name).ok(), is_there);
      model->erase(name);
      return;
    case 5:
      ASSERT_EQ(session.EraseIf(tree, name, present).ok(), is_there);
      model->erase(name);
      return;
    default: {
      const auto appended = session.Upsert(tree, name, UpsertFunction::kAppend, "more");
      if (present.size() + 4 > tree.value_bytes_max()) {
        ASSERT_FALSE(appended.ok());
        return;
      }
      ASSERT_TRUE(appended.ok()) << appended.status();
      ASSERT_EQ(*appended, present + "more");
      (*model)[name] = present + "more";
      return;
    }
  }
  (*model)[name] = value;
}

TEST(OwnedCells, AsAModelAtTheOwnerAndElsewhere) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SimCluster cluster({.sim = {.seed = seed}});
    Random random(seed);
    Model model;
    ClientOptions options;
    options.hot_bytes = 64 << 10;
    options.log_bytes = 64 << 10;
    OwnerProcess owner(&cluster, options, kTree);
    ASSERT_TRUE(owner.session().Put(owner.tree(), KeyOf(0), ValueOf(0, 0)).ok());
    model[KeyOf(0)] = ValueOf(0, 0);
    OwnerProcess other(&cluster, options, kTree);
    // Many at once, from both.
    for (OwnerProcess* const process : {&other, &owner}) {
      std::vector<KeyValue> entries;
      for (uint64_t key = process == &owner ? 1 : 2; key < kKeys; key += 2) {
        entries.push_back({KeyOf(key), ValueOf(key, 1)});
        model[KeyOf(key)] = ValueOf(key, 1);
      }
      for (const absl::Status& put : process->session().MultiPut(process->tree(), entries)) {
        ASSERT_TRUE(put.ok()) << put;
      }
    }
    ASSERT_EQ(other.client().Stats().owned.ranges, 0u);
    for (uint64_t turn = 0; turn < 2000; ++turn) {
      ASSERT_NO_FATAL_FAILURE(Churn(random.Chance(0.5) ? &owner : &other, random.Next() % 1000,
                                    random.Uniform(kKeys), &model))
          << "seed " << seed << ", turn " << turn;
    }
    for (OwnerProcess* const process : {&owner, &other}) {
      ASSERT_NO_FATAL_FAILURE(ExpectAsModel(process, model));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectInOrder(&owner, model.size()));
    // Ranges are erased, by both.
    for (OwnerProcess* const process : {&owner, &other}) {
      const uint64_t from = process == &owner ? 100 : 300;
      ASSERT_TRUE(
          process->session().EraseRange(process->tree(), KeyOf(from), KeyOf(from + 50)).ok());
      model.erase(model.lower_bound(KeyOf(from)), model.lower_bound(KeyOf(from + 50)));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectAsModel(&owner, model));
    // The owner leaves, and the other one goes on.
    owner.Close();
    ASSERT_NO_FATAL_FAILURE(ExpectAsModel(&other, model));
    for (uint64_t turn = 0; turn < 300; ++turn) {
      ASSERT_NO_FATAL_FAILURE(Churn(&other, random.Next() % 1000, random.Uniform(kKeys), &model));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectInOrder(&other, model.size()));
    other.Close();
  }
}

// Rule K6: whoever was taken for dead, and forwards a write before it hears of that.
TEST(OwnedCells, AForwardedWriteWhoseCellHoldsSomethingElseIsNone) {
  SimCluster cluster({.sim = {.seed = 1}});
  OwnerProcess owner(&cluster, {}, kTree);
  ASSERT_TRUE(owner.session().Put(owner.tree(), KeyOf(0), ValueOf(0, 0)).ok());
  OwnerProcess other(&cluster, {}, kTree);
  TreeImpl& tree = ImplOf(other.tree());
  const CellReference elsewhere = {.cell = {tree.context().entry.root_record, 1},
                                   .value_bytes = 1000};
  std::string stored;
  StoreReference(elsewhere, &stored);
  const absl::Status written =
      ImplOf(other.session()).Perform(other.tree(), {}, [&](OperationContext& context) {
        const std::string key = KeyOf(1);
        const WriteOperation put = {.kind = WriteKind::kPut, .key = key, .value = stored};
        return tree.routed().owned()->Write(context, put, nullptr);
      });
  EXPECT_TRUE(absl::IsUnavailable(written)) << written;
  for (OwnerProcess* const process : {&owner, &other}) {
    EXPECT_TRUE(absl::IsNotFound(process->session().Get(process->tree(), KeyOf(1)).status()));
  }
  other.Close();
  owner.Close();
}

// What a replaced value took is somebody else's soon: rule K7.
TEST(OwnedCells, WhatIsReplacedIsFreedAtOnce) {
  constexpr uint64_t kRecords = 20'000, kWrites = 60'000;
  SimCluster cluster({.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole}});
  ClientOptions options;
  options.log_bytes = 1 << 20;
  OwnerProcess owner(&cluster, options, kTree);
  uint64_t next = 0;
  const auto entry = [&](KeyValue* to) {
    *to = {KeyOf(next), ValueOf(next, 0, 1000)};
    return next++ < kRecords;
  };
  ASSERT_TRUE(owner.session().BulkLoad(owner.tree(), entry).ok());
  OwnerProcess other(&cluster, options, kTree);
  Random random(1);
  for (uint64_t write = 1; write <= kWrites; ++write) {
    OwnerProcess& process = write % 2 == 0 ? owner : other;
    const uint64_t key = random.Uniform(kRecords);
    ASSERT_TRUE(process.session().Put(process.tree(), KeyOf(key), ValueOf(key, write, 1000)).ok());
  }
  uint64_t used = 0;
  for (const ServerStatus& server : owner.client().Servers()) used += server.used_bytes;
  const auto report = owner.session().Check(owner.tree());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_TRUE(report->ok());
  EXPECT_EQ(report->cells, kRecords);
  EXPECT_EQ(report->cells_unused, 0u);
  std::printf("%lu bytes in use, %lu of values\n", used, report->value_bytes);
  EXPECT_LE(static_cast<double>(used), static_cast<double>(report->value_bytes) * 1.6);
  owner.Close();
  other.Close();
}

TEST(OwnedCells, WhatOperationsCost) {
  SimCluster cluster({.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole}});
  OwnerProcess owner(&cluster, ClientOptions(), kTree);
  constexpr uint64_t kRecords = 1000;
  std::vector<KeyValue> entries;
  for (uint64_t key = 0; key < kRecords; ++key) {
    entries.push_back({KeyOf(key), ValueOf(key, 1, 1000)});
  }
  for (const absl::Status& put : owner.session().MultiPut(owner.tree(), entries)) {
    ASSERT_TRUE(put.ok()) << put;
  }
  OwnerProcess other(&cluster, ClientOptions(), kTree);
  ASSERT_TRUE(other.session().Get(other.tree(), KeyOf(0)).ok());
  ASSERT_TRUE(other.session().Put(other.tree(), KeyOf(0), ValueOf(0, 2, 1000)).ok());
  for (OwnerProcess* const process : {&owner, &other}) {
    OperationCost get, put, update, replace, erase;
    Session& session = process->session();
    const Tree& tree = process->tree();
    for (uint64_t key = 0; key < kRecords; ++key) {
      const auto got = session.Get(tree, KeyOf(key), {.cost = &get});
      ASSERT_TRUE(got.ok()) << got.status();
    }
    for (uint64_t key = 0; key < kRecords; ++key) {
      ASSERT_TRUE(session.Put(tree, KeyOf(key), ValueOf(key, 3, 1000), {.cost = &put}).ok());
      ASSERT_TRUE(session.Update(tree, KeyOf(key), ValueOf(key, 4, 1000), {.cost = &update}).ok());
      ASSERT_TRUE(session
                      .Replace(tree, KeyOf(key), ValueOf(key, 4, 1000), ValueOf(key, 5, 1000),
                               {.cost = &replace})
                      .ok());
    }
    for (uint64_t key = kRecords / 2; key < kRecords; ++key) {
      ASSERT_TRUE(session.Erase(tree, KeyOf(key), {.cost = &erase}).ok());
      ASSERT_TRUE(session.Put(tree, KeyOf(key), ValueOf(key, 6, 1000)).ok());
    }
    const bool is_owner = process == &owner;
    const auto expect = [&](const OperationCost& cost, uint64_t calls, uint64_t at_owner,
                            uint64_t elsewhere, uint64_t messages, uint64_t more = 0) {
      EXPECT_EQ(cost.round_trips, calls * (is_owner ? at_owner : elsewhere));
      EXPECT_EQ(cost.verbs, cost.round_trips);
      EXPECT_EQ(cost.messages, is_owner ? 0 : calls * messages + more);
    };
    expect(get, kRecords, 1, 1, 2, 2);  // the cell; one asks for the range, and is refused
    expect(put, kRecords, 2, 1, 2);     // the cell; the log
    expect(update, kRecords, 2, 1, 2);
    expect(replace, kRecords, 3, 2, 4);  // a get before
    expect(erase, kRecords / 2, 1, 0, 2);
  }
  owner.Close();
  other.Close();
}

// The owner refills for a peer's write, and is told of a dead client's cells. The peer is not to
// wait for a sweep, and the turn is the next refill's (rule C5).
TEST(OwnedCells, AWriteOfAPeersTakesNoTurnToSweep) {
  constexpr size_t kBytes = 1000;
  SimCluster cluster({.sim = {.mode = sim::DeliveryMode::kWhole}, .memory_servers = 1});
  OwnerProcess owner(&cluster, ClientOptions(), kTree);
  ASSERT_TRUE(owner.session().Put(owner.tree(), KeyOf(0), "short").ok());
  OwnerProcess peer(&cluster, ClientOptions(), kTree), dead(&cluster, ClientOptions(), kTree);
  // Both have cells at hand now.
  for (OwnerProcess* const process : {&peer, &dead}) {
    ASSERT_TRUE(process->session().Put(process->tree(), KeyOf(1), ValueOf(1, 1, kBytes)).ok());
  }
  dead.KillAt(cluster.world().clock().NowNs());
  cluster.world().RunUntil(cluster.world().clock().NowNs() + 2 * kSecondNs);
  const TreeContext& tree = ImplOf(owner.tree()).context();
  const NodePoolId pool = {tree.id(), static_cast<uint16_t>(CellLines(KeyOf(1).size(), kBytes))};
  const auto use_up = [&] {
    while (tree.environment.allocator.TryTake(pool, 0).has_value()) {
    }
  };
  ListCounter counter(&cluster.server(0));
  cluster.world().SetHandler(1, &counter);
  use_up();
  ASSERT_TRUE(peer.session().Put(peer.tree(), KeyOf(1), ValueOf(1, 2, kBytes)).ok());
  EXPECT_EQ(counter.lists(), 0) << "or this shows nothing";
  use_up();
  ASSERT_TRUE(owner.session().Put(owner.tree(), KeyOf(1), ValueOf(1, 3, kBytes)).ok());
  owner.session().Run();  // what it does beside its operations
  EXPECT_GT(counter.lists(), 0) << "the owner has not swept";
  cluster.world().SetHandler(1, &cluster.server(0));
  for (OwnerProcess* const process : {&owner, &peer, &dead}) process->Close();
}

// While a range is erased, and its erases wait for room, keys that were READ already are put again,
// come to their leaves, and their records go: the owner does not see what it takes out there, and
// says so when it closes the tree (rule K7). Returns how many cells that were.
uint64_t EraseUnseen(uint64_t seed) {
  constexpr uint64_t kOthers = 4000, kAgain = 40;
  SimCluster cluster({.sim = {.seed = seed}});
  ClientOptions options;
  options.hot_bytes = options.log_bytes = 64 << 10;
  options.dirty_percent = 6;  // less than there are erases
  OwnerProcess owner(&cluster, options, kTree);
  uint64_t next = 0;
  const auto entry = [&](KeyValue* to) {
    *to = {KeyOf(next), ValueOf(next, 0, next < kKeys ? 300 : 200)};
    return next++ < kKeys + kOthers;
  };
  EXPECT_TRUE(owner.session().BulkLoad(owner.tree(), entry).ok());
  std::unique_ptr<Session> beside = *owner.client().NewSession();
  Random random(seed);
  bool erased = false;
  for (uint64_t i = 0; i < 24; ++i) {
    beside->Spawn([&, i] {
      for (uint64_t write = 1; !erased; ++write) {
        const uint64_t key = kKeys - 1 - random.Uniform(kAgain);
        const bool ok =
            i < 4 ? beside->Put(owner.tree(), KeyOf(key), ValueOf(key, write, 300)).ok()
                  : beside->Get(owner.tree(), KeyOf(kKeys + random.Uniform(kOthers))).ok();
        EXPECT_TRUE(ok);
      }
    });
  }
  ImplOf(*beside).scheduler().endpoint().Wake();
  EXPECT_TRUE(owner.session().EraseRange(owner.tree(), KeyOf(0), KeyOf(kKeys)).ok());
  erased = true;
  beside->Run();
  beside.reset();
  OwnerProcess other(&cluster, options, kTree);
  owner.CloseTree();  // its client goes on, and nothing of it is in flight
  const auto unused = [&] { return other.session().Check(other.tree())->cells_unused; };
  const uint64_t unseen = unused();
  // As a session does by itself, when a memory server has asked for that.
  for (int turn = 0; turn < 2; ++turn) {
    SweepResult swept;
    const absl::Status status = ImplOf(other.session()).Perform(other.tree(), {}, [&](auto& call) {
      return ImplOf(other.tree()).routed().Sweep(call, /*thorough=*/false, &swept);
    });
    EXPECT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(unused(), 0u) << "seed " << seed;
  other.CloseTree();
  EXPECT_TRUE(other.client().DropTree("t").ok());
  EXPECT_EQ(cluster.Counter("trees_freed"), static_cast<uint64_t>(cluster.memory_servers()));
  other.Close();
  return unseen;
}

TEST(OwnedCells, WhatAnEraseOfARangeTakesOutUnseenIsFound) {
  uint64_t unseen = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) unseen += EraseUnseen(seed);
  std::printf("%lu cells\n", unseen);
  EXPECT_GT(unseen, 0u) << "or this shows nothing";
}

}  // namespace
}  // namespace pando
