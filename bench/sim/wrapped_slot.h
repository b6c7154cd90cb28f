// A scenario for rule F2's second half: while a READ is half-way through a slot of several lines,
// the slot is written 256 times, so that its entry version comes around.
//
//   1. Client A stores values of two lines each. Client B knows the leaf.
//   2. Sessions of B read the keys; each READ stops half-way (SimWorld::StallReads), mostly between
//      the two lines of some slots.
//   3. A updates each key 256 times: every line has the versions again that it had, and another
//      value.
//   4. The READs go on. What B returns has to be one of the values.
//
// Twice, for the two halves of the rule: where lines are whole and have no checksums the READ's
// time gives it away; where they have checksums these do, whatever the READ took.
#pragma once

#include "bench/sim/sim_run.h"

namespace pando {

SimRunResult RunWrappedSlot(uint64_t seed);

}  // namespace pando
