#include "common/base/rule.h"

#include <atomic>

namespace pando {
namespace {

constexpr RuleVariant kVariants[] = {
    {"F1", Rule::kF1, "front and rear entry versions are compared", ""},
    {"F2", Rule::kF2,
     "every write of a line changes its entry version; formatting succeeds the old image's", ""},
    {"F2_slow", Rule::kF2Slow,
     "the lines of one slot are of one write even where a READ met 256 of them", ""},
    {"F3", Rule::kF3, "a reference's life is compared with the node's", ""},
    {"F4", Rule::kF4, "repair takes a high fence that continues behind line 0 from the sibling",
     ""},
    {"F5", Rule::kF5, "a split clears the slots that it moves", ""},
    {"F6", Rule::kF6, "a packet ends at a slot boundary", ""},
    {"F7", Rule::kF7, "a WRITE on shm has an intent",
     "shm_rules_test --gtest_filter=ShmRulesTest.F7"},
    {"V1", Rule::kV1, "two in-fence slots of one key make an image torn", ""},
    {"V2", Rule::kV2, "NotFound comes from a node that covers the key", ""},
    {"V3", Rule::kV3, "a restart forgets what led astray, and rereads the root record", ""},
    {"V4", Rule::kV4, "who meets a node that stays torn looks after it", ""},
    {"V5", Rule::kV5,
     "what an image says that is older than an operation counts only with a proof of the lock", ""},
    {"L1", Rule::kL1, "a word that several held nodes share is released once", ""},
    {"L2", Rule::kL2, "no further lock is waited for under a node lock", ""},
    {"L3", Rule::kL3, "a failed CAS discards the image that was read with it", ""},
    {"L4", Rule::kL4, "the release follows the write in its chain", ""},
    {"L5", Rule::kL5, "acknowledgement and handover wait for the write-back's completion", ""},
    {"L5_quiet", Rule::kL5Quiet,
     "a lock whose chain failed is kept until nothing of the chain is in flight", ""},
    {"L6", Rule::kL6, "after so many handovers the word is released", ""},
    {"L7", Rule::kL7, "a write that depends on one to another server waits for it", ""},
    {"U1", Rule::kU1, "a node that does not cover the key is released, and the key moved after",
     ""},
    {"U2", Rule::kU2, "a key present before and after an entry-level write keeps its slot", ""},
    {"U3", Rule::kU3, "all changed lines are written before the acknowledgement", ""},
    {"U4", Rule::kU4, "a write sees what those before it in its batch have left", ""},
    {"U5", Rule::kU5, "a write that may have been written is not tried again", ""},
    {"U6", Rule::kU6, "a run ends at the high fence of its leaf", ""},
    {"S1", Rule::kS1, "a new node is written before the commit that refers to it", ""},
    {"S2", Rule::kS2, "a split's node-level write changes NV on every line", ""},
    {"S3", Rule::kS3, "a separator goes only into the parent that covers it", ""},
    {"S4", Rule::kS4, "all new siblings are written before the commit that leads to them", ""},
    {"S5", Rule::kS5, "what stays in a leaf that is split keeps its slot", ""},
    {"M1", Rule::kM1, "what is merged is adjacent by sibling reference and fences", ""},
    {"M2", Rule::kM2, "a node is marked as merging before anything else of its merge is written",
     ""},
    {"M3", Rule::kM3, "the parent forgets the right node before its death", ""},
    {"M4", Rule::kM4, "a merge's line 0 is written after the other lines", ""},
    {"M5", Rule::kM5, "the absorbed node is marked dead", ""},
    {"M6", Rule::kM6, "the survivor's marker is cleared after the absorbed node's death", ""},
    {"M7", Rule::kM7, "whoever holds a marked node finishes or undoes the merge before using it",
     ""},
    {"M7_dead", Rule::kM7Dead, "who finishes a merge marks the absorbed node dead", ""},
    {"R1", Rule::kR1, "growth revalidates the child under the root record's lock", ""},
    {"R1_sibling", Rule::kR1Sibling, "a root makes way for its only child if that has no sibling",
     ""},
    {"R2", Rule::kR2, "a scan consumes only images that contain its cursor", ""},
    {"R3", Rule::kR3,
     "freed memory rests before it is used again, and a READ that took half as long is discarded",
     ""},
    {"R4", Rule::kR4, "a repeated control call takes effect once", ""},
    {"R4_look", Rule::kR4Look, "a node is freed or settled only as its memory shows it", ""},
    {"R5", Rule::kR5, "each grant of a node names a newer life",
     "memory_rules_test --gtest_filter=MemoryRulesTest.R5"},
    {"R6", Rule::kR6, "what somebody may have a WRITE in flight to is given to nobody", ""},
    {"R7", Rule::kR7, "a tree is attached to the life of a server that it has nodes on",
     "memory_rules_test --gtest_filter=MemoryRulesTest.R7"},
    {"R8", Rule::kR8, "an operation on a lost tree posts nothing to the server's next life", ""},
    {"R9", Rule::kR9, "reading downwards consumes only images that contain its cursor", ""},
    {"C0", Rule::kC0, "an incarnation is issued once",
     "memory_rules_test --gtest_filter=MemoryRulesTest.C0"},
    {"C1", Rule::kC1, "after a gap in the server's own timer all leases start again",
     "memory_rules_test --gtest_filter=MemoryRulesTest.C1"},
    {"C2", Rule::kC2, "a death is acted on after everything the dead had posted has landed", ""},
    {"C3", Rule::kC3, "a lock word is taken from the dead only", ""},
    {"C4", Rule::kC4, "a node that is torn under its lock is rewritten from line 0 on", ""},
    {"C5", Rule::kC5, "a sweep frees only what cannot be reached", ""},
    {"C5_everywhere", Rule::kC5Everywhere,
     "a sweep frees a live node only once every server has its holder for dead", ""},
    {"C5_lock", Rule::kC5Lock, "a sweep holds the lock of what it frees, and has read it since",
     ""},
    {"O3", Rule::kO3, "a change of the map that may land later is repeated until it is decided",
     "map_rules_test --gtest_filter=MapRulesTest.O3"},
    {"O4", Rule::kO4, "the border below a range is read once the claim of it is won",
     "map_rules_test --gtest_filter=MapRulesTest.O4"},
    {"O5", Rule::kO5, "an owner answers while its serving lease is held",
     "owned_rules_test --gtest_filter=OwnedRulesTest.O5"},
    {"W3_reuse", Rule::kW3Reuse,
     "the place of a batch that two have written is used again when both are done",
     "log_rules_test --gtest_filter=LogRulesTest.W3Reuse"},
    {"W4", Rule::kW4, "a chain of the log that failed is in flight until its queue pair is gone",
     "log_rules_test --gtest_filter=LogRulesTest.W4"},
    {"W5_durable", Rule::kW5Durable,
     "a base waits until what was appended before the last look is durable",
     "log_rules_test --gtest_filter=LogRulesTest.W5Durable"},
    {"W5_reuse", Rule::kW5Reuse, "space is used again when the base line is complete",
     "log_rules_test --gtest_filter=LogRulesTest.W5Reuse"},
    {"T3", Rule::kT3, "what is read is durable before it is answered",
     "owned_rules_test --gtest_filter=OwnedRulesTest.T3"},
    {"T4", Rule::kT4, "a write is acknowledged when it is durable",
     "owned_rules_test --gtest_filter=OwnedRulesTest.T4"},
    {"T4_hold", Rule::kT4Hold,
     "a put is appended in the hold in which its range was found to serve",
     "owned_rules_test --gtest_filter=OwnedRulesTest.T4Hold"},
    {"T5", Rule::kT5, "what refuses a write is durable before that is answered",
     "owned_rules_test --gtest_filter=OwnedRulesTest.T5"},
    {"T5_hold", Rule::kT5Hold, "a write is decided in the hold in which its READ is found to count",
     "owned_rules_test --gtest_filter=OwnedRulesTest.T5Hold"},
    {"T8", Rule::kT8, "a scan copies records before it READs their leaves",
     "owned_rules_test --gtest_filter=OwnedRulesTest.T8"},
    {"B3", Rule::kB3, "a record is clean when the message that was flushed is its newest",
     "owned_rules_test --gtest_filter=OwnedRulesTest.B3"},
    {"D4", Rule::kD4, "a range is adopted when all of its messages are in leaves",
     "owned_rules_test --gtest_filter=OwnedRulesTest.D4"},
    {"N1", Rule::kN1, "a key outside its window has its home's flag",
     "wire_rules_test --gtest_filter=WindowRulesTest.N1"},
    {"N1_window", Rule::kN1Window, "every writer knows of windows",
     "wire_rules_test --gtest_filter=WindowRulesTest.N1Window"},
    {"N2_nv", Rule::kN2Nv, "the lines of a window are of line 0's node version",
     "wire_rules_test --gtest_filter=WindowRulesTest.N2Nv"},
    {"N2_ev", Rule::kN2Ev, "the lines of a window's group are of one entry version",
     "wire_rules_test --gtest_filter=WindowRulesTest.N2Ev"},
    {"N6", Rule::kN6, "a flag is there before the key that needs it",
     "wire_rules_test --gtest_filter=WindowRulesTest.N6"},
    {"N7", Rule::kN7, "repair computes the flags from the keys that it finds",
     "wire_rules_test --gtest_filter=WindowRulesTest.N7"},
};

}  // namespace

#ifdef PANDO_BROKEN_VARIANTS
namespace {
std::atomic<Rule> broken_rule{Rule::kNone};
}  // namespace

void BreakRule(Rule rule) { broken_rule.store(rule, std::memory_order_relaxed); }
Rule BrokenRule() { return broken_rule.load(std::memory_order_relaxed); }
#endif

std::span<const RuleVariant> RuleVariants() { return kVariants; }

Rule RuleByName(std::string_view name) {
  for (const RuleVariant& variant : kVariants) {
    if (variant.name == name) return variant.rule;
  }
  return Rule::kNone;
}

}  // namespace pando
