// Merges (rules M1 to M6, R1) that are held up, and those that batches of erases are due to.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "common/base/clock.h"
#include "common/wire/internal_node.h"
#include "common/wire/lock_word.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/index/fill.h"
#include "compute/index/lock_set.h"

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
  for (; !IsMergeDue(left, left - 1, context.layout); --left) {
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

class BatchedErases : public testing::Test {
 protected:
  void Put(uint64_t from, uint64_t to) {
    std::vector<KeyValue> entries;
    for (uint64_t n = from; n < to; ++n) entries.push_back({KeyOf(n), "v"});
    for (const absl::Status& put : session_->MultiPut(*tree_, entries))
      ASSERT_TRUE(put.ok()) << put;
  }
  void Erase(const std::vector<std::string>& keys) {
    for (const absl::Status& erase : session_->MultiErase(*tree_, keys)) {
      ASSERT_TRUE(erase.ok()) << erase;
    }
  }
  uint64_t Leaves() {
    session_->Run();  // what is still to be merged
    const auto report = session_->Check(*tree_, {.quiet_tree = true});
    EXPECT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->ok()) << report->problems.front();
    std::printf("%lu leaves, %lu keys, %lu merges\n", report->nodes_per_level[0], report->keys,
                client_->Stats().tree.merges);
    return report->nodes_per_level[0];
  }

  SimCluster cluster_{{.sim = {.mode = sim::DeliveryMode::kWhole}}};
  std::unique_ptr<Client> client_ = cluster_.NewClient();
  std::unique_ptr<Tree> tree_ = *client_->CreateTree("t", {});
  std::unique_ptr<Session> session_ = *client_->NewSession();
};

// The oldest keys go as new ones come: as many leaves as their keys need, however long that lasts.
TEST_F(BatchedErases, AQueueTakesNoMoreLeavesWithTime) {
  constexpr uint64_t kLive = 5'000, kBatch = 1'000;
  Put(0, kLive);
  const uint64_t before = Leaves();
  for (uint64_t first = 0; first < 600'000; first += kBatch) {
    Put(first + kLive, first + kLive + kBatch);
    std::vector<std::string> keys;
    for (uint64_t n = first; n < first + kBatch; ++n) keys.push_back(KeyOf(n));
    Erase(keys);
  }
  EXPECT_LT(Leaves(), 2 * before);
}

// Each leaf goes from full to three keys at once.
TEST_F(BatchedErases, LeavesThatAreThinnedAtOnceAreMerged) {
  constexpr uint64_t kKeys = 20'000;
  Put(0, kKeys);
  const uint64_t before = Leaves();
  std::vector<std::string> keys;
  for (uint64_t n = 0; n < kKeys; ++n) {
    if (n % 14 != 0) keys.push_back(KeyOf(n));
  }
  Erase(keys);
  EXPECT_LT(Leaves(), before / 4);
  EXPECT_GT(client_->Stats().tree.merges, before / 2);
}

// Coroutines of one call, and the merges they cause, are in each other's way.
TEST_F(BatchedErases, OfATreeThatIsErasedInOneCallHardlyALeafIsLeft) {
  constexpr uint64_t kKeys = 100'000;
  Put(0, kKeys);
  const uint64_t before = Leaves();
  std::vector<std::string> keys;
  for (uint64_t n = 0; n < kKeys; ++n) keys.push_back(KeyOf(n));
  Erase(keys);
  EXPECT_LT(Leaves(), before / 500);
}

// A node lies on a memory server that has come since. Who holds other locks does not wait until it
// is connected.
TEST(LockSetTest, WaitsForNoServerThatItsClientDoesNotKnow) {
  SimCluster cluster({.sim = {.mode = sim::DeliveryMode::kWhole}, .memory_servers = 1});
  const auto client = cluster.NewClient();
  const auto tree = *client->CreateTree("t", {});
  const auto session = *client->NewSession();
  TreeContext& context = ImplOf(*tree).context();
  // Somebody looks for servers, and takes long.
  ImplOf(*session).context().membership()->StartLooking();
  const Reference node = {RemoteAddress(7, 1 << 20), 1};
  int64_t waited_ns = 0;
  const auto add = [&](OperationContext& operation) {
    PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                           operation.session.buffers().Lease(context.layout.node_bytes()));
    LockSet locks(operation, context);
    const int64_t begun_ns = operation.session.NowNs();
    const absl::Status added = locks.TryAdd(node, image.buffer()).status();
    waited_ns = operation.session.NowNs() - begun_ns;
    return added;
  };
  const absl::Status status = ImplOf(*session).Perform(*tree, {}, add);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(waited_ns, 0);
  ImplOf(*session).context().membership()->StopLooking();
}

}  // namespace
}  // namespace pando
