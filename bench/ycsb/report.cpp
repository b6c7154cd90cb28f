#include "bench/ycsb/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/units.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

std::vector<double> Throughputs(const YcsbResult& result) {
  std::vector<double> throughputs;
  for (const PhaseStats& run : result.runs) throughputs.push_back(run.throughput());
  return throughputs;
}

std::string Rate(double per_second) { return absl::StrCat(FormatCount(per_second), "/s"); }

std::string Percent(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  return absl::StrFormat("%.2f %%", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string OperationLine(OperationKind kind, const OperationStats& stats) {
  const auto us = [&stats](double percent) {
    return static_cast<double>(stats.latency_ns.Percentile(percent)) / kMicrosecondNs;
  };
  const double count = static_cast<double>(stats.count);
  return absl::StrFormat(
      "%-9s %10d %7d %7d %9.2f %9.2f %9.2f %9.2f %10.1f %6.3f %6.2f %8.1f %8.1f\n",
      std::string(OperationName(kind)), stats.count, stats.errors, stats.not_found,
      stats.latency_ns.Mean() / kMicrosecondNs, us(50), us(99), us(99.9),
      static_cast<double>(stats.latency_ns.max()) / kMicrosecondNs, stats.round_trips.Mean(),
      static_cast<double>(stats.verbs) / count, static_cast<double>(stats.bytes_read) / count,
      static_cast<double>(stats.bytes_written) / count);
}

std::string OwnedLine(const OwnedStats& o) {
  const auto count = [](uint64_t value) { return FormatCount(static_cast<double>(value)); };
  const double fill = static_cast<double>(o.log_messages) /
                      static_cast<double>(std::max<uint64_t>(o.log_batches, 1));
  return absl::StrCat(
      "owned     ", Percent(o.hits, o.hits + o.misses), " hits, ", FormatBytes(o.hot_bytes), " (",
      FormatBytes(o.dirty_bytes), " dirty); log: ", count(o.log_messages), " writes in ",
      count(o.log_batches), " batches (", absl::StrFormat("%.1f", fill), " each), ",
      FormatBytes(o.log_bytes), "; ", count(o.flushed), " flushed",
      o.forwarded == 0 ? "" : absl::StrCat("; ", count(o.forwarded), " forwarded"), "\n");
}

// Of trees with values outside their leaves.
std::string PlacesLine(const TreeStats& tree) {
  const uint64_t values = tree.place_hits + tree.place_misses;
  if (values == 0) return "";
  return absl::StrCat("places    ", Percent(tree.place_hits, values), " of ",
                      FormatCount(static_cast<double>(values)),
                      " values outside leaves were at their remembered places, ",
                      FormatBytes(tree.place_bytes), "\n");
}

std::string CounterLines(const PhaseStats& run) {
  const FabricStats& f = run.fabric;
  const TreeStats& t = run.tree;
  const auto count = [](uint64_t value) { return FormatCount(static_cast<double>(value)); };
  return absl::StrCat(
      "fabric    ", count(f.chains), " chains: ", count(f.reads), " READ, ", count(f.writes),
      " WRITE, ", count(f.cas), " CAS; ", FormatBytes(f.bytes_read), " read, ",
      FormatBytes(f.bytes_written), " written\n", "cache     ",
      Percent(t.cache_hits, t.cache_hits + t.cache_misses), " hits, ", FormatBytes(t.cache_bytes),
      "; tree: ", count(t.splits), " splits, ", count(t.torn_retries), " torn retries\n",
      PlacesLine(t), "locks     ", count(t.lock_attempts), " attempts, ",
      Percent(t.lock_failures, t.lock_attempts), " failed; ", count(t.handovers), " handovers, ",
      count(t.combined), " operations combined\n");
}

Json LoadJson(const LoadResult& load) {
  return {
      {"method", load.method},
      {"records", load.records},
      {"seconds", load.seconds},
      {"throughput", load.seconds == 0 ? 0.0 : static_cast<double>(load.records) / load.seconds}};
}

}  // namespace

std::string ResultHeader(const Plan& plan) {
  const std::string theta =
      plan.distribution.name == "zipfian" || plan.distribution.name == "latest"
          ? absl::StrFormat(" %g", plan.distribution.theta)
          : "";
  return absl::StrFormat(
      "workload %s, %s%s, %s records, keys %s (%d bytes), values %d bytes\n"
      "%s fabric: %d memory servers, %d compute servers x %d threads x %d coroutines%s%s\n",
      plan.workload.name, plan.distribution.name, theta,
      FormatCount(static_cast<double>(plan.records)), plan.keys.kind, plan.keys.key_bytes,
      plan.value_bytes, plan.fabric, plan.memory_servers, plan.compute_servers, plan.threads,
      plan.coroutines,
      plan.owned() ? absl::StrCat(", owned tree (", FormatBytes(plan.hot_bytes), " hot, log of ",
                                  FormatBytes(plan.log_bytes), ")")
                   : "",
      plan.rate == 0 ? "" : absl::StrCat(", open loop at ", FormatCount(plan.rate), "/s"));
}

const PhaseStats& MedianRun(const YcsbResult& result) {
  PANDO_CHECK(!result.runs.empty());
  std::vector<const PhaseStats*> runs;
  for (const PhaseStats& run : result.runs) runs.push_back(&run);
  std::sort(runs.begin(), runs.end(), [](const PhaseStats* a, const PhaseStats* b) {
    return a->throughput() < b->throughput();
  });
  return *runs[(runs.size() - 1) / 2];
}

Json ResultJson(const Plan& plan, const YcsbResult& result) {
  Json json = {{"config", ConfigJson(plan)}, {"load", LoadJson(result.load)}};
  if (result.runs.empty()) return json;
  json["run"] = StatsToResultJson(MedianRun(result));
  std::vector<double> throughputs = Throughputs(result);
  Json& repeat = json["repeat"];
  repeat = {{"count", throughputs.size()}, {"throughput", throughputs}};
  std::sort(throughputs.begin(), throughputs.end());
  repeat["min"] = throughputs.front();
  repeat["median"] = MedianRun(result).throughput();
  repeat["max"] = throughputs.back();
  return json;
}

Json HistogramJson(const Plan& plan, const YcsbResult& result) {
  Json json = {{"format", 1}, {"config", ConfigJson(plan)}, {"load", LoadJson(result.load)}};
  if (result.runs.empty()) return json;
  json["run"] = StatsToHistogramJson(MedianRun(result));
  json["run"]["stopped"] = result.stopped;
  return json;
}

std::string ResultTable(const Plan& plan, const YcsbResult& result) {
  std::string table = ResultHeader(plan);
  if (result.load.seconds > 0) {
    absl::StrAppend(&table, "load      ", FormatCount(static_cast<double>(result.load.records)),
                    absl::StrFormat(" records in %.2f s: ", result.load.seconds),
                    Rate(static_cast<double>(result.load.records) / result.load.seconds), " (",
                    result.load.method, ")\n");
  }
  if (result.runs.empty()) return table;
  const PhaseStats& run = MedianRun(result);
  absl::StrAppend(&table, "run       ", FormatCount(static_cast<double>(run.operations())),
                  absl::StrFormat(" operations in %.2f s: ", run.seconds()),
                  Rate(run.throughput()));
  if (result.runs.size() > 1) {
    std::vector<double> throughputs = Throughputs(result);
    std::sort(throughputs.begin(), throughputs.end());
    absl::StrAppend(&table, " (median of ", throughputs.size(), ": ", Rate(throughputs.front()),
                    " to ", Rate(throughputs.back()), ")");
  }
  absl::StrAppend(&table, "\n\n",
                  absl::StrFormat("%-9s %10s %7s %7s %9s %9s %9s %9s %10s %6s %6s %8s %8s\n", "",
                                  "count", "errors", "misses", "mean us", "p50 us", "p99 us",
                                  "p99.9 us", "max us", "trips", "verbs", "B read", "B written"));
  for (const OperationKind kind : kAllOperationKinds) {
    if (run.of(kind).count > 0) absl::StrAppend(&table, OperationLine(kind, run.of(kind)));
  }
  absl::StrAppend(&table, "\n", CounterLines(run), plan.owned() ? OwnedLine(run.owned) : "");
  if (result.stopped) absl::StrAppend(&table, "stopped by a signal: this is what had ended\n");
  if (run.backlog > 0) {
    absl::StrAppend(&table, "too slow: ", FormatCount(static_cast<double>(run.backlog)),
                    " operations were due and had not begun when time was up\n");
  }
  if (run.errors() > 0) {
    absl::StrAppend(&table, "errors    the first: ", run.first_error, "\n");
  }
  if (run.gave_up) absl::StrAppend(&table, "gave up after too many errors in a row\n");
  if (!run.tree_error.empty()) absl::StrAppend(&table, "the tree is lost: ", run.tree_error, "\n");
  return table;
}

}  // namespace pando::bench
