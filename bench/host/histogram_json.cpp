#include "bench/host/histogram_json.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace pando::bench {

nlohmann::json HistogramToJson(const Histogram& histogram) {
  nlohmann::json buckets = nlohmann::json::array();
  for (const auto& [value, count] : histogram.Buckets()) buckets.push_back({value, count});
  return {{"buckets", std::move(buckets)},
          {"sum", histogram.sum()},
          {"min", histogram.min()},
          {"max", histogram.max()}};
}

Histogram HistogramFromJson(const nlohmann::json& json) {
  std::vector<Histogram::Bucket> buckets;
  for (const nlohmann::json& bucket : json.at("buckets")) {
    buckets.push_back({bucket.at(0).get<int64_t>(), bucket.at(1).get<uint64_t>()});
  }
  return Histogram::FromBuckets(buckets, json.at("sum").get<double>(),
                                json.at("min").get<int64_t>(), json.at("max").get<int64_t>());
}

}  // namespace pando::bench
