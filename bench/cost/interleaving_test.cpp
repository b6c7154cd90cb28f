// Interleavings that a review found: each lost, damaged or aborted something before it was fixed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "common/base/random.h"
#include "common/wire/internal_node.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"

namespace pando {
namespace {

SimCluster::Options Quiet(uint64_t seed) {
  return {.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole}};
}

// Runs `job` in a coroutine of the session.
template <typename Job>
void RunIn(Session& session, Job job) {
  session.Spawn([&] {
    OperationContext context(&ImplOf(session).context(),
                             ImplOf(session).context().NowNs() + 1000 * kMillisecondNs);
    job(context);
  });
  session.Run();
}

void ReadInternalNode(OperationContext& context, TreeContext& tree, const Reference& node,
                      uint8_t level, std::string_view key, InternalNode* decoded) {
  auto image = context.session.buffers().Lease(tree.layout.node_bytes());
  ASSERT_TRUE(image.ok());
  auto verdict = ReadNode(context, tree, node, level, key, image->buffer());
  ASSERT_TRUE(verdict.ok()) << verdict.status();
  ASSERT_EQ(*verdict, NodeVerdict::kAccepted);
  ASSERT_TRUE(DecodeInternal(image->data(), tree.layout, decoded).ok());
}

// Rule S3. Somebody noticed a missing separator; before the repair the separator was inserted, and
// its parent split just there, so that it moved up and its child is the new parent's leftmost.
TEST(Interleaving, ASeparatorThatMovedUpIsNotInsertedAgain) {
  constexpr uint64_t kKeys = 20'000;
  SimCluster cluster(Quiet(1));
  auto client = cluster.NewClient();
  auto tree = *client->CreateTree("t", {});
  auto session = *client->NewSession();
  for (uint64_t i = 0; i < kKeys; ++i) ASSERT_TRUE(session->Put(*tree, KeyOf(i), "x").ok());
  RunIn(*session, [&](OperationContext& context) {
    TreeContext& t = ImplOf(*tree).context();
    const auto record = ReadRoot(context, t);
    ASSERT_TRUE(record.ok());
    ASSERT_GE(record->level, 2);
    InternalNode root, parent;
    ReadInternalNode(context, t, record->root, record->level, "", &root);
    const Separator moved_up = root.entries.front();
    const auto level = static_cast<uint8_t>(record->level - 1);
    ReadInternalNode(context, t, moved_up.child, level, moved_up.key, &parent);
    ASSERT_EQ(parent.header.low, moved_up.key);
    EXPECT_TRUE(InsertSeparator(context, t, {level, moved_up.key, parent.header.leftmost}).ok());
  });
  auto other = cluster.NewClient();
  auto other_tree = *other->OpenTree("t");
  auto other_session = *other->NewSession();
  for (uint64_t i = 0; i < kKeys; ++i) {
    auto value = other_session->Get(*other_tree, KeyOf(i));
    ASSERT_TRUE(value.ok()) << value.status() << " at " << i;
  }
}

// A get notices a missing separator and leaves its repair to the session's next write, here to
// another tree; returns how many repairs that write made.
uint64_t RepairsAfterMissingSeparator(bool close_tree_before) {
  SimCluster cluster(Quiet(2));
  auto writer = cluster.NewClient(), reader = cluster.NewClient({.index_cache_bytes = 1});
  auto tree = *writer->CreateTree("t", {}), readers_tree = *reader->CreateTree("t", {});
  auto other = *reader->CreateTree("other", {});
  auto writing = *writer->NewSession(), reading = *reader->NewSession();
  uint64_t written = 0;
  writing->Spawn([&] {
    for (; written < 4000; ++written) ASSERT_TRUE(writing->Put(*tree, KeyOf(written), "x").ok());
  });
  while (written < 4000) {
    (void)reading->Get(*readers_tree, KeyOf(written == 0 ? 0 : written - 1));
  }
  writing->Run();
  if (close_tree_before) readers_tree.reset();
  EXPECT_TRUE(reading->Put(*other, "k", "v").ok());
  reading->Run();
  return reader->Stats().tree.separator_repairs;
}

// A closed tree's queued repairs are forgotten: they neither keep it open nor look at it.
TEST(Interleaving, ARepairIsForgottenWithTheTreesLastHandle) {
  EXPECT_GT(RepairsAfterMissingSeparator(false), 0u) << "the test has to meet the case";
  EXPECT_EQ(RepairsAfterMissingSeparator(true), 0u);
}

// Another client splits level-1 nodes: the cached level above them goes out of date.
TEST(Interleaving, ACacheRecoversFromForeignSplitsOfInternalNodes) {
  constexpr uint64_t kKeys = 40'000;
  SimCluster cluster(Quiet(3));
  auto writer = cluster.NewClient(), reader = cluster.NewClient();
  auto tree = *writer->CreateTree("t", {}), readers_tree = *reader->CreateTree("t", {});
  auto writing = *writer->NewSession(), reading = *reader->NewSession();
  Random random(1);
  for (uint64_t i = 0; i < kKeys; ++i) {  // even keys
    ASSERT_TRUE(writing->Put(*tree, KeyOf(i * 2), "x").ok());
  }
  const auto read_all = [&] {
    OperationCost cost;
    for (uint64_t i = 0; i < kKeys; i += 10) {
      EXPECT_TRUE(reading->Get(*readers_tree, KeyOf(i * 2), {.cost = &cost}).ok()) << i;
    }
    return static_cast<double>(cost.round_trips) / (kKeys / 10);
  };
  (void)read_all();
  EXPECT_LE(read_all(), 1.01);
  for (uint64_t i = 0; i < kKeys; ++i) {  // and the odd ones: every leaf splits
    ASSERT_TRUE(writing->Put(*tree, KeyOf(i * 2 + 1), "x").ok());
  }
  (void)read_all();
  (void)read_all();
  EXPECT_LE(read_all(), 1.01);
}

// A memory server joins after a client has connected; another client puts nodes there.
TEST(Interleaving, ANodeOnAServerThatTheClientDoesNotKnow) {
  SimCluster cluster(Quiet(4));
  auto client = cluster.NewClient();
  auto tree = *client->CreateTree("t", {});
  auto session = *client->NewSession();
  ASSERT_TRUE(session->Put(*tree, "k", "v").ok());
  TreeContext& context = ImplOf(*tree).context();
  context.root.Store({.tree_id = context.id(), .root = {RemoteAddress(77, 4096), 1}});
  EXPECT_FALSE(session->Get(*tree, "k").ok());
  EXPECT_FALSE(session->Put(*tree, "k", "w").ok());
  context.root.Store({});
  EXPECT_TRUE(session->Get(*tree, "k").ok());
}

}  // namespace
}  // namespace pando
