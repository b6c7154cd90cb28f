#include "common/base/rule.h"

#include <atomic>
#include <utility>

namespace pando {
namespace {

constexpr std::pair<std::string_view, Rule> kNames[] = {
    {"F1", Rule::kF1}, {"F2", Rule::kF2},          {"F3", Rule::kF3},
    {"V1", Rule::kV1}, {"V5", Rule::kV5},          {"L2", Rule::kL2},
    {"L4", Rule::kL4}, {"L5", Rule::kL5},          {"L5_quiet", Rule::kL5Quiet},
    {"S2", Rule::kS2}, {"S3", Rule::kS3},          {"U2", Rule::kU2},
    {"R2", Rule::kR2}, {"M2", Rule::kM2},          {"M4", Rule::kM4},
    {"M7", Rule::kM7}, {"R3", Rule::kR3},          {"R4", Rule::kR4},
    {"C2", Rule::kC2}, {"C3", Rule::kC3},          {"C4", Rule::kC4},
    {"C5", Rule::kC5}, {"F2_slow", Rule::kF2Slow},
};

}  // namespace

#ifdef PANDO_BROKEN_VARIANTS
namespace {
std::atomic<Rule> broken_rule{Rule::kNone};
}  // namespace

void BreakRule(Rule rule) { broken_rule.store(rule, std::memory_order_relaxed); }
Rule BrokenRule() { return broken_rule.load(std::memory_order_relaxed); }
#endif

Rule RuleByName(std::string_view name) {
  for (const auto& [known, rule] : kNames) {
    if (known == name) return rule;
  }
  return Rule::kNone;
}

}  // namespace pando
