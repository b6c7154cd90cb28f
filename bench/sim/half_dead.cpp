#include "bench/sim/half_dead.h"

#include <cstdio>
#include <optional>
#include <string>

#include "bench/sim/scenario_stage.h"
#include "common/base/check.h"
#include "common/wire/node_image.h"
#include "compute/client/access.h"

namespace pando {
namespace {

constexpr uint32_t kHalfDeadChunkBytes = 64 << 10;

std::string HalfDeadKey(uint32_t i) {
  char key[16];
  std::snprintf(key, sizeof(key), "%05u", i);
  return key;
}

class HalfDead : public Stage {
 public:
  explicit HalfDead(uint64_t seed)
      : Stage({.sim = {.seed = seed, .mode = sim::DeliveryMode::kWhole},
               .memory_servers = 2,
               .main_bytes = 8 << 20,
               .chunk_bytes = kHalfDeadChunkBytes}) {}

  SimRunResult Run() {
    constexpr PeerId kPeerOfA = 2;
    const OneClient b = Join(), a = Join();
    const TreeContext& tree = ImplOf(*a.tree).context();
    const uint32_t slots = tree.layout.slot_count();
    for (uint32_t i = 0; i < slots; ++i) Put(b, HalfDeadKey(i));
    Reference leaf;
    PANDO_CHECK_EQ(ImplOf(*b.tree).context().root.Load(&leaf), 0);
    const ServerId y = leaf.address.server() == 1 ? 2 : 1;

    absl::Status put;
    StartPut(a, HalfDeadKey(slots), &put);
    while (!IsWrittenOn(y, tree)) PANDO_CHECK(world().Step());
    world().PauseFabric(*a.fabric);
    PANDO_CHECK(RightOf(cluster_.At(leaf.address)).is_null());
    world().Fence(y)->CutOff(kPeerOfA);
    RunFor(kSecondNs);
    SweepResult swept;
    Expect(b.session->Sweep(*b.tree, &swept), "sweep");
    PANDO_CHECK_GT(swept.left + swept.freed, 0u) << "there was nothing to decide";
    world().ResumeFabric(*a.fabric);
    a.session->Run();
    Expect(put, "the put of who was cut off elsewhere");
    contents()[HalfDeadKey(slots)] = "v";
    return Conclude({});
  }

 private:
  // A leaf of the tree that does not begin at the first key.
  bool IsWrittenOn(ServerId server, const TreeContext& tree) {
    const uint64_t first = cluster_.server(server - 1).superblock().chunk_offset;
    for (uint64_t at = first; at < first + 2 * kHalfDeadChunkBytes;
         at += tree.layout.node_bytes()) {
      const std::byte* const image = cluster_.At(RemoteAddress(server, at));
      FenceScratch scratch;
      const NodeExpectation any{.tree_id = tree.id(), .level = 0, .life = 1, .key = "~"};
      if (Classify(image, tree.layout, any, false) == NodeVerdict::kAccepted &&
          !LowFence(image, tree.layout, &scratch).empty()) {
        return true;
      }
    }
    return false;
  }
};

}  // namespace

SimRunResult RunHalfDead(uint64_t seed) { return HalfDead(seed).Run(); }

}  // namespace pando
