#include "compute/owner/spread_plan.h"

#include <algorithm>
#include <numeric>

#include "common/base/rule.h"

namespace pando {
namespace {

double MeanOf(double own, const std::vector<double>& others) {
  return std::accumulate(others.begin(), others.end(), own) /
         static_cast<double>(others.size() + 1);
}

}  // namespace

bool SpreadPlan::IsDue(double own, const std::vector<double>& others) {
  bool is_due = false;
  if (!others.empty()) {
    const double mean = MeanOf(own, others);
    const double least = *std::min_element(others.begin(), others.end());
    const bool too_much = own > kTooMuch * mean;
    // Somebody has come, and none of the others has far too much.
    const bool others_starve = own > (1 + kWorth) * mean && least < kTooLittle * mean;
    is_due = mean >= kOperationsMin && (too_much || others_starve);
  }
  rounds_ = is_due ? rounds_ + 1 : 0;
  return rounds_ >= kRoundsDue;
}

SpreadStep SpreadPlan::Next(double own, const std::vector<SpreadRange>& ranges,
                            const std::vector<double>& others, double dice) {
  SpreadStep step;
  const double mean = MeanOf(own, others);
  double lacking = 0;
  for (const double other : others) lacking += std::max(0.0, mean - other);
  if (lacking <= 0) return step;
  // In proportion to what they have too little.
  double at = dice * lacking;
  for (size_t i = 0; i < others.size(); ++i) {
    if (others[i] >= mean) continue;
    step.to = i;
    at -= mean - others[i];
    if (at < 0) break;
  }
  const double wanted = std::min(own - mean, mean - others[step.to]);
  if (wanted < kWorth * mean) return step;
  const size_t none = ranges.size();
  size_t fits = none, hot = none;
  for (size_t i = 0; i < ranges.size(); ++i) {
    const double load = ranges[i].operations_per_s;
    if (load <= kFits * wanted || !RuleHolds(Rule::kO13)) {
      const bool more = fits == none || load > ranges[fits].operations_per_s;
      if (ranges[i].may_go && more) fits = i;
    } else {
      const bool more = hot == none || load > ranges[hot].operations_per_s;
      if (ranges[i].may_split && more) hot = i;
    }
  }
  const double fitting = fits == none ? 0 : ranges[fits].operations_per_s;
  if (fitting < wanted / 2 && hot != none) {
    step.kind = SpreadStep::Kind::kSplit;
    step.range = hot;
    step.share = wanted / ranges[hot].operations_per_s;
  } else if (fits != none && fitting >= kWorth * mean) {
    step.kind = SpreadStep::Kind::kGive;
    step.range = fits;
  }
  return step;
}

}  // namespace pando
