// Histograms on their way from one process to another: exact, with their buckets.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "common/base/histogram.h"

namespace pando::bench {

nlohmann::json HistogramToJson(const Histogram& histogram);
// Throws nlohmann::json::exception where a member is missing or has another type.
Histogram HistogramFromJson(const nlohmann::json& json);

}  // namespace pando::bench
