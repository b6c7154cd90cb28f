// A bulk load that dies between any two packets: the tree is empty or loaded, and the next client
// may load it if it is empty (rules R4, C4).
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "compute/client/connect.h"

namespace pando {
namespace {

constexpr uint64_t kRecords = 200;  // a root and some leaves

absl::Status LoadRecords(Session& session, const Tree& tree) {
  uint64_t next = 0;
  return session.BulkLoad(tree, [&](KeyValue* entry) {
    if (next == kRecords) return false;
    entry->key = entry->value = KeyOf(next++);
    return true;
  });
}

// Memory servers, and a client of the tree.
struct Stage {
  explicit Stage(uint64_t seed)
      : cluster({.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole}, .main_bytes = 8 << 20}),
        client(cluster.NewClient()),
        tree(*client->CreateTree("t", {})),
        session(*client->NewSession()) {}
  SimCluster cluster;
  std::unique_ptr<Client> client;
  std::unique_ptr<Tree> tree;
  std::unique_ptr<Session> session;
};

// Runs a load that dies after so many packets. False: it was done by then.
bool DieLoading(SimCluster& cluster, uint64_t packets) {
  const std::shared_ptr<Fabric> fabric = cluster.world().NewFabric();
  auto client = *ConnectOverFabric({.seed = 1}, fabric);
  auto tree = *client->OpenTree("t");
  auto session = *client->NewSession();
  cluster.world().LimitPackets(*fabric, packets);
  bool done = false;
  session->Spawn([&] {
    (void)LoadRecords(*session, *tree);
    done = true;
  });
  while (!done && !cluster.world().PacketsSpent(*fabric)) EXPECT_TRUE(cluster.world().Step());
  const bool died = !done;
  cluster.world().KillFabric(*fabric);
  session->Run();
  return died;
}

TEST(BulkLoadCrash, TheNextOneLoadsAnEmptyTree) {
  bool died = true;
  uint64_t found_empty = 0, found_loaded = 0;
  for (uint64_t packets = 0; died; ++packets) {
    SCOPED_TRACE(packets);
    Stage stage(packets + 1);
    SimCluster& cluster = stage.cluster;
    const std::unique_ptr<Tree>& tree = stage.tree;
    const std::unique_ptr<Session>& session = stage.session;
    died = DieLoading(cluster, packets);
    cluster.world().RunUntil(cluster.world().clock().NowNs() + kSecondNs);  // the servers notice

    const absl::Status loaded = LoadRecords(*session, *tree);
    if (loaded.ok()) {
      ++found_empty;
    } else {
      ++found_loaded;
      ASSERT_TRUE(absl::IsFailedPrecondition(loaded)) << loaded;
    }
    std::vector<KeyValue> rows;
    ASSERT_TRUE(session->Scan(*tree, "", SIZE_MAX, &rows).ok());
    ASSERT_EQ(rows.size(), kRecords) << loaded;
    for (uint64_t n = 0; n < kRecords; ++n) ASSERT_EQ(rows[n].key, KeyOf(n));
  }
  EXPECT_GT(found_empty, 3u) << "also between the mark of the old root and the new root record";
  EXPECT_GE(found_loaded, 1u);
}

// The same while another load is under way, which has seen that the tree is empty.
TEST(BulkLoadCrash, OneThatIsUnderWayLoadsAnEmptyTree) {
  bool died = true;
  uint64_t loaded_over = 0;
  for (uint64_t packets = 0; died; ++packets) {
    SCOPED_TRACE(packets);
    Stage stage(packets + 1);
    SimCluster& cluster = stage.cluster;
    const std::unique_ptr<Tree>& tree = stage.tree;
    const std::unique_ptr<Session>& session = stage.session;
    absl::Status loaded = absl::UnknownError("under way");
    session->Spawn([&] {
      uint64_t next = 0;
      loaded = session->BulkLoad(*tree, [&](KeyValue* entry) {
        if (next == 0) session->SleepUntil(cluster.world().clock().NowNs() + 2 * kSecondNs);
        if (next == kRecords) return false;
        entry->key = entry->value = KeyOf(next++);
        return true;
      });
    });
    cluster.world().RunUntil(cluster.world().clock().NowNs() + kMillisecondNs);
    died = DieLoading(cluster, packets);
    session->Run();
    ASSERT_TRUE(loaded.ok() || absl::IsFailedPrecondition(loaded)) << loaded;
    loaded_over += died && loaded.ok() ? 1 : 0;
    std::vector<KeyValue> rows;
    ASSERT_TRUE(session->Scan(*tree, "", SIZE_MAX, &rows).ok());
    ASSERT_EQ(rows.size(), kRecords) << loaded;
  }
  EXPECT_GT(loaded_over, 3u);
}

// A merge that dies between any two packets leaves the tree with one leaf, another client makes
// that the root, and a third one loads the tree, which is empty. A fourth has the leaf that was
// merged away in its cache, and finds what was loaded (rules M7, R1).
TEST(BulkLoadCrash, ARootThatADeadMergerHasLeft) {
  constexpr uint64_t kKeys = 43;  // one more than a leaf has slots
  constexpr uint64_t kLast = kKeys - 1;
  bool died = true;
  uint64_t shrunk = 0;
  for (uint64_t packets = 0; died; ++packets) {
    SCOPED_TRACE(packets);
    SimCluster cluster(
        {.sim = {.seed = packets + 1, .mode = sim::DeliveryMode::kWhole}, .main_bytes = 8 << 20});
    struct Actor {
      explicit Actor(std::unique_ptr<Client> with)
          : client(std::move(with)),
            tree(*client->CreateTree("t", {})),
            other(*client->CreateTree("other", {})),
            session(*client->NewSession()) {}
      std::unique_ptr<Client> client;
      std::unique_ptr<Tree> tree, other;
      std::unique_ptr<Session> session;
    };
    Actor reader(cluster.NewClient()), eraser(cluster.NewClient()), loader(cluster.NewClient());
    const std::shared_ptr<Fabric> fabric = cluster.world().NewFabric();
    Actor merger(*ConnectOverFabric({.seed = 1}, fabric));

    for (uint64_t n = 0; n < kKeys; ++n) {
      ASSERT_TRUE(eraser.session->Put(*eraser.tree, KeyOf(n), "old").ok());
    }
    ASSERT_TRUE(reader.session->Get(*reader.tree, KeyOf(kLast)).ok());
    // A session merges what it has left underfull at its next write: these have none.
    std::vector<std::unique_ptr<Session>> others;
    for (uint64_t n = 1; n < kLast; ++n) {
      others.push_back(*eraser.client->NewSession());
      ASSERT_TRUE(others.back()->Erase(*eraser.tree, KeyOf(n)).ok());
    }
    ASSERT_TRUE(eraser.session->Erase(*eraser.tree, KeyOf(0)).ok());
    ASSERT_TRUE(merger.session->Erase(*merger.tree, KeyOf(kLast)).ok());

    cluster.world().LimitPackets(*fabric, packets);
    bool done = false;
    merger.session->Spawn([&] {
      (void)merger.session->Put(*merger.other, "key", "value");
      merger.session->SleepUntil(cluster.world().clock().NowNs() + 10 * kMillisecondNs);
      done = true;
    });
    while (!done && !cluster.world().PacketsSpent(*fabric)) ASSERT_TRUE(cluster.world().Step());
    died = !done;
    cluster.world().KillFabric(*fabric);
    merger.session->Run();
    cluster.world().RunUntil(cluster.world().clock().NowNs() + kSecondNs);  // the servers notice

    ASSERT_TRUE(eraser.session->Put(*eraser.other, "key", "value").ok());
    eraser.session->Run();
    shrunk += eraser.client->Stats().tree.root_shrinks;
    const absl::Status loaded = LoadRecords(*loader.session, *loader.tree);
    if (absl::IsFailedPrecondition(loaded)) continue;  // it has two levels still
    ASSERT_TRUE(loaded.ok()) << loaded;
    for (uint64_t n : {kLast, kLast - 1, uint64_t{0}, kRecords - 1}) {
      EXPECT_EQ(reader.session->Get(*reader.tree, KeyOf(n)).value_or("lost"), KeyOf(n));
    }
    std::vector<KeyValue> rows;
    ASSERT_TRUE(reader.session->Scan(*reader.tree, "", SIZE_MAX, &rows).ok());
    EXPECT_EQ(rows.size(), kRecords);
  }
  EXPECT_GT(shrunk, 0u);
}

}  // namespace
}  // namespace pando
