// What sweeps find of cells that the dead took out of the tree (rule K4), on the simulated fabric.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "bench/cost/large_tree.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "common/wire/node_messages.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/index/holder_states.h"
#include "compute/value/large_values.h"

namespace pando {
namespace {

// Another client takes the last `taken` of the records out, and dies before it has said so.
void DieErasing(LargeTree* large, uint64_t records, uint64_t taken) {
  sim::SimWorld& world = large->cluster.world();
  const std::shared_ptr<Fabric> fabric = world.NewFabric();
  const auto dead = *ConnectOverFabric({.seed = 7}, fabric);
  const auto tree = *dead->OpenTree("t");
  const auto session = *dead->NewSession();
  for (uint64_t n = 0; n < taken; ++n) {
    ASSERT_TRUE(session->Erase(*tree, KeyOf(records - 1 - n)).ok());
  }
  world.KillFabric(*fabric);
  world.RunUntil(world.clock().NowNs() + kSecondNs);
}

// Rule K4: more cells than one go looks at, so that a client has to go on where it was.
TEST(CellsSweep, WhatTheDeadTookOutIsFoundSomeCellsAtATime) {
  constexpr uint64_t kRecords = 3'000, kTaken = 40;
  LargeTree large(0, {.value_bytes_max = 1000},
                  {.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole},
                   .main_bytes = kMainBytes,
                   .chunk_bytes = 64 << 10});
  uint64_t puts = 0;
  const auto put = [&](uint64_t count) {
    for (uint64_t i = 0; i < count; ++i, ++puts) {
      ASSERT_TRUE(large.session->Put(*large.tree, KeyOf(puts % kRecords), LargeValue(puts)).ok());
    }
  };
  ASSERT_NO_FATAL_FAILURE(put(kRecords));
  sim::SimWorld& world = large.cluster.world();
  ASSERT_NO_FATAL_FAILURE(DieErasing(&large, kRecords, kTaken));
  const auto unused = [&] { return large.session->Check(*large.tree)->cells_unused; };
  ASSERT_GE(unused(), kTaken);
  uint64_t rounds = 0;
  for (; unused() > 0 && rounds < 100; ++rounds) {
    // Each asks for memory, and hears that there is something to look at.
    ASSERT_NO_FATAL_FAILURE(put(150));
    large.session->SleepUntil(world.clock().NowNs() + 1'100 * kMillisecondNs);
  }
  EXPECT_EQ(unused(), 0u);
  EXPECT_GT(rounds, kRecords / 2 / 512) << "one go was enough";
  EXPECT_TRUE(large.session->Check(*large.tree)->ok());
}

// The same while ever more becomes due: cells that were out when a client died, and are put in now.
TEST(CellsSweep, WhatTheDeadTookOutIsFoundWhileMoreBecomesDue) {
  constexpr uint64_t kRecords = 3'000, kTaken = 40, kPuts = 70;
  LargeTree large(0, {.value_bytes_max = 1000},
                  {.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole},
                   .main_bytes = 64 << 20,
                   .chunk_bytes = 8 << 20});
  for (uint64_t n = 0; n < kRecords; ++n) {
    ASSERT_TRUE(large.session->Put(*large.tree, KeyOf(n), LargeValue(n)).ok());
  }
  sim::SimWorld& world = large.cluster.world();
  ASSERT_NO_FATAL_FAILURE(DieErasing(&large, kRecords, kTaken));
  const auto unused = [&] { return large.session->Check(*large.tree)->cells_unused; };
  ASSERT_GE(unused(), kTaken);
  uint64_t rounds = 0, puts = 0;
  // On each of two servers is half of the cells, and no round has to begin again.
  constexpr uint64_t kRoundsMax = kRecords / 512 + 1;
  for (; unused() > 0 && rounds < kRoundsMax; ++rounds) {
    for (uint64_t i = 0; i < kPuts; ++i, ++puts) {
      ASSERT_TRUE(large.session->Put(*large.tree, KeyOf(puts), LargeValue(puts)).ok());
    }
    large.session->SleepUntil(world.clock().NowNs() + 1'100 * kMillisecondNs);
    // As a session does by itself, when a memory server has asked for that.
    SweepResult swept;
    const absl::Status status = ImplOf(*large.session).Perform(*large.tree, {}, [&](auto& context) {
      return ImplOf(*large.tree).routed().Sweep(context, /*thorough=*/false, &swept);
    });
    ASSERT_TRUE(status.ok()) << status;
  }
  EXPECT_EQ(unused(), 0u);
  EXPECT_GT(rounds, kRecords / 2 / 512) << "one go was enough";
}

// Three memory servers; the leaf of the key is on the second one. Anna is stopped when she has
// written a new cell on the third one, and cut off by all but the second: there she will link it.
class StoppedPut : public testing::Test {
 protected:
  static constexpr PeerId kAnna = 2;

  void SetUp() override {
    for (uint64_t n = 0; n < 300; ++n) {
      ASSERT_TRUE(session_->Put(*tree_, KeyOf(10 * n), "v").ok());
    }
    session_->Run();
    Reference root;
    ASSERT_EQ(context().root.Load(&root), 1);
    InternalNode parent;
    ASSERT_TRUE(DecodeInternal(cluster_.At(root.address), context().layout, &parent).ok());
    for (const auto& [low, leaf] : parent.entries) {
      if (leaf.address.server() == 2) key_ = low + "+";
    }
    ASSERT_FALSE(key_.empty()) << "no leaf is there";
    annas_fabric_ = world().NewFabric();
    anna_ = *ConnectOverFabric({.seed = 7}, annas_fabric_);
    annas_tree_ = *anna_->OpenTree("t");
    annas_session_ = *anna_->NewSession();
    ASSERT_TRUE(absl::IsNotFound(annas_session_->Get(*annas_tree_, key_).status()));
    // Each size has its cells from the server that has most free; some are on the first one, too.
    std::set<ServerId> on;
    Reference next;
    for (uint64_t n = 1; !on.contains(1) || next.address.server() != 3; ++n) {
      ASSERT_LT(n, 20u) << "no cells are there";
      value_ = LargeValue(n, static_cast<uint32_t>(1'000 + 100 * n));
      ASSERT_TRUE(annas_session_->Put(*annas_tree_, KeyOf(n) + "+", value_).ok());
      next = NextCell();
      on.insert(next.address.server());
    }
    annas_session_->Spawn([this] { put_ = annas_session_->Put(*annas_tree_, key_, value_); });
    ImplOf(*annas_session_).scheduler().endpoint().Wake();
    while (KeyOfCell(cluster_.At(next.address), kCellGlanceBytes, context().id(), next.life) !=
           key_) {
      ASSERT_TRUE(world().Step());
    }
    world().PauseFabric(*annas_fabric_);
    world().Fence(1)->CutOff(kAnna);
    world().Fence(3)->CutOff(kAnna);
    world().RunUntil(world().clock().NowNs() + kSecondNs);
  }
  sim::SimWorld& world() { return cluster_.world(); }
  TreeContext& context() { return ImplOf(*tree_).context(); }
  // Of Anna's, of the size for `value_`.
  Reference NextCell() {
    NodeAllocator& allocator = ImplOf(*annas_tree_).context().environment.allocator;
    const NodePoolId pool(context().id(), static_cast<uint16_t>(CellLines(9, value_.size())));
    std::optional<SpareNode> spare = allocator.TryTake(pool, 0);
    PANDO_CHECK(spare.has_value());
    const Reference next = spare->reference();
    allocator.PutBack(pool, *std::move(spare));
    return next;
  }
  absl::Status Perform(absl::FunctionRef<absl::Status(OperationContext&)> job) {
    return ImplOf(*session_).Perform(*tree_, {.timeout_ms = 3'000}, job);
  }

  SimCluster cluster_{{.sim = {.seed = 1, .mode = sim::DeliveryMode::kWhole},
                       .memory_servers = 3,
                       .main_bytes = 64 << 20}};
  std::unique_ptr<Client> bert_ = cluster_.NewClient();
  std::unique_ptr<Tree> tree_ =
      *bert_->CreateTree("t", {.key_bytes_max = 9, .value_bytes_max = 10'000});
  std::unique_ptr<Session> session_ = *bert_->NewSession();
  std::string key_;
  std::shared_ptr<Fabric> annas_fabric_;
  std::unique_ptr<Client> anna_;
  std::unique_ptr<Tree> annas_tree_;
  std::unique_ptr<Session> annas_session_;
  std::string value_;
  absl::Status put_ = absl::UnknownError("it has not ended");
};

// Rules C2, K4: the one server that knows that she lives does not answer for a while.
TEST_F(StoppedPut, WhatItMayLinkIsNotFreedWhileAServerDoesNotAnswer) {
  world().PauseCalls(2, true);
  const absl::Status asked = Perform([&](OperationContext& operation) -> absl::Status {
    const CellQuery orphans{.tree_id = context().id(), .max = 1};
    PANDO_ASSIGN_OR_RETURN(const std::string body,
                           context().environment.control.Call(
                               operation, 3, ControlOpcode::kListCells, EncodeCellQuery(orphans)));
    PANDO_ASSIGN_OR_RETURN(const CellList list, ParseCellList(body));
    if (list.cells.empty()) return absl::NotFoundError("no orphans");
    const CellUse& orphan = list.cells.front();
    HolderStates holders(context());
    for (int turn = 0; turn < 2; ++turn) {
      OperationContext asking(operation, operation.session.NowNs() + kSecondNs);
      uint64_t generation = 0;
      const absl::StatusOr<bool> dead =
          holders.IsDeadEverywhere(asking, orphan.compute_server, orphan.incarnation, &generation);
      EXPECT_FALSE(dead.ok()) << *dead;
    }
    return absl::OkStatus();
  });
  EXPECT_TRUE(asked.ok()) << asked;
  SweepResult swept;
  const absl::Status status = Perform([&](OperationContext& operation) {
    return LargeValues(&context(), nullptr).Sweep(operation, /*thorough=*/false, &swept);
  });
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(swept.freed, 0u);
  world().PauseCalls(2, false);
  world().ResumeFabric(*annas_fabric_);
  annas_session_->Run();
  ASSERT_TRUE(put_.ok()) << put_;
  // What was freed would be somebody else's by now.
  session_->SleepUntil(world().clock().NowNs() + 2 * kSecondNs);
  for (uint64_t n = 0; n < 100; ++n) {
    const std::string value(value_.size(), static_cast<char>('a' + n % 26));
    ASSERT_TRUE(session_->Put(*tree_, KeyOf(2'000 + n), value).ok());
  }
  const auto value = session_->Get(*tree_, key_);
  ASSERT_TRUE(value.ok()) << value.status();
  EXPECT_EQ(*value, value_);
}

}  // namespace
}  // namespace pando
