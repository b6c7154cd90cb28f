#include "bench/sim/root_change.h"

#include <cstdio>
#include <string>
#include <vector>

#include "bench/sim/scenario_stage.h"
#include "common/base/check.h"
#include "common/wire/internal_node.h"
#include "common/wire/root_record.h"
#include "compute/client/access.h"

namespace pando {
namespace {

// Ascending with `i`, after so many equal bytes.
std::string AscendingKey(int i, size_t equal_bytes = 0) {
  char number[8];
  std::snprintf(number, sizeof(number), "%05d", i);
  return std::string(equal_bytes, 'k') + number;
}

SimCluster::Options OneServer(uint64_t seed) {
  return {.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole}, .memory_servers = 1};
}

class RootStage : public Stage {
 public:
  using Stage::Stage;

 protected:
  const TreeContext& TreeOf(const OneClient& client) { return ImplOf(*client.tree).context(); }
  RootRecord Record(const OneClient& client) {
    RootRecord record;
    const TreeContext& tree = TreeOf(client);
    PANDO_CHECK(DecodeRootRecord(cluster_.At(tree.entry.root_record), tree.id(), false, &record) ==
                RootVerdict::kAccepted);
    return record;
  }
  InternalNode Root(const OneClient& client) {
    InternalNode root;
    PANDO_CHECK_OK(
        DecodeInternal(cluster_.At(Record(client).root.address), TreeOf(client).layout, &root));
    return root;
  }
  void HoldRecord(const OneClient& client, bool hold) {
    cluster_.SetLockWord(TreeOf(client).RootLock(), hold ? kSomebody : LockWord::kFree);
  }
};

class ShrunkRoot : public RootStage {
 public:
  explicit ShrunkRoot(uint64_t seed) : RootStage(OneServer(seed)) {}

  SimRunResult Run() {
    const OneClient b = Join(), a = Join();
    const int slots = static_cast<int>(TreeOf(a).layout.slot_count());
    for (int i = 0; i < slots; ++i) Put(b, AscendingKey(i));
    HoldRecord(a, true);
    absl::Status put;
    StartPut(a, AscendingKey(slots), &put);
    while (a.client->Stats().tree.splits == 0) PANDO_CHECK(world().Step());
    RunFor(kMillisecondNs);
    world().PauseFabric(*a.fabric);
    RunFor(kMillisecondNs);  // its last CAS has failed
    HoldRecord(a, false);
    contents()[AscendingKey(slots)] = "v";

    // With the root known for certain it notices, and then repairs.
    for (int puts = 0; Record(b).level == 0; ++puts) {
      PANDO_CHECK_LT(puts, 10) << "nobody grows the root";
      Put(b, AscendingKey(slots));
      b.session->Run();
    }
    std::vector<std::string> gone;
    for (int i = slots; Record(b).level > 0; --i) {
      PANDO_CHECK_GT(i, 0) << "the root does not shrink";
      gone.push_back(AscendingKey(i));
      Erase(b, gone.back());
    }

    world().ResumeFabric(*a.fabric);
    const int64_t resumed_ns = world().clock().NowNs();
    a.session->Run();
    Expect(put, "the put of who was stopped");
    if (world().clock().NowNs() - resumed_ns > 100 * kMillisecondNs) {
      Problem("who was stopped waits for a separator that nobody wants any more");
    }
    return Conclude(gone);
  }
};

class RootSibling : public RootStage {
 public:
  explicit RootSibling(uint64_t seed)
      : RootStage(OneServer(seed),
                  {.key_bytes_max = 60, .value_bytes_max = 8, .node_bytes = 1024}) {}

  SimRunResult Run() {
    constexpr size_t kEqual = 44;
    int keys = 0;
    std::string border;  // between P and Q
    {
      const OneClient a = Join();
      while (Record(a).level == 0) Put(a, AscendingKey(keys++, kEqual));
      HoldRecord(a, true);
      while (Root(a).header.right.is_null()) Put(a, AscendingKey(keys++, kEqual), /*timeout_ms=*/5);
      border = Root(a).header.high;
    }
    const OneClient b = Join();
    HoldRecord(b, false);
    std::vector<std::string> gone;
    for (int i = 0; AscendingKey(i + 1, kEqual) < border; ++i) {
      gone.push_back(AscendingKey(i, kEqual));
      Erase(b, gone.back());
    }
    PANDO_CHECK(Record(b).level == 0 || Root(b).entries.empty()) << "the root has children left";
    return Conclude(gone);
  }
};

}  // namespace

SimRunResult RunShrunkRoot(uint64_t seed) { return ShrunkRoot(seed).Run(); }
SimRunResult RunRootSibling(uint64_t seed) { return RootSibling(seed).Run(); }

}  // namespace pando
