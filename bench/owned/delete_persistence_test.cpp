// Rule B5: an erase is in its leaf within the tree's deadline, however much there is to write, and
// if any member dies.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "bench/owned/owned_world.h"
#include "common/wire/internal_node.h"
#include "common/wire/lock_word.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/owner/owned_tree.h"

namespace pando {
namespace {

constexpr uint32_t kDeadlineMs = 1'000;
constexpr int64_t kDeadlineNs = kDeadlineMs * kMillisecondNs;
constexpr uint64_t kRecords = 200'000;
// Writes a second: each of the tasks has one a millisecond.
constexpr uint64_t kTasks = 50;
constexpr int64_t kEachNs = kMillisecondNs;

TreeOptions Owned(uint32_t deadline_ms) {
  return {.mode = TreeOptions::Mode::kOwned, .delete_persistence_ms = deadline_ms};
}

// One owner under load, and how long erases have been messages.
class Load {
 public:
  Load(uint64_t seed, uint32_t deadline_ms)
      : cluster_({.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole}}),
        owner_(&cluster_, {.hot_bytes = 8 << 20, .log_bytes = 8 << 20}, Owned(deadline_ms)),
        random_(seed),
        look_each_ns_(deadline_ms == 0 || deadline_ms >= kDeadlineMs ? kDeadlineNs / 40
                                                                     : 5 * kMillisecondNs) {
    uint64_t next = 0;
    const absl::Status loaded = owner_.session().BulkLoad(owner_.tree(), [&](KeyValue* entry) {
      if (next == kRecords) return false;
      *entry = {KeyOf(next++), "loaded"};
      return true;
    });
    EXPECT_TRUE(loaded.ok()) << loaded;
  }

  // For so long; `erases`: their share.
  void Write(int64_t for_ns, double erases) {
    const int64_t end_ns = NowNs() + for_ns;
    for (uint64_t task = 0; task < kTasks; ++task) {
      owner_.session().Spawn([this, task, end_ns, erases] {
        int64_t next_ns = NowNs();
        while (next_ns < end_ns) {
          // Of its own keys, so that it knows when which was erased.
          const std::string key = KeyOf(random_.Uniform(kRecords / kTasks) * kTasks + task);
          if (random_.Chance(erases)) {
            Erase(key);
          } else {
            EXPECT_TRUE(owner_.session().Put(owner_.tree(), key, "put").ok());
            erased_ns_.erase(key);
          }
          ++writes_;
          next_ns += kEachNs;
          owner_.session().SleepUntil(next_ns);
        }
      });
    }
    owner_.session().Spawn([this, end_ns] {
      for (int64_t at_ns = NowNs(); at_ns < end_ns + 2 * kDeadlineNs; at_ns += look_each_ns_) {
        owner_.session().SleepUntil(at_ns);
        Look();
      }
    });
    owner_.session().Run();
  }

  int64_t oldest_ns() const { return oldest_ns_; }
  // What it looks at is all that is dirty: what becomes older and goes between two looks is not
  // seen.
  int64_t look_each_ns() const { return look_each_ns_; }
  uint64_t most() const { return most_; }
  uint64_t writes() const { return writes_; }
  int64_t reported_too_young_ns() const { return too_young_ns_; }
  OwnerProcess& owner() { return owner_; }
  SimCluster& cluster() { return cluster_; }

 private:
  int64_t NowNs() { return cluster_.world().clock().NowNs(); }

  void Erase(const std::string& key) {
    const int64_t begin_ns = NowNs();
    const absl::Status erased = owner_.session().Erase(owner_.tree(), key);
    EXPECT_TRUE(erased.ok() || absl::IsNotFound(erased)) << erased;
    if (erased.ok()) erased_ns_[key] = begin_ns;
  }
  // At everything that the owner has in memory.
  void Look() {
    uint64_t count = 0;
    int64_t oldest_ns = 0;
    for (OwnRange* const range : ImplOf(owner_.tree()).routed().owned()->OwnRanges()) {
      const std::lock_guard lock(range->partition.mutex());
      range->partition.Scan("", "", /*reverse=*/false, [&](const Partition::Seen& seen) {
        if (!seen.erased) return true;
        ++count;
        const auto erased = erased_ns_.find(std::string(seen.key));
        if (erased != erased_ns_.end()) oldest_ns = std::max(oldest_ns, NowNs() - erased->second);
        return true;
      });
    }
    most_ = std::max(most_, count);
    oldest_ns_ = std::max(oldest_ns_, oldest_ns);
    // What is reported is as of a moment ago, and no younger than it was then.
    const OwnedStats stats = owner_.client().Stats().owned;
    const auto said_ns = static_cast<int64_t>(stats.oldest_tombstone_ms + 1) * kMillisecondNs;
    if (stats.tombstones > 0) too_young_ns_ = std::max(too_young_ns_, oldest_ns - said_ns);
  }

  SimCluster cluster_;
  OwnerProcess owner_;
  Random random_;
  const int64_t look_each_ns_;
  std::map<std::string, int64_t> erased_ns_;
  int64_t oldest_ns_ = 0, too_young_ns_ = 0;
  uint64_t most_ = 0, writes_ = 0;
};

TEST(DeletePersistenceTest, NoTombstoneIsOlderThanTheDeadlineAndWhatThatCosts) {
  std::map<uint32_t, double> bytes_a_write;
  for (const uint32_t deadline_ms : {uint32_t{0}, kDeadlineMs}) {
    Load load(1, deadline_ms);
    const FabricStats before = load.owner().client().Stats().fabric;
    load.Write(4 * kDeadlineNs, /*erases=*/0.1);
    const FabricStats after = load.owner().client().Stats().fabric;
    const double writes = static_cast<double>(load.writes());
    bytes_a_write[deadline_ms] =
        static_cast<double>(after.bytes_written - before.bytes_written) / writes;
    std::printf(
        "deadline %u ms: the oldest of up to %lu tombstones waited for %.0f ms; %.0f writes, %.0f "
        "bytes written each, %.3f chains each\n",
        deadline_ms, load.most(), static_cast<double>(load.oldest_ns()) / kMillisecondNs, writes,
        bytes_a_write[deadline_ms], static_cast<double>(after.chains - before.chains) / writes);
    EXPECT_GE(load.writes(), kTasks * 3'900);
    EXPECT_GT(load.most(), 100u);
    if (deadline_ms == 0) {
      EXPECT_GT(load.oldest_ns(), kDeadlineNs) << "the deadline makes no difference";
    } else {
      EXPECT_LE(load.oldest_ns() + load.look_each_ns(), kDeadlineNs);
      // A look may have been made a sixteenth of the deadline before.
      EXPECT_LE(load.reported_too_young_ns(), kDeadlineNs / 8);
      EXPECT_EQ(load.owner().client().Stats().owned.tombstones, 0u);
      EXPECT_EQ(load.owner().client().Stats().owned.oldest_tombstone_ms, 0u);
    }
  }
  EXPECT_LT(bytes_a_write[kDeadlineMs], 2 * bytes_a_write[0]);
}

// While all of a tree is flushed, which takes longer than the deadline, erases are in time, too.
TEST(DeletePersistenceTest, HoldsWhileEverythingIsFlushed) {
  Load load(2, /*deadline_ms=*/20);
  load.owner().session().Spawn([&] {
    for (int n = 0; n < 5; ++n) {
      EXPECT_TRUE(load.owner().session().Flush(load.owner().tree()).ok());
    }
  });
  load.Write(kDeadlineNs / 2, /*erases=*/0.1);
  EXPECT_GT(load.most(), 10u);
  EXPECT_LE(load.oldest_ns(), 20 * kMillisecondNs);
}

// Rule D4: of an owner that was killed, whoever takes its keys brings its erases to their leaves
// before anything else.
TEST(DeletePersistenceTest, WhoTakesOverHasNoTombstones) {
  SimCluster cluster({.sim = {.seed = 3}});
  const ClientOptions options = {.hot_bytes = 64 << 10, .log_bytes = 256 << 10};
  OwnerProcess owner(&cluster, options, Owned(kDeadlineMs));
  for (uint64_t n = 0; n < 300; ++n) {
    ASSERT_TRUE(owner.session().Put(owner.tree(), KeyOf(n), "v").ok());
  }
  ASSERT_TRUE(owner.session().Flush(owner.tree()).ok());
  for (uint64_t n = 0; n < 100; ++n) {
    ASSERT_TRUE(owner.session().Erase(owner.tree(), KeyOf(n)).ok());
  }
  owner.KillAt(cluster.world().clock().NowNs() + 1);
  cluster.world().RunUntil(cluster.world().clock().NowNs() + kMillisecondNs);
  ASSERT_TRUE(owner.killed());
  owner.Close();
  OwnerProcess next(&cluster, options, Owned(kDeadlineMs));
  EXPECT_TRUE(absl::IsNotFound(next.session().Get(next.tree(), KeyOf(5)).status()));
  EXPECT_GE(next.client().Stats().owned.adopted_messages, 100u);
  for (OwnRange* const range : ImplOf(next.tree()).routed().owned()->OwnRanges()) {
    const std::lock_guard lock(range->partition.mutex());
    EXPECT_EQ(range->partition.tombstones(), 0u);
  }
  const auto report = next.session().Check(next.tree());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->keys, 200u);
}

// Of the leaves in the order of keys, the first ones: `holder`, who lives, has their locks.
// `border`: the low fence of the one behind.
std::vector<LockTarget> HoldLeaves(SimCluster* cluster, OwnerProcess* owner, const Client& holder,
                                   size_t held, std::string* border) {
  const TreeContext& tree = ImplOf(owner->tree()).context();
  Reference root;
  EXPECT_EQ(tree.root.Load(&root), 2);
  std::vector<LockTarget> locks;
  const auto decode = [&](const Reference& node) {
    InternalNode decoded;
    PANDO_CHECK_OK(DecodeInternal(cluster->At(node.address), tree.layout, &decoded));
    return decoded;
  };
  const auto take = [&](const Reference& leaf, const std::string& low) {
    if (locks.size() == held) {
      if (border->empty()) *border = low;
      return;
    }
    locks.push_back(*tree.NodeLock(leaf));
  };
  const InternalNode top = decode(root);
  for (size_t at = 0; at <= top.entries.size(); ++at) {
    const InternalNode parent = decode(at == 0 ? top.header.leftmost : top.entries[at - 1].child);
    take(parent.header.leftmost, parent.header.low);
    for (const auto& entry : parent.entries) take(entry.child, entry.key);
  }
  EXPECT_FALSE(border->empty());
  const LockWord word = {.owner = holder.compute_server_id(), .incarnation = 1'000};
  for (const LockTarget& lock : locks) cluster->SetLockWord(lock, word.Encode());
  return locks;
}

absl::Status Load(OwnerProcess* owner, uint64_t keys) {
  uint64_t next = 0;
  return owner->session().BulkLoad(owner->tree(), [&](KeyValue* entry) {
    *entry = {KeyOf(next), "loaded"};
    return next++ < keys;
  });
}

// Without a deadline for erases a round of flushes that waits for such a leaf ends, too, in a
// second, and others have their room then.
TEST(DeletePersistenceTest, ALeafThatIsHeldKeepsWritersOfOthersNoLongerThanASecond) {
  constexpr uint64_t kKeys = 2'000;
  SimCluster cluster({.sim = {.seed = 4}});
  OwnerProcess owner(&cluster, {.hot_bytes = 64 << 10, .log_bytes = 1 << 20}, Owned(0));
  const auto other = cluster.NewClient();
  ASSERT_TRUE(Load(&owner, kKeys).ok());
  std::string border;
  const std::vector<LockTarget> locks = HoldLeaves(&cluster, &owner, *other, /*held=*/1, &border);
  const auto now_ns = [&] { return cluster.world().clock().NowNs(); };
  ASSERT_TRUE(owner.session().Put(owner.tree(), KeyOf(0), "held").ok());
  int64_t longest_ns = 0;
  for (uint64_t n = 0; n < 3 * kKeys && longest_ns < 2 * kSecondNs; ++n) {
    const std::string key = KeyOf(n % kKeys);
    if (key < border) continue;
    const int64_t began_ns = now_ns();
    const absl::Status put = owner.session().Put(owner.tree(), key, "v");
    ASSERT_TRUE(put.ok()) << put;
    longest_ns = std::max(longest_ns, now_ns() - began_ns);
  }
  EXPECT_LT(longest_ns, 3 * kSecondNs / 2);
  EXPECT_GT(owner.client().Stats().owned.dirty_bytes, 0u) << "or this shows nothing";
  for (const LockTarget& lock : locks) cluster.SetLockWord(lock, LockWord::kFree);
  owner.Close();
}

// Somebody who lives holds the locks of some leaves: erases of all others are in time, those that
// come while flushes wait for these leaves as well, and everything goes on once the locks are free.
void WhileLeavesAreHeld(uint64_t held, uint64_t erased_there) {
  constexpr uint64_t kKeys = 2'000;
  SimCluster cluster({.sim = {.seed = 4}});
  OwnerProcess owner(&cluster, {.hot_bytes = 1 << 20, .log_bytes = 1 << 20}, Owned(kDeadlineMs));
  const auto other = cluster.NewClient();
  ASSERT_TRUE(Load(&owner, kKeys).ok());
  std::string border;
  const std::vector<LockTarget> locks = HoldLeaves(&cluster, &owner, *other, held, &border);
  const auto old_ones = [&](int64_t since_ns, const std::map<std::string, int64_t>& erased_ns) {
    uint64_t count = 0;
    for (OwnRange* const range : ImplOf(owner.tree()).routed().owned()->OwnRanges()) {
      const std::lock_guard lock(range->partition.mutex());
      range->partition.Scan("", "", /*reverse=*/false, [&](const Partition::Seen& seen) {
        const std::string key(seen.key);
        const bool old = seen.erased && (since_ns == 0 || erased_ns.at(key) < since_ns);
        count += old && (since_ns == 0 || key >= border) ? 1 : 0;
        return true;
      });
    }
    return count;
  };
  const auto now_ns = [&] { return cluster.world().clock().NowNs(); };
  std::map<std::string, int64_t> erased_ns;
  const auto erase = [&](uint64_t n) {
    erased_ns[KeyOf(n)] = now_ns();
    ASSERT_TRUE(owner.session().Erase(owner.tree(), KeyOf(n)).ok());
  };
  for (uint64_t n = 0; n < erased_there; ++n) erase(n);
  // From then on flushes wait for those.
  for (uint64_t n = 0; n < 100; ++n) {
    erase(kKeys - 1 - n);
    owner.session().SleepUntil(now_ns() + 30 * kMillisecondNs);
    ASSERT_EQ(old_ones(now_ns() - kDeadlineNs, erased_ns), 0u) << "after " << n;
  }
  EXPECT_GE(old_ones(0, erased_ns), erased_there);
  for (const LockTarget& lock : locks) cluster.SetLockWord(lock, 0);
  owner.session().SleepUntil(now_ns() + 2 * kDeadlineNs);
  EXPECT_EQ(old_ones(0, erased_ns), 0u);
  owner.Close();
}

TEST(DeletePersistenceTest, HoldsForOthersWhileSomebodyHoldsALeaf) {
  WhileLeavesAreHeld(/*held=*/1, /*erased_there=*/30);
}
// More of them than are flushed at a time.
TEST(DeletePersistenceTest, HoldsForOthersWhileSomebodyHoldsManyLeaves) {
  WhileLeavesAreHeld(/*held=*/36, /*erased_there=*/1'150);
}

// A deadline of minutes: once an erase in such a leaf is due, all else that is dirty comes to its
// leaf as before, and writers wait no longer than some rounds of flushes.
TEST(DeletePersistenceTest, ALongDeadlineKeepsNoOthersWaitingForALeafThatIsHeld) {
  constexpr uint64_t kKeys = 2'000;
  constexpr uint32_t kLongMs = 100'000;
  SimCluster cluster({.sim = {.seed = 5}});
  OwnerProcess owner(&cluster, {.hot_bytes = 256 << 10, .log_bytes = 256 << 10}, Owned(kLongMs));
  const auto other = cluster.NewClient();
  uint64_t next = 0;
  const absl::Status loaded = owner.session().BulkLoad(owner.tree(), [&](KeyValue* entry) {
    *entry = {KeyOf(next), "loaded"};
    return next++ < kKeys;
  });
  ASSERT_TRUE(loaded.ok()) << loaded;
  std::string border;
  const std::vector<LockTarget> locks = HoldLeaves(&cluster, &owner, *other, 1, &border);
  ASSERT_TRUE(owner.session().Erase(owner.tree(), KeyOf(0)).ok());
  const auto now_ns = [&] { return cluster.world().clock().NowNs(); };
  owner.session().SleepUntil(now_ns() + (kLongMs / 2 + 1'000) * kMillisecondNs);
  const uint64_t flushed = owner.client().Stats().owned.flushed;
  int64_t longest_ns = 0;
  for (uint64_t n = 0; n < 60'000; ++n) {
    const int64_t began_ns = now_ns();
    const std::string key = KeyOf(kKeys / 2 + n % (kKeys / 2));
    ASSERT_TRUE(owner.session().Put(owner.tree(), key, "put").ok());
    longest_ns = std::max(longest_ns, now_ns() - began_ns);
  }
  EXPECT_GT(owner.client().Stats().owned.flushed - flushed, 2'000u);
  EXPECT_LT(longest_ns, 10 * kSecondNs);
  for (const LockTarget& lock : locks) cluster.SetLockWord(lock, 0);
  owner.session().SleepUntil(now_ns() + 5 * kSecondNs);
  EXPECT_EQ(owner.client().Stats().owned.tombstones, 0u);
  owner.Close();
}

TEST(DeletePersistenceTest, IsAnOptionOfOwnedTrees) {
  SimCluster cluster({});
  const auto client = cluster.NewClient();
  EXPECT_EQ(client->CreateTree("shared", {.delete_persistence_ms = 1'000}).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client->CreateTree("short", Owned(9)).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(client->CreateTree("t", Owned(500)).ok());
  EXPECT_TRUE(client->CreateTree("t", Owned(500)).ok());
  EXPECT_EQ(client->CreateTree("t", Owned(501)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(client->CreateTree("t", Owned(0)).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ((*client->ListTrees())[0].delete_persistence_ms, 500u);
}

}  // namespace
}  // namespace pando
