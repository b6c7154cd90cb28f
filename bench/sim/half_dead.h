// "half_dead", a scenario for rule C5: one memory server has a client for dead, the other does not.
//
//   1. A splits a leaf on server X; the new node S is on server Y. It is stopped when S is written,
//      and its WRITE to the leaf not yet posted.
//   2. Y cuts A off. S is an orphan there, live, and nothing leads to it.
//   3. B sweeps. Without the rule it frees S.
//   4. A goes on, and X takes its WRITE: the leaf refers to S.
#pragma once

#include "bench/sim/sim_run.h"

namespace pando {

SimRunResult RunHalfDead(uint64_t seed);

}  // namespace pando
