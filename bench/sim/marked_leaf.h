// "marked_leaf", a scenario for the marker of rule N8.
//
//   1. Somebody dies between the markers of a merge and its commit, and his locks are set free by
//      somebody who wanted other nodes of the same words.
//   2. A writes a key of each marked leaf by its window alone. Without the rule the markers stand,
//      and what is written to R goes with it.
#pragma once

#include "bench/sim/sim_run.h"

namespace pando {

SimRunResult RunMarkedLeaf(uint64_t seed);

}  // namespace pando
