// What operations are made of: round trips and bytes of writes, retries.
#include <algorithm>
#include <string>

#include "bench/figures/parts.h"
#include "common/wire/node_layout.h"

namespace pando::bench {
namespace {

// Values above `most` are taken together as "more".
void AddShares(const std::string& series, const char* metric, const Histogram& histogram,
               int64_t most, std::vector<Point>* points) {
  uint64_t more = 0;
  const auto percent = [&histogram](uint64_t count) {
    return 100 * static_cast<double>(count) / static_cast<double>(histogram.count());
  };
  for (const auto& [value, count] : histogram.Buckets()) {
    if (value > most) {
      more += count;
    } else {
      points->push_back({series, value, metric, percent(count)});
    }
  }
  if (more > 0) points->push_back({series, "more", metric, percent(more)});
}

// Of the writes that wrote something back, those of at most one line: an entry and what guards it.
double EntryWritesPercent(const Histogram& write_bytes) {
  uint64_t entries = 0, all = 0;
  for (const auto& [bytes, count] : write_bytes.Buckets()) {
    if (bytes == 0) continue;
    all += count;
    if (bytes <= kLineBytes) entries += count;
  }
  return all == 0 ? 0 : 100 * static_cast<double>(entries) / static_cast<double>(all);
}

void AddDistributions(const Figure& figure, const std::vector<CaseResult>& results,
                      std::vector<Point>* points) {
  constexpr int64_t kTripsMost = 12, kRetriesMost = 3, kBytesMost = 2048;
  for (size_t i = 0; i < results.size(); ++i) {
    const std::string& series = figure.cases[i].series;
    const CaseResult& result = results[i];
    AddShares(series, "writes_by_round_trips_percent", result.write_trips, kTripsMost, points);
    AddShares(series, "writes_by_bytes_percent", result.write_bytes, kBytesMost, points);
    points->push_back(
        {series, "one entry", "writes_by_bytes_percent", EntryWritesPercent(result.write_bytes)});
    AddShares(series, "reads_by_retries_percent", result.read_retries, kRetriesMost, points);
    for (const auto& [name, percent] : {std::pair("p50", 50), {"p90", 90}, {"p99", 99}}) {
      points->push_back({series, name, "lock_retries",
                         static_cast<double>(result.write_retries.Percentile(percent))});
    }
  }
}

}  // namespace

Figure MakeInternals(const Grid& grid) {
  Figure figure = {.title = "Round trips, retries and bytes, write-intensive, zipfian 0.99",
                   .x_name = "system"};
  for (const NamedSystem& named : ThreeSystems()) {
    FigureCase one =
        MakeTreeCase(grid, named.name, "all", named.system, WriteIntensive().mix, Zipfian(0.99));
    TreeOf(one).coroutines = 1;  // what a session did is what its operation did
    figure.cases.push_back(std::move(one));
  }
  figure.extra = &AddDistributions;
  return figure;
}

}  // namespace pando::bench
