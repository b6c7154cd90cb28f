#include "bench/sim/marked_leaf.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/sim/scenario_stage.h"
#include "common/base/check.h"
#include "common/wire/leaf.h"

namespace pando {
namespace {

constexpr uint32_t kMarkedLeafKeys = 200;  // some leaves under one root

class MarkedLeaf : public Stage {
 public:
  explicit MarkedLeaf(uint64_t seed)
      : Stage({.sim = {.seed = seed, .mode = sim::DeliveryMode::kLines}, .memory_servers = 1},
              {.narrow_reads = true}) {}

  SimRunResult Run() {
    ClientOptions options;
    options.techniques.narrow_writes = true;
    const OneClient a = Join(options);
    for (uint32_t i = 0; i < kMarkedLeafKeys; ++i) Put(a, absl::StrCat("k", 10'000 + i));
    for (const std::string& key : MarkTwoLeaves(a)) Put(a, key);
    return Conclude({});
  }

 private:
  // A key of each.
  std::vector<std::string> MarkTwoLeaves(const OneClient& client) {
    const TreeContext& tree = ImplOf(*client.tree).context();
    Reference root;
    PANDO_CHECK_EQ(tree.root.Load(&root), 1);
    const Reference left = ReadHeader(cluster_.At(root.address), tree.layout).leftmost;
    std::byte* const survivor = cluster_.At(left.address);
    const Reference right = RightOf(survivor);
    std::byte* const merging = cluster_.At(right.address);
    std::vector<std::string> keys;
    for (const std::byte* const leaf : {survivor, merging}) {
      std::vector<LeafEntry> entries;
      PANDO_CHECK(ReadLeafEntries(leaf, tree.layout, &entries) && !entries.empty());
      keys.push_back(entries.front().key);
    }
    SetMarker(survivor, NodeState::kLive, right);
    SetMarker(merging, NodeState::kMerging, left);
    for (std::byte* const line : {survivor, merging}) SealEntryLevel(line, 0, 1, /*crc=*/false);
    return keys;
  }
};

}  // namespace

SimRunResult RunMarkedLeaf(uint64_t seed) { return MarkedLeaf(seed).Run(); }

}  // namespace pando
