// Scenarios for the two halves of rule R1: a root that grows, and one that makes way for its child,
// while somebody else is still about to grow it.
#pragma once

#include "bench/sim/sim_run.h"

namespace pando {

// "shrunk_root":
//   1. A splits the root, a leaf L, into L and S, and is stopped while it waits for the root
//      record's lock.
//   2. B notices that S has no parent and grows the root. It erases keys until S is merged away and
//      the root has shrunk again: the root is L, at the level where A has left it.
//   3. A goes on. Without the rule it makes a root that refers to S, which is dead.
SimRunResult RunShrunkRoot(uint64_t seed);

// "root_sibling":
//   1. A splits the root P, of level 1, into P and Q, and leaves before it has grown the root.
//   2. B erases keys until P has one child, which has a right sibling below Q. Without the rule the
//      child becomes the root, and Q is of a level that no longer is: nobody ever finds it.
SimRunResult RunRootSibling(uint64_t seed);

}  // namespace pando
