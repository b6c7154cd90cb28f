#include "bench/ycsb/operation_stats.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/host/histogram_json.h"
#include "common/base/clock.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

// Every counter, once: all functions below go through these lists.
template <typename Visit>
void VisitCounters(const Visit& visit, FabricStats& a, const FabricStats& b) {
  visit("reads", a.reads, b.reads);
  visit("writes", a.writes, b.writes);
  visit("cas", a.cas, b.cas);
  visit("faa", a.faa, b.faa);
  visit("chains", a.chains, b.chains);
  visit("round_trips", a.round_trips, b.round_trips);
  visit("bytes_read", a.bytes_read, b.bytes_read);
  visit("bytes_written", a.bytes_written, b.bytes_written);
  visit("calls", a.calls, b.calls);
}

template <typename Visit>
void VisitCounters(const Visit& visit, TreeStats& a, const TreeStats& b) {
  visit("cache_hits", a.cache_hits, b.cache_hits);
  visit("cache_misses", a.cache_misses, b.cache_misses);
  visit("cache_evictions", a.cache_evictions, b.cache_evictions);
  visit("place_hits", a.place_hits, b.place_hits);
  visit("place_misses", a.place_misses, b.place_misses);
  visit("splits", a.splits, b.splits);
  visit("root_splits", a.root_splits, b.root_splits);
  visit("merges", a.merges, b.merges);
  visit("separator_repairs", a.separator_repairs, b.separator_repairs);
  visit("torn_retries", a.torn_retries, b.torn_retries);
  visit("stale_retries", a.stale_retries, b.stale_retries);
  visit("moves_right", a.moves_right, b.moves_right);
  visit("lock_attempts", a.lock_attempts, b.lock_attempts);
  visit("lock_failures", a.lock_failures, b.lock_failures);
  visit("handovers", a.handovers, b.handovers);
  visit("combined", a.combined, b.combined);
  visit("lost_races", a.lost_races, b.lost_races);
  visit("root_shrinks", a.root_shrinks, b.root_shrinks);
  visit("repairs", a.repairs, b.repairs);
  visit("redone", a.redone, b.redone);
  visit("lock_recoveries", a.lock_recoveries, b.lock_recoveries);
}

template <typename Visit>
void VisitDifferences(const Visit& visit, OwnedStats& a, const OwnedStats& b) {
  visit("hits", a.hits, b.hits);
  visit("misses", a.misses, b.misses);
  visit("lent", a.lent, b.lent);
  visit("forwarded", a.forwarded, b.forwarded);
  visit("served", a.served, b.served);
  visit("messages", a.messages, b.messages);
  visit("claims", a.claims, b.claims);
  visit("adoptions", a.adoptions, b.adoptions);
  visit("adopted_messages", a.adopted_messages, b.adopted_messages);
  visit("splits", a.splits, b.splits);
  visit("given", a.given, b.given);
  visit("log_batches", a.log_batches, b.log_batches);
  visit("log_messages", a.log_messages, b.log_messages);
  visit("log_bytes", a.log_bytes, b.log_bytes);
  visit("base_lines", a.base_lines, b.base_lines);
  visit("flushed", a.flushed, b.flushed);
  visit("flushed_leaves", a.flushed_leaves, b.flushed_leaves);
  visit("flush_rounds", a.flush_rounds, b.flush_rounds);
  visit("refused", a.refused, b.refused);
}

// Those and the gauges: what compute servers have together is the sum as well.
template <typename Visit>
void VisitCounters(const Visit& visit, OwnedStats& a, const OwnedStats& b) {
  VisitDifferences(visit, a, b);
  visit("ranges", a.ranges, b.ranges);
  visit("hot_bytes", a.hot_bytes, b.hot_bytes);
  visit("dirty_bytes", a.dirty_bytes, b.dirty_bytes);
}

template <typename Stats>
void AddCounters(Stats* sum, const Stats& other) {
  VisitCounters([](const char*, uint64_t& a, uint64_t b) { a += b; }, *sum, other);
}

template <typename Stats>
Json CountersToJson(const Stats& stats) {
  Json json = Json::object();
  Stats unused;
  VisitCounters([&json](const char* name, uint64_t, uint64_t value) { json[name] = value; }, unused,
                stats);
  return json;
}

template <typename Stats>
void CountersFromJson(const Json& json, Stats* stats) {
  VisitCounters(
      [&json](const char* name, uint64_t& value, uint64_t) { json.at(name).get_to(value); }, *stats,
      *stats);
}

Json OperationToRaw(const OperationStats& stats) {
  return {{"count", stats.count},
          {"errors", stats.errors},
          {"not_found", stats.not_found},
          {"latency_ns", HistogramToJson(stats.latency_ns)},
          {"round_trips", HistogramToJson(stats.round_trips)},
          {"verbs", stats.verbs},
          {"bytes_read", stats.bytes_read},
          {"bytes_written", stats.bytes_written}};
}

Json OperationToResult(const OperationStats& stats) {
  const auto us = [&stats](double percent) {
    return static_cast<double>(stats.latency_ns.Percentile(percent)) / kMicrosecondNs;
  };
  const auto mean = [&stats](uint64_t sum) {
    return stats.count == 0 ? 0.0 : static_cast<double>(sum) / static_cast<double>(stats.count);
  };
  return {{"count", stats.count},
          {"errors", stats.errors},
          {"not_found", stats.not_found},
          {"latency_us",
           {{"mean", stats.latency_ns.Mean() / kMicrosecondNs},
            {"p50", us(50)},
            {"p90", us(90)},
            {"p99", us(99)},
            {"p999", us(99.9)},
            {"max", static_cast<double>(stats.latency_ns.max()) / kMicrosecondNs}}},
          {"round_trips",
           {{"mean", stats.round_trips.Mean()},
            {"p50", stats.round_trips.Percentile(50)},
            {"p99", stats.round_trips.Percentile(99)},
            {"max", stats.round_trips.max()}}},
          {"verbs", {{"mean", mean(stats.verbs)}}},
          {"bytes_read", {{"mean", mean(stats.bytes_read)}}},
          {"bytes_written", {{"mean", mean(stats.bytes_written)}}}};
}

}  // namespace

void OperationStats::Record(int64_t latency, const OperationCost& cost) {
  ++count;
  latency_ns.Add(latency);
  round_trips.Add(cost.round_trips);
  verbs += cost.verbs;
  bytes_read += cost.bytes_read;
  bytes_written += cost.bytes_written;
}

void OperationStats::Merge(const OperationStats& other) {
  count += other.count;
  errors += other.errors;
  not_found += other.not_found;
  latency_ns.Merge(other.latency_ns);
  round_trips.Merge(other.round_trips);
  verbs += other.verbs;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
}

uint64_t PhaseStats::operations() const {
  uint64_t sum = 0;
  for (const OperationStats& stats : by_operation) sum += stats.count;
  return sum;
}

uint64_t PhaseStats::errors() const {
  uint64_t sum = 0;
  for (const OperationStats& stats : by_operation) sum += stats.errors;
  return sum;
}

double PhaseStats::seconds() const {
  if (end_ns <= start_ns) return 0;
  return static_cast<double>(end_ns - start_ns) / kSecondNs;
}

double PhaseStats::throughput() const {
  return seconds() == 0 ? 0 : static_cast<double>(operations()) / seconds();
}

void PhaseStats::CountFinished(int64_t now_ns) {
  end_ns = std::max(end_ns, now_ns);
  const auto second = static_cast<size_t>(std::max<int64_t>(0, now_ns - start_ns) / kSecondNs);
  if (second >= per_second.size()) per_second.resize(second + 1);
  ++per_second[second];
}

void PhaseStats::Merge(const PhaseStats& other) {
  for (size_t i = 0; i < by_operation.size(); ++i) by_operation[i].Merge(other.by_operation[i]);
  if (per_second.size() < other.per_second.size()) per_second.resize(other.per_second.size());
  for (size_t i = 0; i < other.per_second.size(); ++i) per_second[i] += other.per_second[i];
  start_ns = std::min(start_ns, other.start_ns);
  end_ns = std::max(end_ns, other.end_ns);
  cpu_ns += other.cpu_ns;
  backlog += other.backlog;
  if (first_error.empty()) first_error = other.first_error;
  gave_up |= other.gave_up;
  if (tree_error.empty()) tree_error = other.tree_error;
  AddCounters(&fabric, other.fabric);
  AddCounters(&tree, other.tree);
  tree.cache_bytes += other.tree.cache_bytes;
  tree.place_bytes += other.tree.place_bytes;
  AddCounters(&owned, other.owned);
}

Json StatsToRawJson(const PhaseStats& stats) {
  Json operations = Json::array();
  for (const OperationStats& s : stats.by_operation) operations.push_back(OperationToRaw(s));
  return {{"by_operation", std::move(operations)},
          {"per_second", stats.per_second},
          {"start_ns", stats.start_ns},
          {"end_ns", stats.end_ns},
          {"cpu_ns", stats.cpu_ns},
          {"backlog", stats.backlog},
          {"first_error", stats.first_error},
          {"gave_up", stats.gave_up},
          {"tree_error", stats.tree_error},
          {"fabric", CountersToJson(stats.fabric)},
          {"tree", CountersToJson(stats.tree)},
          {"cache_bytes", stats.tree.cache_bytes},
          {"place_bytes", stats.tree.place_bytes},
          {"owned", CountersToJson(stats.owned)}};
}

absl::StatusOr<PhaseStats> StatsFromRawJson(const Json& json) {
  PhaseStats stats;
  try {
    const Json& operations = json.at("by_operation");
    for (size_t i = 0; i < stats.by_operation.size(); ++i) {
      OperationStats& s = stats.by_operation[i];
      const Json& from = operations.at(i);
      from.at("count").get_to(s.count);
      from.at("errors").get_to(s.errors);
      from.at("not_found").get_to(s.not_found);
      s.latency_ns = HistogramFromJson(from.at("latency_ns"));
      s.round_trips = HistogramFromJson(from.at("round_trips"));
      from.at("verbs").get_to(s.verbs);
      from.at("bytes_read").get_to(s.bytes_read);
      from.at("bytes_written").get_to(s.bytes_written);
    }
    json.at("per_second").get_to(stats.per_second);
    json.at("start_ns").get_to(stats.start_ns);
    json.at("end_ns").get_to(stats.end_ns);
    json.at("cpu_ns").get_to(stats.cpu_ns);
    json.at("backlog").get_to(stats.backlog);
    json.at("first_error").get_to(stats.first_error);
    json.at("gave_up").get_to(stats.gave_up);
    json.at("tree_error").get_to(stats.tree_error);
    CountersFromJson(json.at("fabric"), &stats.fabric);
    CountersFromJson(json.at("tree"), &stats.tree);
    json.at("cache_bytes").get_to(stats.tree.cache_bytes);
    json.at("place_bytes").get_to(stats.tree.place_bytes);
    CountersFromJson(json.at("owned"), &stats.owned);
  } catch (const Json::exception& e) {
    return absl::DataLossError(absl::StrCat("not the result of a compute server: ", e.what()));
  }
  return stats;
}

Json StatsToHistogramJson(const PhaseStats& stats) {
  Json json = StatsToRawJson(stats);
  const int64_t to_unix_ns = absl::GetCurrentTimeNanos() - RealClock().NowNs();
  json["start_unix_ns"] = stats.start_ns + to_unix_ns;
  json["end_unix_ns"] = stats.end_ns + to_unix_ns;
  json.erase("start_ns");
  json.erase("end_ns");
  json["by_operation"] = Json::object();
  for (const OperationKind kind : kAllOperationKinds) {
    json["by_operation"][std::string(OperationName(kind))] = OperationToRaw(stats.of(kind));
  }
  return json;
}

Json StatsToResultJson(const PhaseStats& stats) {
  Json by_operation = Json::object();
  for (const OperationKind kind : kAllOperationKinds) {
    by_operation[std::string(OperationName(kind))] = OperationToResult(stats.of(kind));
  }
  Json tree = CountersToJson(stats.tree);
  tree["cache_bytes"] = stats.tree.cache_bytes;
  tree["place_bytes"] = stats.tree.place_bytes;
  return {{"seconds", stats.seconds()},
          {"operations", stats.operations()},
          {"errors", stats.errors()},
          {"throughput", stats.throughput()},
          {"cpu_seconds", static_cast<double>(stats.cpu_ns) / kSecondNs},
          {"backlog", stats.backlog},
          {"per_second", stats.per_second},
          {"by_operation", std::move(by_operation)},
          {"fabric", CountersToJson(stats.fabric)},
          {"tree", std::move(tree)},
          {"owned", CountersToJson(stats.owned)}};
}

FabricStats Difference(const FabricStats& before, const FabricStats& after) {
  FabricStats difference = after;
  VisitCounters([](const char*, uint64_t& a, uint64_t b) { a -= b; }, difference, before);
  return difference;
}

TreeStats Difference(const TreeStats& before, const TreeStats& after) {
  TreeStats difference = after;
  VisitCounters([](const char*, uint64_t& a, uint64_t b) { a -= b; }, difference, before);
  return difference;
}

OwnedStats Difference(const OwnedStats& before, const OwnedStats& after) {
  OwnedStats difference = after;
  VisitDifferences([](const char*, uint64_t& a, uint64_t b) { a -= b; }, difference, before);
  return difference;
}

}  // namespace pando::bench
