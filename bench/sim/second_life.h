// "second_life", a scenario for rule R8: a memory server dies and starts again while somebody holds
// the image of a node on it.
//
//   1. An operation of A has READ a leaf on server 2, and has not written it back yet.
//   2. Server 2 dies and comes back, empty. B drops the tree and creates it again; the new tree's
//      leaf lies where the old one's was.
//   3. A takes the server up, as another operation begins.
//   4. The first one WRITEs. Without the rule it destroys the new tree's leaf.
//
// With even seeds B has dropped the tree before the server died: its next life knows nothing of
// that.
#pragma once

#include "bench/sim/sim_run.h"

namespace pando {

SimRunResult RunSecondLife(uint64_t seed);

}  // namespace pando
