// A scenario for rule R3: a leaf is merged away while others are half-way through reading it, and
// its chunk goes to another tree, whose versions begin at the same numbers: the memory was zeroed.
//
//   1. Client A fills a tree until its last leaf R is the only node of a chunk. Client B knows R's
//      parent.
//   2. Sessions of B read keys of R; each READ stops half-way (SimWorld::StallReads).
//   3. A erases other keys, so that R is merged into its neighbour, and leaves: the chunk goes
//      back.
//   4. Client C creates another tree and stores the same keys there with other values. Without rest
//      its root leaf lies where R was.
//   5. The READs go on. Half of their lines are R's, half are the other tree's, and nothing tells.
//
// Twice, for the two halves of the rule: a short stop, and C comes at once (memory rests); a stop
// that is longer than memory rests, and C comes after that (such a READ is discarded).
#pragma once

#include "bench/sim/sim_run.h"

namespace pando {

SimRunResult RunSlowRead(uint64_t seed);

}  // namespace pando
