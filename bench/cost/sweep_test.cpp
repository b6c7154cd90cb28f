// Sweeps (rule C5) that meet what a plain death does not leave: dead nodes that a living client
// holds, and a sweeper that is cut off itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/cost/list_counter.h"
#include "bench/cost/sim_cluster.h"
#include "common/base/status.h"
#include "common/wire/control.h"
#include "common/wire/lock_word.h"
#include "common/wire/node_image.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/index/descend.h"
#include "compute/index/operations.h"
#include "compute/owner/flush.h"

namespace pando {
namespace {

// A compute server with one session on tree "t", which can be killed.
struct Mortal {
  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<Client> client;
  std::unique_ptr<Tree> tree;
  std::unique_ptr<Session> session;

  void Put(uint64_t from, uint64_t to) const {
    for (uint64_t n = from; n < to; ++n) {
      ASSERT_TRUE(session->Put(*tree, KeyOf(n), KeyOf(n)).ok()) << n;
    }
  }
  void Erase(uint64_t from, uint64_t to) const {
    for (uint64_t n = from; n < to; ++n) ASSERT_TRUE(session->Erase(*tree, KeyOf(n)).ok()) << n;
  }
  // The tree's keys are 0, 1, ... count - 1.
  void ExpectKeys(uint64_t count) const {
    std::vector<KeyValue> rows;
    ASSERT_TRUE(session->Scan(*tree, "", SIZE_MAX, &rows).ok());
    ASSERT_EQ(rows.size(), count);
    for (uint64_t n = 0; n < count; ++n) EXPECT_EQ(rows[n].key, KeyOf(n));
  }
};

class SweepCluster : public SimCluster {
 public:
  explicit SweepCluster(int memory_servers = 2)
      : SimCluster({.sim = {.mode = sim::DeliveryMode::kWhole},
                    .memory_servers = memory_servers,
                    .main_bytes = 8 << 20}) {}

  Mortal Connect(ClientOptions options = {}) {
    Mortal mortal;
    mortal.fabric = world().NewFabric();
    options.seed = ++clients_;
    mortal.client = *ConnectOverFabric(options, mortal.fabric);
    mortal.tree = *mortal.client->CreateTree("t", {});
    mortal.session = *mortal.client->NewSession();
    return mortal;
  }
  // Returns when the memory servers have noticed.
  void Kill(const Mortal& mortal) {
    world().KillFabric(*mortal.fabric);
    world().RunUntil(world().clock().NowNs() + kSecondNs);
  }
  uint64_t NodesFreed() { return Counter("nodes_freed"); }

 private:
  uint64_t clients_ = 0;
};

// The nodes are Bert's; Anna merged them away, and died with the frees still queued. That they are
// dead and out of reach is enough: Bert, who lives, knows nothing of Anna's merges.
TEST(Sweep, FreesDeadNodesOfTheLiving) {
  constexpr uint64_t kKeys = 1'000, kLeft = 100;
  SweepCluster cluster;
  const Mortal bert = cluster.Connect();
  ASSERT_NO_FATAL_FAILURE(bert.Put(0, kKeys));
  const Mortal anna = cluster.Connect();
  ASSERT_NO_FATAL_FAILURE(anna.Erase(kLeft, kKeys));
  const uint64_t merges = anna.client->Stats().tree.merges;
  ASSERT_GT(merges, 10u);
  ASSERT_EQ(cluster.NodesFreed(), 0u) << "nothing is left to sweep";
  cluster.Kill(anna);

  SweepResult swept;
  const absl::Status status = bert.session->Sweep(*bert.tree, &swept);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_GE(swept.freed, merges);
  EXPECT_EQ(swept.left, 0u);
  EXPECT_EQ(cluster.NodesFreed(), swept.freed);
  bert.ExpectKeys(kLeft);
  cluster.Connect().ExpectKeys(kLeft);
}

// Anna's nodes are listed to a sweeper, which is stopped then. Bert's sweep frees them, and Carl is
// about to link one of them: it is written, and no way leads there. He lives, Anna does not.
TEST(Sweep, ALaterLifeOfANodeIsNotThatOfItsDeadHolder) {
  SweepCluster cluster(/*memory_servers=*/1);
  const Mortal anna = cluster.Connect();
  ASSERT_NO_FATAL_FAILURE(anna.Put(0, 1'000));
  ASSERT_NO_FATAL_FAILURE(anna.Erase(100, 1'000));
  const Mortal sweeper = cluster.Connect();
  const Mortal bert = cluster.Connect();
  cluster.Kill(anna);
  sim::SimWorld& world = cluster.world();
  SweepResult early, late;
  absl::Status swept = absl::UnknownError("not over");
  sweeper.session->Spawn([&] { swept = sweeper.session->Sweep(*sweeper.tree, &late); });
  ImplOf(*sweeper.session).scheduler().endpoint().Wake();
  // It READs the first one: it has the list.
  const uint64_t chains = world.stats().chains;
  while (world.stats().chains == chains) ASSERT_TRUE(world.Step());
  world.PauseFabric(*sweeper.fabric);

  ASSERT_TRUE(bert.session->Sweep(*bert.tree, &early).ok());
  ASSERT_GT(cluster.NodesFreed(), 0u);
  world.RunUntil(world.clock().NowNs() + 2 * kSecondNs);  // a rest
  const Mortal carl = cluster.Connect();
  TreeContext& tree = ImplOf(*carl.tree).context();
  const auto refill = [&](OperationContext& context) { return tree.Refill(context, 1); };
  ASSERT_TRUE(ImplOf(*carl.session).Perform(*carl.tree, {}, refill).ok());
  std::vector<RemoteAddress> written;
  while (std::optional<SpareNode> spare = tree.environment.allocator.TryTake(tree.id(), 1)) {
    if (spare->old_image == nullptr) continue;
    std::byte* const image = cluster.At(spare->address);
    NodeHeader header = ReadHeader(image, tree.layout);
    header.life = spare->life;
    header.state = NodeState::kLive;
    WriteHeader(image, tree.layout, header);
    SealNodeLevel(image, spare->OldImage(image), tree.layout, tree.environment.crc);
    written.push_back(spare->address);
  }
  ASSERT_FALSE(written.empty()) << "nobody uses again what was freed";

  world.ResumeFabric(*sweeper.fabric);
  sweeper.session->Run();
  EXPECT_TRUE(swept.ok()) << swept;
  for (const RemoteAddress node : written) {
    EXPECT_EQ(StateOf(cluster.At(node)), NodeState::kLive) << node.offset();
  }
}

// An operation that needs several refills is told of the orphans by each of them, and only the
// first one is in time for the sweep.
TEST(Sweep, ALaterRefillOfAnOperationDoesNotForgetThatASweepIsDue) {
  SweepCluster cluster;
  const Mortal dead = cluster.Connect();
  ASSERT_NO_FATAL_FAILURE(dead.Put(0, 150));
  const Mortal bert = cluster.Connect();
  cluster.Kill(dead);
  TreeContext& tree = ImplOf(*bert.tree).context();
  const auto refill = [&](OperationContext& context) {
    PANDO_RETURN_IF_ERROR(tree.Refill(context, 1));
    const bool due = context.sweep_due;
    EXPECT_TRUE(due) << "no server has spoken of orphans";
    PANDO_RETURN_IF_ERROR(tree.Refill(context, 1));
    EXPECT_EQ(context.sweep_due, due);
    context.sweep_due = false;  // not here
    return absl::OkStatus();
  };
  const absl::Status status = ImplOf(*bert.session).Perform(*bert.tree, {}, refill);
  EXPECT_TRUE(status.ok()) << status;
}

// The same of a repair that needs a node: of a tree that could not grow while its client lived.
TEST(Sweep, ARefillOfARepairMakesTheSweepThatIsDue) {
  constexpr uint64_t kKeys = 150;
  SweepCluster cluster(/*memory_servers=*/1);
  const Mortal bert = cluster.Connect();
  const Mortal dead = cluster.Connect();
  const LockTarget lock = ImplOf(*bert.tree).context().RootLock();
  cluster.SetLockWord(lock, LockWord{777, 5}.Encode());
  for (uint64_t n = 0; n < kKeys; ++n) {
    ASSERT_TRUE(dead.session->Put(*dead.tree, KeyOf(n), KeyOf(n), {.timeout_ms = 5}).ok());
  }
  cluster.Kill(dead);
  cluster.SetLockWord(lock, LockWord::kFree);
  // None of these needs a node.
  for (uint64_t n = 0; n < 2 * kKeys; ++n) {
    const std::string key = KeyOf(n % kKeys);
    ASSERT_TRUE(bert.session->Update(*bert.tree, key, key).ok());
  }
  bert.session->Run();
  ASSERT_EQ(bert.client->Stats().tree.root_splits, 1u);
  const Mortal carl = cluster.Connect();
  SweepResult swept;
  const absl::Status status = carl.session->Sweep(*carl.tree, &swept);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(swept.freed + swept.settled, 0u) << "bert has not swept";
}

// Of a flush of an owned tree's records, or of their recovery: the leaf's split takes the only node
// at hand, and the root above it needs another one.
TEST(Sweep, ARefillForAFlushsSeparatorsMakesTheSweepThatIsDue) {
  SweepCluster cluster(/*memory_servers=*/1);
  const Mortal bert = cluster.Connect();
  TreeContext& tree = ImplOf(*bert.tree).context();
  const uint64_t full = tree.layout.slot_count();
  ASSERT_NO_FATAL_FAILURE(bert.Put(0, full));
  const Mortal dead = cluster.Connect();
  for (const Mortal* one : {&bert, &dead}) {
    const auto refill = [&](OperationContext& context) {
      return ImplOf(*one->tree).context().Refill(context, 1);
    };
    ASSERT_TRUE(ImplOf(*one->session).Perform(*one->tree, {}, refill).ok());
  }
  cluster.Kill(dead);
  NodeAllocator& allocator = tree.environment.allocator;
  std::optional<SpareNode> last;
  while (auto spare = allocator.TryTake(tree.id(), 1)) last = std::move(spare);
  ASSERT_TRUE(last.has_value());
  allocator.PutBack(tree.id(), *std::move(last));
  const std::vector<FlushItem> items = {{.key = KeyOf(full), .value = "v"},
                                        {.key = KeyOf(full + 1), .value = "v"}};
  const auto flush = [&](OperationContext& context) {
    FlushCounts counts;
    return FlushToLeaves(&context.session, &tree, context.deadline_ns(), items, &counts,
                         [](size_t, FlushResult) {});
  };
  ListCounter counter(&cluster.server(0));
  cluster.world().SetHandler(1, &counter);
  ASSERT_TRUE(ImplOf(*bert.session).Perform(*bert.tree, {}, flush).ok());
  EXPECT_EQ(bert.client->Stats().tree.root_splits, 1u);
  EXPECT_GT(counter.lists(), 0) << "bert has not swept";
  cluster.world().SetHandler(1, &cluster.server(0));
}

// A repair merges, and is to sweep then. Meanwhile a memory server starts again.
TEST(Sweep, OfATreeThatIsLostMeanwhileNothingIsSwept) {
  for (const bool lost : {false, true}) {
    SweepCluster cluster;
    sim::SimWorld& world = cluster.world();
    const Mortal bert = cluster.Connect();
    ASSERT_NO_FATAL_FAILURE(bert.Put(0, 150));
    TreeContext& tree = ImplOf(*bert.tree).context();
    ListCounter counter(&cluster.server(0));
    world.SetHandler(1, &counter);
    const auto note = [&](OperationContext& context) {
      context.underfull = KeyOf(0);
      context.sweep_due = true;
      return tree.Refill(context, 2);
    };
    ASSERT_TRUE(ImplOf(*bert.session).Perform(*bert.tree, {}, note).ok());
    absl::Status added;
    world.At(world.clock().NowNs() + kMicrosecondNs, [&] {
      if (!lost) return;
      cluster.StartAgain(2);
      added = ImplOf(*bert.client).AddMember({.id = 2});
    });
    bert.session->Run();
    EXPECT_TRUE(added.ok()) << added;
    EXPECT_EQ(tree.fate.lost(), lost);
    EXPECT_EQ(counter.lists() > 0, !lost);
    world.SetHandler(1, &cluster.server(0));
  }
}

// A session's next write waits for the sweep that the one before has made due. A memory server that
// says nothing is no reason to wait for as long as the write itself may take.
TEST(Sweep, NoWriteWaitsLongForOneThatMeetsASilentServer) {
  SweepCluster cluster;
  sim::SimWorld& world = cluster.world();
  const Mortal dead = cluster.Connect();
  ASSERT_NO_FATAL_FAILURE(dead.Put(0, 3'000));
  const Mortal bert = cluster.Connect();
  cluster.Kill(dead);
  world.PauseServer(2);
  int64_t longest_ns = 0;
  for (uint64_t n = 3'000; n < 4'000; ++n) {
    const int64_t begun_ns = world.clock().NowNs();
    const absl::Status put = bert.session->Put(*bert.tree, KeyOf(n), KeyOf(n));
    ASSERT_TRUE(put.ok()) << put;
    longest_ns = std::max(longest_ns, world.clock().NowNs() - begun_ns);
  }
  EXPECT_LT(longest_ns, kSecondNs);
  world.ResumeServer(2);
  SweepResult swept;
  const absl::Status status = bert.session->Sweep(*bert.tree, &swept);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_GT(swept.settled + swept.freed, 0u) << "nobody has met an orphan";
  bert.ExpectKeys(4'000);
}

// Somebody was stopped inside a leaf, and its lock is his. What the dead merged into that leaf
// waits for him, and nothing else does.
TEST(Sweep, ALeafThatStaysTornKeepsNoOtherOrphan) {
  constexpr uint64_t kKeys = 1'000;
  SweepCluster cluster(/*memory_servers=*/1);
  const Mortal bert = cluster.Connect();
  ASSERT_NO_FATAL_FAILURE(bert.Put(0, kKeys));
  const Mortal anna = cluster.Connect();
  ASSERT_NO_FATAL_FAILURE(anna.Erase(100, 400));
  ASSERT_NO_FATAL_FAILURE(anna.Erase(500, 900));
  const uint64_t merges = anna.client->Stats().tree.merges;
  ASSERT_EQ(cluster.NodesFreed(), 0u) << "nothing is left to sweep";
  cluster.Kill(anna);

  // Who has nothing cached is led to the leaf that has absorbed the others.
  const Mortal fresh = cluster.Connect();
  TreeContext& tree = ImplOf(*fresh.tree).context();
  Reference leaf;
  const absl::Status found = ImplOf(*fresh.session).Perform(*fresh.tree, {}, [&](auto& context) {
    Descent descent(context, tree, KeyOf(250), 0);
    absl::Status status = descent.Find();
    leaf = descent.node();
    return status;
  });
  ASSERT_TRUE(found.ok()) << found;
  const LockTarget lock = *tree.NodeLock(leaf);
  cluster.SetLockWord(lock, LockWord{777, 5}.Encode());
  std::byte* const line = cluster.At(leaf.address) + kLineBytes;
  *line ^= std::byte{1};  // its EV at the front

  for (const bool thorough : {false, true}) {
    SweepResult swept;
    const int64_t begun_ns = cluster.world().clock().NowNs();
    const auto sweep = [&](OperationContext& context) {
      return SweepTree(context, tree, thorough, &swept);
    };
    const absl::Status status = ImplOf(*fresh.session).Perform(*fresh.tree, {}, sweep);
    EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
    EXPECT_LT(cluster.world().clock().NowNs() - begun_ns, thorough ? 5 * kSecondNs : kSecondNs);
    EXPECT_GT(swept.left, 0u);
  }
  EXPECT_GT(cluster.NodesFreed(), merges / 3);

  *line ^= std::byte{1};
  cluster.SetLockWord(lock, LockWord::kFree);
  SweepResult swept;
  const absl::Status status = fresh.session->Sweep(*fresh.tree, &swept);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(swept.left, 0u);
  EXPECT_GE(cluster.NodesFreed(), merges);
}

// Nor does a write wait for as many as there are: the next sweep goes on.
TEST(Sweep, OneThatASessionMakesByItselfIsMadeInParts) {
  SweepCluster cluster(/*memory_servers=*/1);
  const Mortal dead = cluster.Connect();
  ASSERT_NO_FATAL_FAILURE(dead.Put(0, 30'000));
  const Mortal bert = cluster.Connect();
  cluster.Kill(dead);
  TreeContext& tree = ImplOf(*bert.tree).context();
  SweepResult swept;
  const auto sweep = [&](OperationContext& context) {
    return SweepTree(context, tree, /*thorough=*/false, &swept);
  };
  const auto count = [&] {
    const absl::Status status = ImplOf(*bert.session).Perform(*bert.tree, {}, sweep);
    EXPECT_TRUE(status.ok()) << status;
    return swept.settled + swept.freed;
  };
  EXPECT_EQ(count(), 512u);
  EXPECT_GT(count(), 0u);
  ASSERT_TRUE(bert.session->Sweep(*bert.tree, &swept).ok());
  EXPECT_EQ(swept.settled + swept.freed, 0u) << "two were enough";
}

// Sweeps a tree whose nodes a dead client held, all of them in use; after so many events the
// sweeper's session learns that it has been cut off. False: the sweep was over by then.
bool SweepUntilFenced(int events) {
  constexpr uint64_t kKeys = 150;  // a root, and leaves that came after it
  SweepCluster cluster;
  const Mortal dead = cluster.Connect();
  dead.Put(0, kKeys);
  cluster.Kill(dead);
  // Each of its descents READs the root.
  const Mortal sweeper = cluster.Connect({.index_cache_bytes = 1});
  SessionContext& session = ImplOf(*sweeper.session).context();
  std::atomic<bool> fenced = false;
  session.set_fenced_flag(&fenced);
  bool done = false;
  SweepResult swept;
  absl::Status status;
  sweeper.session->Spawn([&] {
    OperationContext context(&session, session.NowNs() + kSecondNs);
    status = SweepTree(context, ImplOf(*sweeper.tree).context(), /*thorough=*/true, &swept);
    done = true;
  });
  for (int i = 0; i < events && !done; ++i) cluster.world().Step();
  const bool in_time = !done;
  fenced = true;
  sweeper.session->Run();
  fenced = false;
  if (!in_time) {
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_GE(swept.settled, 2u) << "there was nothing to decide";
  }
  EXPECT_EQ(cluster.NodesFreed(), 0u) << "after " << events << " events";
  sweeper.ExpectKeys(kKeys);
  return in_time;
}

// A descent that fails because the sweeper is fenced is no proof that nothing reaches the node. The
// server of the node may not have heard of it yet, and would do what it is asked.
TEST(Sweep, TheFencedFreeNothing) {
  int events = 0;
  while (SweepUntilFenced(events)) ++events;
  EXPECT_GT(events, 20);
}

}  // namespace
}  // namespace pando
