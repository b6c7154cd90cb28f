// Results of a run for machines and for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/chaos/outcome.h"
#include "bench/history/checker.h"
#include "pando/check.h"

namespace pando::chaos {

struct Report {
  Outcome outcome;  // evaluated
  CheckReport tree;
  history::CheckResult history;

  // Everything held: linearizable, the tree whole, nothing in `outcome.failures`.
  bool ok() const;
};

// The plan, the host and the build.
nlohmann::json ConfigJson(const Plan& plan);
nlohmann::json ReportJson(const Plan& plan, const Report& report);
std::string ReportText(const Report& report);

}  // namespace pando::chaos
