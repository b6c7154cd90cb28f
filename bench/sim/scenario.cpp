#include "bench/sim/scenario.h"

#include "absl/strings/str_cat.h"
#include "bench/sim/half_dead.h"
#include "bench/sim/late_spare.h"
#include "bench/sim/marked_leaf.h"
#include "bench/sim/paused_merger.h"
#include "bench/sim/recycled_leaf.h"
#include "bench/sim/root_change.h"
#include "bench/sim/second_life.h"
#include "bench/sim/slow_read.h"
#include "bench/sim/wrapped_slot.h"

namespace pando {
namespace {

constexpr Scenario kScenarios[] = {
    {"recycled_leaf", RunRecycledLeaf}, {"slow_read", RunSlowRead},
    {"wrapped_slot", RunWrappedSlot},   {"shrunk_root", RunShrunkRoot},
    {"root_sibling", RunRootSibling},   {"half_dead", RunHalfDead},
    {"paused_merger", RunPausedMerger}, {"late_spare", RunLateSpare},
    {"second_life", RunSecondLife},     {"marked_leaf", RunMarkedLeaf}};

}  // namespace

std::span<const Scenario> Scenarios() { return kScenarios; }

const Scenario* FindScenario(std::string_view name) {
  for (const Scenario& scenario : kScenarios) {
    if (scenario.name == name) return &scenario;
  }
  return nullptr;
}

std::string ScenarioNames() {
  std::string names;
  for (const Scenario& scenario : kScenarios) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(scenario.name));
  }
  return names;
}

}  // namespace pando
