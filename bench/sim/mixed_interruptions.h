// What holds up the living in runs of the presets, and is over by itself; and clocks that differ.
#pragma once

#include <cstdint>

#include "bench/sim/sim_run.h"

namespace pando {

// The last of the choices: it needs to know the others.
void MixInterruptions(uint64_t seed, const MixOptions& mix, SimRunOptions* options);

}  // namespace pando
