// What goes wrong with owned trees where one of their rules does not hold (common/base/rule.h);
// with all of them nothing does.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/owned/owned_rules.h"
#include "bench/owned/owned_run.h"
#include "bench/owned/owned_stage.h"
#include "common/base/rule.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/owner/collect.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;

OwnedStageOptions WithLeases(uint64_t seed) {
  OwnedStageOptions options = {.circumstances = {.leases = true}};
  options.cluster.sim.seed = seed;
  options.cluster.lease_ns = 24 * kMillisecondNs;
  options.cluster.serving_lease_ns = 8 * kMillisecondNs;
  return options;
}

// An owner is stopped, its key is taken over and written, and it goes on.
TEST_F(OwnedRulesTest, O5) {
  ExpectShown(Rule::kO5, [](uint64_t seed) {
    OwnedStage stage(WithLeases(seed));
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0) || !Put(&stage, owner, 1)) return stage.what();
    stage.Pause(owner, stage.NowNs(), 5 * kSecondNs);
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(next, 0) || !Put(&stage, next, 1)) return stage.what();
    stage.Spawn(owner, 0, [&] { Get(&stage, owner, 1); });
    owner->sessions[0]->Run();
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// The owner dies, and its log has not what it has said: the packets of a put are held back.
std::string SayWhatIsNotDurable(uint64_t seed, Operation before, Operation pending,
                                Operation says) {
  OwnedStageOptions options;
  options.cluster.sim.seed = seed;
  OwnedStage stage(options);
  OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
  if (!stage.Open(owner, 0) || !stage.Do(owner, 0, 0, std::move(before))) return stage.what();
  stage.world().LimitPackets(*owner->fabric, 0);
  stage.Spawn(owner, 0, [&] { stage.Do(owner, 0, 0, pending); });
  stage.Quiet(kMillisecondNs);
  stage.Spawn(owner, 0, [&] { stage.Do(owner, 0, 0, says); });
  stage.Quiet(kMillisecondNs);
  stage.Kill(owner);
  stage.LookAtTheEnd();
  return stage.what();
}

TEST_F(OwnedRulesTest, T3) {
  ExpectShown(Rule::kT3, [](uint64_t seed) {
    return SayWhatIsNotDurable(seed, OwnedStage::Make(OperationKind::kPut, KeyOf(2), "old"),
                               OwnedStage::Make(OperationKind::kPut, KeyOf(2), "new"),
                               OwnedStage::Make(OperationKind::kGet, KeyOf(2)));
  });
}
TEST_F(OwnedRulesTest, T5) {
  ExpectShown(Rule::kT5, [](uint64_t seed) {
    return SayWhatIsNotDurable(seed, OwnedStage::Make(OperationKind::kGet, KeyOf(2)),
                               OwnedStage::Make(OperationKind::kInsert, KeyOf(2), "new"),
                               OwnedStage::Make(OperationKind::kInsert, KeyOf(2), "another"));
  });
}

// The packets of a put are held back beyond its deadline.
TEST_F(OwnedRulesTest, T6) {
  ExpectShown(Rule::kT6, [](uint64_t seed) {
    OwnedStageOptions options = {.circumstances = {.breaks = true}};
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.operation_timeout_ms = 5;
    OwnedActor* const owner = stage.Join(client, 2);
    if (!stage.Open(owner, 0) || !Put(&stage, owner, 1)) return stage.what();
    stage.world().LimitPackets(*owner->fabric, 0);
    // The first one has the turn to write, and waits for its chain; the other one does not.
    for (const uint64_t key : {1, 2}) {
      stage.Spawn(owner, 1, [&, key] {
        stage.Do(owner, 1, 0, OwnedStage::Make(OperationKind::kPut, KeyOf(key), stage.NewValue()));
      });
    }
    stage.Quiet(20 * kMillisecondNs);
    for (const ServerId server : {1, 2}) stage.world().BreakQueuePairs(*owner->fabric, server);
    stage.world().LimitPackets(*owner->fabric, kNoPacketLimit);
    owner->sessions[1]->Run();
    for (const uint64_t key : {1, 2}) Get(&stage, owner, key);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// The member that follows a dead owner dies, too.
TEST_F(OwnedRulesTest, D4) {
  ExpectShown(Rule::kD4, [](uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0)) return stage.what();
    for (uint64_t k = 1; k <= 40; ++k) Put(&stage, owner, k);
    stage.Kill(owner);
    stage.Leave(owner);
    OwnedActor* const next = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(next, 0)) return stage.what();
    stage.KillAfter(next, stage.random().Uniform(40));
    Get(&stage, next, 1);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// Who takes over what a dead owner has left is stopped meanwhile, and goes on when another one has
// written since.
TEST_F(OwnedRulesTest, D1) {
  ExpectShown(Rule::kD1, [](uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    OwnedActor* const owner = stage.Join(client);
    if (!stage.Open(owner, 0)) return stage.what();
    for (uint64_t k = 1; k <= 40; ++k) Put(&stage, owner, k);
    stage.Kill(owner);
    stage.Leave(owner);
    OwnedActor* const stopped = stage.Join(client);
    client.operation_timeout_ms = 20;
    OwnedActor* const next = stage.Join(client);
    if (!stage.Open(stopped, 0) || !stage.Open(next, 0)) return stage.what();
    stage.Quiet(20 * kMillisecondNs);
    stage.Spawn(stopped, 0, [&] { Get(&stage, stopped, 1); });
    stage.Pause(stopped, stage.NowNs() + (600 + static_cast<int64_t>(seed) * 10) * kMicrosecondNs,
                30 * kMillisecondNs);
    stage.Quiet(3 * kMillisecondNs);
    for (uint64_t k = 1; k <= 40; k += 13) Put(&stage, next, k);
    stage.Flush(next, 0);
    stopped->sessions[0]->Run();
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// The catalog's server has the owner for dead, the one with its log has not; and it writes there.
TEST_F(OwnedRulesTest, D2) {
  ExpectShown(Rule::kD2, [](uint64_t seed) -> std::string {
    OwnedStageOptions options = WithLeases(seed);
    options.circumstances.breaks = options.circumstances.owners_end = true;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    OwnedActor* const owner = stage.Join(client);
    client.operation_timeout_ms = 10;
    OwnedActor* const next = stage.Join(client);
    if (!stage.Open(owner, 0) || !Put(&stage, owner, 1) || !stage.Open(next, 0)) {
      return stage.what();
    }
    stage.world().CutLink(*owner->fabric, 1, true);
    stage.world().LimitPackets(*owner->fabric, 0);
    stage.Spawn(owner, 0, [&] { Put(&stage, owner, 1); });
    for (int n = 0; n < 20 && next->client->Stats().owned.ranges == 0; ++n) {
      Get(&stage, next, 1);
    }
    if (next->client->Stats().owned.ranges == 0) return "it has not taken over";
    // The chain to the log has failed, and goes again.
    stage.world().LimitPackets(*owner->fabric, kNoPacketLimit);
    stage.world().BreakQueuePairs(*owner->fabric, 2);
    owner->sessions[0]->Run();
    stage.world().CutLink(*owner->fabric, 1, false);
    Get(&stage, next, 1);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// The log cannot be reached, records are flushed all the same; one of those is read, and its owner
// dies.
TEST_F(OwnedRulesTest, B3Durable) {
  ExpectShown(Rule::kB3Durable, [](uint64_t seed) {
    OwnedStageOptions options = {.circumstances = {.breaks = true, .owners_end = true}};
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.operation_timeout_ms = 50;
    OwnedActor* const owner = stage.Join(client, 3);
    if (!stage.Open(owner, 0)) return stage.what();
    const auto put = [&](size_t session, uint64_t key) {
      std::string value = stage.NewValue();
      value.resize(60, '.');
      stage.Do(owner, session, 0,
               OwnedStage::Make(OperationKind::kPut, KeyOf(key), std::move(value)));
    };
    // Nearly as many as are flushed together.
    for (uint64_t k = 1; k <= 270; ++k) put(0, k);
    stage.world().CutLink(*owner->fabric, 2, true);
    for (uint64_t k = 1; k <= 60; ++k) {
      stage.Spawn(owner, 0, [&, k] { put(0, 4 * k); });
      stage.Spawn(owner, 1, [&, k] { put(1, 300 + k); });
    }
    stage.Quiet(5 * kMillisecondNs);
    for (uint64_t k = 1; k <= 60; ++k) {
      stage.Spawn(owner, 2, [&, k] {
        stage.Do(owner, 2, 0, OwnedStage::Make(OperationKind::kGet, KeyOf(4 * k)));
      });
    }
    stage.Quiet(5 * kMillisecondNs);
    stage.Kill(owner);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// A key is written all the time, also while its tree is flushed, which takes several rounds.
TEST_F(OwnedRulesTest, B4) {
  ExpectShown(Rule::kB4, [](uint64_t seed) -> std::string {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.hot_bytes = client.log_bytes = 1 << 20;
    OwnedActor* const owner = stage.Join(client, 2);
    if (!stage.Open(owner, 0)) return stage.what();
    constexpr uint64_t kLast = kFlushRoundMax + 100;
    for (uint64_t key = 1; key < kLast; ++key) {
      if (!Put(&stage, owner, key)) return stage.what();
    }
    int written = 0;
    bool stops = false;
    stage.Spawn(owner, 1, [&] {
      while (!stops) {
        const std::string value = std::to_string(written + 1);
        if (!stage.Do(owner, 1, 0, OwnedStage::Make(OperationKind::kPut, KeyOf(kLast), value)))
          return;
        ++written;
      }
    });
    stage.Quiet(kMillisecondNs);
    const int before = written;
    if (!stage.Flush(owner, 0)) return stage.what();
    stops = true;
    owner->sessions[1]->Run();
    const history::State leaves = stage.ReadLeaves(0);
    const bool is_there = !leaves.empty() && leaves.back().first == KeyOf(kLast);
    const int found = is_there ? std::stoi(leaves.back().second) : 0;
    stage.LookAtTheEnd();
    if (before == 0 || written == before) return "it is not written all the time";
    if (found < before) return absl::StrCat("a leaf has write ", found, " of ", before);
    return stage.what();
  });
}

// Puts to one tree go on while others' records are looked at for the log's base.
TEST_F(OwnedRulesTest, W5End) {
  ExpectShown(Rule::kW5End, [](uint64_t seed) {
    OwnedStageOptions options = {.trees = 2};
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner(), 2);
    if (!stage.Open(owner, 0) || !stage.Open(owner, 1)) return stage.what();
    stage.Do(owner, 0, 1, OwnedStage::Make(OperationKind::kPut, KeyOf(1), stage.NewValue()));
    Put(&stage, owner, 1);
    stage.Flush(owner, 0);
    stage.Spawn(owner, 1, [&] {
      ImplOf(*owner->sessions[1])
          .scheduler()
          .SleepUntil(stage.NowNs() + static_cast<int64_t>(seed) * 500);
      stage.Do(owner, 1, 0, OwnedStage::Make(OperationKind::kPut, KeyOf(2), stage.NewValue()));
    });
    stage.Flush(owner, 1);
    owner->sessions[1]->Run();
    stage.Kill(owner);
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// READs of leaves are slow, now and then. Meanwhile their keys are put and erased, and the erases
// come to the leaves: others READ them anew.
TEST_F(OwnedRulesTest, T2) {
  ExpectShown(Rule::kT2, [](uint64_t seed) {
    constexpr uint64_t kKeys = 200;
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    options.cluster.sim.long_delay_probability = 0.3;
    options.cluster.sim.long_delay_ns = kMillisecondNs;
    OwnedStage stage(options);
    OwnedActor* const before = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(before, 0)) return stage.what();
    for (uint64_t key = 1; key <= kKeys; ++key) Put(&stage, before, key);
    stage.Leave(before);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner(), 3);
    if (!stage.Open(owner, 0)) return stage.what();
    for (uint64_t key = 1; key <= kKeys; ++key) {
      const auto get = [&](size_t session) {
        stage.Do(owner, session, 0, OwnedStage::Make(OperationKind::kGet, KeyOf(key)));
      };
      stage.Spawn(owner, 1, [&] { get(1); });
      stage.Quiet(kMicrosecondNs);
      Put(&stage, owner, key);
      stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kDelete, KeyOf(key)));
      if (!stage.Flush(owner, 0)) return stage.what();
      for (int i = 0; i < 4; ++i) stage.Spawn(owner, 2, [&] { get(2); });
      for (const size_t session : {2, 1}) owner->sessions[session]->Run();
    }
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// Puts go on while the tree is loaded.
TEST_F(OwnedRulesTest, T4Hold) {
  ExpectShown(Rule::kT4Hold, [](uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner(), 2);
    if (!stage.Open(owner, 0) || !Put(&stage, owner, 1)) return stage.what();
    if (!stage.Do(owner, 0, 0, OwnedStage::Make(OperationKind::kDelete, KeyOf(1)))) {
      return stage.what();
    }
    if (!stage.Flush(owner, 0)) return stage.what();
    stage.Spawn(owner, 1, [&] {
      stage.Do(owner, 1, 0, OwnedStage::Make(OperationKind::kPut, KeyOf(5), stage.NewValue()));
    });
    stage.Quiet(static_cast<int64_t>(stage.random().Uniform(12'000)));
    (void)owner->sessions[0]->BulkLoad(*owner->trees[0], [](KeyValue*) { return false; });
    owner->sessions[1]->Run();
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// Often enough that the record is shown.
void GetOften(OwnedStage* stage, OwnedActor* actor, uint64_t key) {
  for (int i = 0; i < 8; ++i) Get(stage, actor, key);
}

// More keys are written and read than there is memory for.
TEST_F(OwnedRulesTest, T7) {
  ExpectShown(Rule::kT7, [](uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0)) return stage.what();
    for (uint64_t i = 0; i < 10'000; ++i) {
      const uint64_t key = 1 + stage.random().Uniform(6'000);
      i % 4 == 0 ? Get(&stage, owner, key) : Put(&stage, owner, key);
    }
    stage.LookAtTheEnd();
    return stage.what();
  });
}

TEST_F(OwnedRulesTest, T9Put) {
  ExpectShown(Rule::kT9Put, [](uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    OwnedActor* const owner = stage.Join(OwnedStage::SmallOwner());
    if (!stage.Open(owner, 0)) return stage.what();
    for (int i = 0; i < 2; ++i) {
      Put(&stage, owner, 1);
      GetOften(&stage, owner, 1);
    }
    stage.LookAtTheEnd();
    return stage.what();
  });
}

// The giver is stopped when its last Replace is under way. The taker has the range and writes,
// before the giver goes on and hears of it.
TEST_F(OwnedRulesTest, T9Close) {
  ExpectShown(Rule::kT9Close, [](uint64_t seed) {
    OwnedStageOptions options;
    options.cluster.sim.seed = seed;
    OwnedStage stage(options);
    ClientOptions client = OwnedStage::SmallOwner();
    client.owner = true;
    client.spread_ranges = false;
    OwnedActor* const giver = stage.Join(client, 2);
    OwnedActor* const taker = stage.Join(client);
    if (!stage.Open(giver, 0) || !stage.Open(taker, 0) || !Put(&stage, giver, 1)) {
      return stage.what();
    }
    GetOften(&stage, giver, 1);
    stage.Spawn(giver, 0, [&] { (void)stage.Give(giver, 0, 0, KeyOf(1), taker); });
    const int64_t pause_ns =
        stage.NowNs() + 50 * kMicrosecondNs + static_cast<int64_t>(stage.random().Uniform(10'000));
    stage.Spawn(giver, 1, [&] {
      for (int i = 0; i < 4; ++i) {
        ImplOf(*giver->sessions[1]).scheduler().SleepUntil(pause_ns + kMillisecondNs + i * 200);
        stage.Do(giver, 1, 0, OwnedStage::Make(OperationKind::kGet, KeyOf(1)));
      }
    });
    stage.Pause(giver, pause_ns, 30 * kMillisecondNs);
    stage.Quiet(100 * kMicrosecondNs);
    Put(&stage, taker, 1);
    for (OwnedActor* const actor : {giver, taker}) actor->sessions[0]->Run();
    giver->sessions[1]->Run();
    stage.LookAtTheEnd();
    return stage.what();
  });
}

OwnedRunOptions Dying(uint64_t seed) {
  return {.seed = seed, .coroutines = 6, .lives = 6, .keys = 20, .kill = 1};
}

TEST_F(OwnedRulesTest, T4) {
  ExpectShown(Rule::kT4, [](uint64_t seed) { return Run(Dying(seed)); });
}
TEST_F(OwnedRulesTest, T5Hold) {
  ExpectShown(Rule::kT5Hold, [](uint64_t seed) { return Run(Dying(seed)); });
}
TEST_F(OwnedRulesTest, T8) {
  ExpectShown(Rule::kT8, [](uint64_t seed) { return Run(Dying(seed)); });
}
TEST_F(OwnedRulesTest, B3) {
  ExpectShown(Rule::kB3, [](uint64_t seed) { return Run(Dying(seed)); });
}

}  // namespace
}  // namespace pando
