// What is exported: metrics with names, kinds and help, and their values at one moment.
#pragma once

#include <string>
#include <vector>

namespace pando {

// Names begin with pando_, those of counters end in _total; units are base units and part of the
// name (_bytes).
struct MetricInfo {
  enum Kind { kCounter, kGauge };
  const char* name;
  Kind kind;
  const char* help;
};

struct Metric {
  MetricInfo info;
  double value = 0;
};
using MetricList = std::vector<Metric>;

}  // namespace pando
