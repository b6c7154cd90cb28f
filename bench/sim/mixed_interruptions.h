// What holds up the living in runs of the presets, and is over by itself; and clocks that differ.
#pragma once

#include <cstdint>

#include "bench/sim/sim_run.h"

namespace pando {

// The last of the choices: it needs to know the others.
void MixInterruptions(uint64_t seed, const MixOptions& mix, SimRunOptions* options);

// Memory servers that have died start again, in seven of ten of the runs that have such deaths, and
// there may be more of them. After MixOwnerFaults().
void MixRestarts(uint64_t seed, SimRunOptions* options);

}  // namespace pando
