// YCSB's CoreWorkload: what its properties ask for, as a plan.
//
// A record's fields are one value here, fieldcount x fieldlength bytes, and an update writes all of
// it. Names that say nothing to this program (of another database's binding, of how YCSB itself
// measures) are returned, to be told.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/workload/properties.h"
#include "bench/ycsb/plan.h"

namespace pando::bench {

// What holds for a property file that does not say: YCSB's defaults.
const Properties& CoreWorkloadDefaults();

// Sets what `properties` name, but for what a flag has set: flag_is_given("records"). Proportions
// are taken relative to their sum. InvalidArgument names the property.
absl::StatusOr<std::vector<std::string>> ApplyCoreWorkload(
    const Properties& properties, const std::function<bool(const char*)>& flag_is_given,
    Plan* plan);

}  // namespace pando::bench
