// The metrics of a compute server, from Client::Stats().
#pragma once

#include "common/metrics/metric.h"
#include "pando/stats.h"

namespace pando {

// README.md lists them.
MetricList ClientMetrics(const ClientStats& stats);

}  // namespace pando
