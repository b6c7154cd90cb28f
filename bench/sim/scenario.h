// Interleavings that a workload rarely or never produces, played step by step: each is there for a
// rule that nothing else shows (broken_rules.json).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "bench/sim/sim_run.h"

namespace pando {

struct Scenario {
  std::string_view name;
  SimRunResult (*run)(uint64_t seed);
};
std::span<const Scenario> Scenarios();
// nullptr: there is none of that name.
const Scenario* FindScenario(std::string_view name);
// "recycled_leaf, slow_read, ...".
std::string ScenarioNames();

}  // namespace pando
