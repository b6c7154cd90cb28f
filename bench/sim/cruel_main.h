// Flags of pando-sim that make a run more unkind than a workload alone.
#pragma once

#include <string>

#include "bench/sim/sim_run.h"

namespace pando {

// What was given, into the options. Not empty: what is wrong with it.
std::string ApplyCruelFlags(SimRunOptions* options);

}  // namespace pando
