// Merges (rules M1 to M6, R1) that are held up.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "bench/cost/sim_cluster.h"
#include "common/base/clock.h"
#include "common/wire/internal_node.h"
#include "common/wire/lock_word.h"
#include "compute/client/access.h"
#include "compute/client/tree_impl.h"
#include "compute/index/fill.h"

namespace pando {
namespace {

constexpr uint64_t kForeign = LockWord{777, 5}.Encode();

// What the last erase of a tree leaves fits in one leaf, but somebody has the other leaf's lock
// when the merge begins, and then the processor is elsewhere for longer than a repair may take.
// Nobody will come by once more.
TEST(MergeTest, IsTriedAgainAfterAStop) {
  SimCluster cluster({.sim = {.mode = sim::DeliveryMode::kWhole}, .memory_servers = 1});
  sim::SimWorld& world = cluster.world();
  const std::shared_ptr<Fabric> fabric = world.NewFabric();
  const auto client = *ConnectOverFabric(ClientOptions(), fabric);
  const auto tree = *client->CreateTree("t", {});
  const auto session = *client->NewSession();
  const TreeContext& context = ImplOf(*tree).context();
  constexpr uint64_t kKeys = 50;
  for (uint64_t n = 0; n < kKeys; ++n) ASSERT_TRUE(session->Put(*tree, KeyOf(n), "v").ok());
  Reference root;
  ASSERT_EQ(context.root.Load(&root), 1);
  InternalNode root_node;
  ASSERT_TRUE(DecodeInternal(cluster.At(root.address), context.layout, &root_node).ok());
  ASSERT_EQ(root_node.entries.size(), 1u) << "a root and two leaves";
  const LockTarget root_lock = *context.NodeLock(root);
  const LockTarget right_lock = *context.NodeLock(root_node.entries[0].child);
  const auto root_is_locked = [&] { return cluster.LockWordAt(root_lock) != LockWord::kFree; };

  uint32_t left = 0;  // records of the left leaf
  while (KeyOf(left) < root_node.entries[0].key) ++left;
  for (; !IsMergeDue(left - 1, context.layout); --left) {
    ASSERT_TRUE(session->Erase(*tree, KeyOf(left - 1)).ok());
  }
  cluster.SetLockWord(right_lock, kForeign);
  session->Spawn([&] {
    EXPECT_TRUE(session->Erase(*tree, KeyOf(left - 1)).ok());
    const auto step = [&] { EXPECT_TRUE(session->Get(*tree, KeyOf(0)).ok()); };
    while (!root_is_locked()) step();
    while (root_is_locked()) step();
    EXPECT_EQ(client->Stats().tree.merges, 0u) << "the first attempt is over";
    world.PauseFabric(*fabric);
    world.At(world.clock().NowNs() + 50 * kMillisecondNs, [&] {
      cluster.SetLockWord(right_lock, LockWord::kFree);
      world.ResumeFabric(*fabric);
    });
  });
  session->Run();
  EXPECT_EQ(client->Stats().tree.merges, 1u);
  EXPECT_EQ(client->Stats().tree.root_shrinks, 1u);
}

}  // namespace
}  // namespace pando
