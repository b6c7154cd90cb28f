// Broken variants of the protocol's rules. A test build (PANDO_BROKEN_VARIANTS) can switch off one
// rule at run time, to prove that a kept run or a test notices. In every other build RuleHolds() is
// a constant true and the variant is not compiled in.
#pragma once

#include <span>
#include <string_view>

namespace pando {

// One a rule, or one a part of it: kL5Quiet is "L5_quiet". What each switches off: rule.cpp.
enum class Rule {
  kNone,
  kF1,
  kF2,
  kF2Slow,
  kF3,
  kF4,
  kF5,
  kF6,
  kF7,
  kV1,
  kV2,
  kV3,
  kV4,
  kV5,
  kL1,
  kL2,
  kL3,
  kL4,
  kL5,
  kL5Quiet,
  kL6,
  kL7,
  kU1,
  kU2,
  kU3,
  kU4,
  kU5,
  kU6,
  kS1,
  kS2,
  kS3,
  kS4,
  kS5,
  kM1,
  kM2,
  kM3,
  kM4,
  kM5,
  kM6,
  kM7,
  kM7Dead,
  kM8,
  kR1,
  kR1Sibling,
  kR2,
  kR3,
  kR4,
  kR4Look,
  kR5,
  kR6,
  kR7,
  kR8,
  kR9,
  kC0,
  kC1,
  kC2,
  kC3,
  kC4,
  kC5,
  kC5Everywhere,
  kC5Lock,
  kO1,
  kO1Leases,
  kO2,
  kO2Reserve,
  kO3,
  kO4,
  kO5,
  kO6,
  kO7,
  kO8,
  kO9,
  kO10,
  kO10Behind,
  kO11,
  kO12,
  kO13,
  kO14,
  kO15Clean,
  kO15Write,
  kO15Give,
  kO15Dead,
  kW1,
  kW2,
  kW3Reuse,
  kW3Turn,
  kW4,
  kW5Durable,
  kW5End,
  kW5Reuse,
  kW6Dirty,
  kW6Entry,
  kW6Flush,
  kW7,
  kW7Ended,
  kT1,
  kT2,
  kT3,
  kT4,
  kT4Hold,
  kT5,
  kT5Hold,
  kT6,
  kT7,
  kT8,
  kT9Put,
  kT9Close,
  kB1,
  kB2,
  kB2Turn,
  kB3,
  kB3Durable,
  kB4,
  kB5,
  kB5Age,
  kP2,
  kP2Patience,
  kP3,
  kP4,
  kP4Most,
  kD1,
  kD2,
  kD3,
  kD4,
  kD5,
  kD6,
  kD6Note,
  kD6Alive,
  kN1,
  kN1Window,
  kN2Nv,
  kN2Ev,
  kN2Near,
  kN5,
  kN6,
  kN7,
  kN7New,
  kN7Drop,
  kN8,
  kN8Flags,
  kN8Marker,
  kK1,
  kK2,
  kK2Early,
  kK3,
  kK4,
  kK5,
  kK6,
  kK7,
  kK8,
};

#ifdef PANDO_BROKEN_VARIANTS
// The one rule that is switched off in this process; kNone at start.
void BreakRule(Rule rule);
Rule BrokenRule();
inline bool RuleHolds(Rule rule) { return BrokenRule() != rule; }
#else
constexpr bool RuleHolds(Rule) { return true; }
#endif

struct RuleVariant {
  std::string_view name;  // "F1": of common/protocol.md; "L5_quiet": of a part of L5
  Rule rule;
  std::string_view holds;  // what holds, but not in the variant
  // The command of a unit test that shows what goes wrong with the variant. Empty: a kept run of
  // bench/sim/broken_rules.json fails with it.
  std::string_view test;
};
// All there are, in the order of common/protocol.md.
std::span<const RuleVariant> RuleVariants();

// "F1" -> Rule::kF1; kNone for anything unknown.
Rule RuleByName(std::string_view name);

}  // namespace pando
