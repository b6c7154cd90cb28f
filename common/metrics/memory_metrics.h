// The metrics of a memory server, from what it tells about itself.
#pragma once

#include "common/metrics/metric.h"
#include "common/wire/control.h"

namespace pando {

// README.md lists them. Counters that are not known here are left out.
MetricList MemoryMetrics(const ServerInfo& info, const CounterList& counters);

}  // namespace pando
