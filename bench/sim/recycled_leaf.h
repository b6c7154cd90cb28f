// A scenario for rule F3: a leaf is merged away, rests, and is used again as the spare node of a
// split, while a session still has the old reference to it. The harness plays the merger and the
// splitter, step by step (rules M2-M6, S1, S2), by writing the nodes itself: merging is not part of
// the tree yet, so no workload can produce a recycled node.
//
//   1. Client B reads a key of leaf R: the parent with the reference (R, life 1) is in its cache.
//   2. R is merged into its left neighbour L and freed.
//   3. A put of that key splits L; the spare node is R (life 2). Its image holds the new value
//      (S1), but L does not point there yet: the put has not taken effect.
//   4. B reads the key through its cached parent, then C through the root. Without rule F3 B takes
//      R for the leaf it knew and returns the new value; C reads the old one after it.
//   5. The split commits (S2).
#pragma once

#include "bench/sim/sim_run.h"

namespace pando {

SimRunResult RunRecycledLeaf(uint64_t seed);

}  // namespace pando
