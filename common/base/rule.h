// Broken variants of the protocol's rules. A test build (PANDO_BROKEN_VARIANTS) can switch off one
// rule at run time, to prove that the simulator notices. In every other build RuleHolds() is a
// constant true and the variant is not compiled in.
#pragma once

#include <string_view>

namespace pando {

enum class Rule {
  kNone,
  kF1,       // front and rear entry versions are compared
  kF2,       // every write of a line changes its entry version; formatting succeeds the old image's
             // versions
  kF2Slow,   // the lines of one slot are of one write even where a READ met 256 of them
  kF3,       // a reference's life is compared with the node's
  kV1,       // two in-fence slots of one key make an image torn
  kV5,       // what an image says that is older than an operation counts for it only with a proof
             // that its lock is held
  kL2,       // no further lock is waited for under a node lock
  kL4,       // the release follows the write in its chain
  kL5,       // acknowledgement and handover wait for the write-back's completion
  kL5Quiet,  // a lock whose chain failed is kept until nothing of the chain is in flight
  kS2,       // a split's node-level write changes NV on every line
  kS3,  // a separator goes only into the parent that covers it, once, and only for a live child
  kU2,  // a key present before and after an entry-level write keeps its slot
  kR2,  // a scan consumes only images that contain its cursor
  kM2,  // a node is marked as merging before anything else of its merge is written
  kM4,  // a merge's line 0 is written after the other lines
  kM7,  // whoever holds a marked node finishes or undoes the merge before using it
  kR3,  // freed memory rests before it is used again, and a READ that took half as long is
        // discarded
  kR4,  // a repeated control call takes effect once
  kC2,  // a death is acted on after everything the dead had posted has landed
  kC3,  // a lock word is taken from the dead only
  kC4,  // a node that is torn under its lock is rewritten from line 0 on
  kC5,  // a sweep frees only what cannot be reached
};

#ifdef PANDO_BROKEN_VARIANTS
// The one rule that is switched off in this process; kNone at start.
void BreakRule(Rule rule);
Rule BrokenRule();
inline bool RuleHolds(Rule rule) { return BrokenRule() != rule; }
#else
constexpr bool RuleHolds(Rule) { return true; }
#endif

// "F1" -> Rule::kF1; kNone for anything unknown.
Rule RuleByName(std::string_view name);

}  // namespace pando
