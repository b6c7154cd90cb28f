// What goes wrong with records on their way to their leaves where a rule of that does not hold
// (common/base/rule.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/owned/log_moves.h"
#include "bench/owned/owned_rules.h"
#include "bench/owned/owned_stage.h"
#include "common/base/random.h"
#include "common/base/rule.h"
#include "common/sched/fake_endpoint.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/owner/collect.h"
#include "compute/owner/member.h"
#include "compute/owner/owned_tree.h"

namespace pando {
namespace {

using history::OperationKind;

// Somebody else comes whenever the partition is free.
TEST_F(OwnedRulesTest, T1) {
  ExpectShown(Rule::kT1, [](uint64_t) -> std::string {
    constexpr size_t kRecords = 1'000;
    EpochDomain epochs;
    SessionContext session(std::make_unique<FakeEndpoint>(FakeEndpoint::Mode::kImmediate), &epochs,
                           8, 1);
    OwnRange range({}, OwnRange::State::kServing, std::make_shared<Partition>());
    for (size_t n = 0; n < kRecords; ++n) range.partition.Put(KeyOf(n), "v", n + 1);
    std::vector<FlushItem> items;
    bool done = false;
    size_t before = 0, most = 0;
    const auto look = [&] {
      most = std::max(most, items.size() - before);
      before = items.size();
    };
    session.scheduler().Spawn([&] {
      while (!done) {
        {
          std::lock_guard lock(range.partition.mutex());
          look();
        }
        session.scheduler().Yield();
      }
    });
    session.scheduler().Spawn([&] {
      OperationContext context(&session, kNeverNs);
      (void)CollectDirty(context, &range, kRecords, "", "", {}, &items);
      done = true;
    });
    session.scheduler().Drain();
    look();
    if (items.size() != kRecords) return "not all are taken";
    return most > 8 ? absl::StrCat(most, " records are taken in one hold") : "";
  });
}

// Writes to many leaves of a shared tree, in any order: what they cost.
TEST_F(OwnedRulesTest, B1) {
  ExpectShown(Rule::kB1, [](uint64_t seed) -> std::string {
    constexpr uint64_t kKeys = 1'000;
    SimCluster cluster({.sim = {.seed = seed}});
    const auto client = cluster.NewClient();
    const auto tree = *client->CreateTree("t", {});
    const auto session = *client->NewSession();
    const auto put = [&](uint64_t factor) {
      std::vector<KeyValue> entries;
      for (uint64_t k = 0; k < kKeys; ++k) entries.push_back({KeyOf(k * factor % kKeys), "value"});
      for (const absl::Status& status : session->MultiPut(*tree, entries)) {
        if (!status.ok()) return status.ToString();
      }
      return std::string();
    };
    if (std::string failed = put(1); !failed.empty()) return failed;
    const uint64_t before = client->Stats().fabric.chains;
    if (std::string failed = put(389); !failed.empty()) return failed;
    const double chains = static_cast<double>(client->Stats().fabric.chains - before) / kKeys;
    return chains > 0.5 ? absl::StrCat(chains, " chains a write") : "";
  });
}

// Most puts go to few keys in the middle. Elsewhere one in fifty keys got one, before.
class BusyMiddle : public OwnedStage {
 public:
  static constexpr uint64_t kKeys = 10'000, kFrom = 3'000, kTo = 7'000, kEach = 50;
  // Away from what has the same level-1 nodes.
  static constexpr uint64_t kAway = 500;

  explicit BusyMiddle(uint64_t seed) : OwnedStage(Options(seed)) {
    ClientOptions client = SmallOwner();
    client.hot_bytes = 256 << 10;  // more than are flushed together
    client.log_bytes = 4 << 20;
    owner_ = Join(client);
    if (!Open(owner_, 0)) Problem("the set-up has failed");
    std::vector<KeyValue> entries;
    for (uint64_t k = 0; k < kKeys; ++k) entries.push_back({KeyOf(k), "before"});
    if (!BulkLoad(owner_, 0, entries)) Problem("the set-up has failed");
    for (uint64_t k = 0; k < kKeys; k += 4) Get(this, owner_, k);
    for (uint64_t k = 0; k < kKeys; k += kEach) {
      if (k + kAway < kFrom || k >= kTo + kAway) Put(this, owner_, k);
    }
    quiet_ = QuietDirty();
    if (quiet_ < 40) Problem("the set-up has failed");
  }
  // So many more messages come to their leaves; what others went with them.
  uint64_t QuietGone(uint64_t messages) {
    const uint64_t enough = owner_->client->Stats().owned.flushed + messages;
    for (uint64_t n = 0; owner_->client->Stats().owned.flushed < enough && n < 50'000; ++n) {
      Put(this, owner_, kFrom + n * 7 % (kTo - kFrom));
    }
    if (owner_->client->Stats().owned.flushed < enough) Problem("nothing is flushed");
    return quiet_ - QuietDirty();
  }

 private:
  static OwnedStageOptions Options(uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    options.cluster.main_bytes = 32 << 20;
    return options;
  }
  uint64_t QuietDirty() {
    uint64_t dirty = 0;
    for (OwnRange* const range : ImplOf(*owner_->trees[0]).routed().owned()->OwnRanges()) {
      const std::lock_guard lock(range->partition.mutex());
      dirty += range->partition.CountDirty("", KeyOf(kFrom)) +
               range->partition.CountDirty(KeyOf(kTo), "");
    }
    return dirty;
  }

  OwnedActor* owner_;
  uint64_t quiet_ = 0;
};

TEST_F(OwnedRulesTest, B2) {
  ExpectShown(Rule::kB2, [](uint64_t seed) {
    BusyMiddle stage(seed);
    const uint64_t gone = stage.QuietGone(3'000);
    if (gone > 0) stage.Problem(absl::StrCat(gone, " records were flushed where few are dirty"));
    return stage.what();
  });
}

// A range is divided while writers of another tree never stop, and wait for flushes.
TEST_F(OwnedRulesTest, B2Turn) {
  ExpectShown(Rule::kB2Turn, [](uint64_t seed) -> std::string {
    constexpr uint64_t kWriters = 64;
    OwnedStageOptions options = {.trees = 2};
    options.cluster.sim.seed = seed;
    options.cluster.main_bytes = 32 << 20;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.owner = true;
    client.spread_ranges = false;
    client.hot_bytes = client.log_bytes = 512 << 10;
    OwnedActor* const owner = stage.Join(client, 2);
    if (!stage.Open(owner, 0) || !stage.Open(owner, 1)) return stage.what();
    for (const uint64_t key : {1, 2}) Put(&stage, owner, key);
    bool stops = false;
    for (uint64_t task = 0; task < kWriters; ++task) {
      stage.Spawn(owner, 1, [&, task] {
        for (uint64_t n = 0; !stops; ++n) {
          const std::string key = KeyOf(1 + task + kWriters * (n % 200));
          stage.Do(owner, 1, 1, OwnedStage::Make(OperationKind::kPut, key, stage.NewValue()));
        }
      });
    }
    stage.Quiet(20 * kMillisecondNs);
    absl::Status divided;
    owner->sessions[0]->Spawn([&] {
      SessionContext* const session = &ImplOf(*owner->sessions[0]).context();
      OperationContext context(session, stage.NowNs() + 50 * kMillisecondNs);
      OwnedTree* const tree = ImplOf(*owner->trees[0]).routed().owned();
      divided = ImplOf(*owner->client).member()->Split(context, tree, KeyOf(2));
      stops = true;
    });
    for (const size_t session : {0, 1}) owner->sessions[session]->Run();
    if (!divided.ok()) return divided.ToString();
    stage.LookAtTheEnd();
    return stage.what();
  });
}

TEST_F(OwnedRulesTest, B5) {
  ExpectShown(Rule::kB5, [](uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    options.tree.delete_persistence_ms = 200;
    OwnedStage stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0) || !Put(&stage, owner, 1) || !stage.Flush(owner, 0)) {
      return stage.what();
    }
    stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kDelete, KeyOf(1)));
    stage.Quiet(200 * kMillisecondNs);
    if (!stage.ReadLeaves(0).empty()) return std::string("the leaf has what was erased long ago");
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// The owner's log moves, to one that nothing names for a while: whoever has the lock of its entry's
// leaf is stopped. Meanwhile a tombstone is appended again.
TEST_F(OwnedRulesTest, B5Age) {
  ExpectShown(Rule::kB5Age, [](uint64_t seed) -> std::string {
    OwnedStageOptions options = LogMoves::Options(seed);
    options.trees = 2;
    options.tree.delete_persistence_ms = 200'000;
    LogMoves stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    OwnedActor* const stopped = stage.Join(OwnedStage::SmallOwner());
    const ServerId log = stage.Begin(owner);
    if (log == 0 || !stage.Open(stopped, 1)) return "";
    stage.Do(stopped, 0, 1, OwnedStage::Make(OperationKind::kGet, KeyOf(1)));
    stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kDelete, KeyOf(1)));
    const int64_t erased_ns = stage.NowNs();
    stage.Quiet(5 * kSecondNs);
    stage.world().LimitPackets(*stopped->fabric, 1);
    stage.Spawn(stopped, 0, [&] { (void)stage.Split(stopped, 0, 1, KeyOf(5)); });
    stage.Quiet(50 * kMillisecondNs);
    stage.world().KillServer(log);
    stage.Spawn(owner, 0, [&] { (void)stage.Put(owner, 2); });
    stage.Quiet(3 * kSecondNs);
    const OwnedStats stats = owner->client->Stats().owned;
    const int64_t age_ms = (stage.NowNs() - erased_ns) / kMillisecondNs;
    stage.Kill(stopped);
    stage.Kill(owner);
    if (stats.tombstones != 1) return "";
    const auto said_ms = static_cast<int64_t>(stats.oldest_tombstone_ms);
    return said_ms + 100 < age_ms ? absl::StrCat(said_ms, " ms old, it says, and is ", age_ms) : "";
  });
}

}  // namespace
}  // namespace pando
