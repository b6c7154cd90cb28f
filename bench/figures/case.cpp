#include "bench/figures/case.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "bench/host/histogram_json.h"

namespace pando::bench {
namespace {

using Json = nlohmann::json;

// Calls `visit(name, field)` for each plain field.
template <typename Result, typename Visit>
void VisitFields(Result& result, const Visit& visit) {
  visit("operations", result.operations);
  visit("span_ns", result.span_ns);
  visit("errors", result.errors);
  visit("first_error", result.first_error);
  visit("reads", result.fabric.reads);
  visit("writes", result.fabric.writes);
  visit("cas", result.fabric.cas);
  visit("bytes_read", result.fabric.bytes_read);
  visit("bytes_written", result.fabric.bytes_written);
  visit("cache_hits", result.tree.cache_hits);
  visit("cache_misses", result.tree.cache_misses);
  visit("cache_evictions", result.tree.cache_evictions);
  visit("splits", result.tree.splits);
  visit("torn_retries", result.tree.torn_retries);
  visit("stale_retries", result.tree.stale_retries);
  visit("lock_attempts", result.tree.lock_attempts);
  visit("lock_failures", result.tree.lock_failures);
  visit("handovers", result.tree.handovers);
  visit("combined", result.tree.combined);
  visit("chains", result.fabric.chains);
  visit("owned_hits", result.owned.hits);
  visit("owned_misses", result.owned.misses);
  visit("owned_lent", result.owned.lent);
  visit("owned_ranges", result.owned.ranges);
  visit("owned_hot_bytes", result.owned.hot_bytes);
  visit("owned_dirty_bytes", result.owned.dirty_bytes);
  visit("hot_bytes_max", result.hot_bytes_max);
  visit("log_batches", result.owned.log_batches);
  visit("log_messages", result.owned.log_messages);
  visit("log_bytes", result.owned.log_bytes);
  visit("flushed", result.owned.flushed);
  visit("flushed_leaves", result.owned.flushed_leaves);
  visit("flush_rounds", result.owned.flush_rounds);
  visit("tombstones", result.owned.tombstones);
  visit("peer_messages", result.peer_messages);
  visit("looks", result.looks);
  visit("late_looks", result.late_looks);
  visit("oldest_tombstone_ms", result.oldest_tombstone_ms);
  visit("cut_short", result.cut_short);
  visit("busy_link", result.busy.link);
  visit("busy_engines", result.busy.engines);
  visit("busy_pcie", result.busy.pcie);
  visit("busy_atomics", result.busy.atomics);
  visit("busy_lock", result.busy.lock);
  visit("busy_cpu", result.busy.cpu);
  visit("busy_waits", result.busy.waits);
  visit("busy_partition", result.busy.partition);
  visit("busy_flush", result.busy.flush);
  visit("busy_service", result.busy.service);
  visit("events", result.events);
  visit("verbs", result.verbs);
  visit("doorbells", result.doorbells);
  visit("cpu_seconds", result.cpu_seconds);
  visit("wall_seconds", result.wall_seconds);
}

template <typename Result, typename Visit>
void VisitHistograms(Result& result, const Visit& visit) {
  visit("latency_ns", result.latency_ns);
  visit("write_trips", result.write_trips);
  visit("write_bytes", result.write_bytes);
  visit("write_retries", result.write_retries);
  visit("read_retries", result.read_retries);
}

}  // namespace

double CaseResult::HitPercent() const {
  const uint64_t all = tree.cache_hits + tree.cache_misses;
  return all == 0 ? 0 : 100.0 * static_cast<double>(tree.cache_hits) / static_cast<double>(all);
}

double CaseResult::OwnedHitPercent() const {
  const uint64_t all = owned.hits + owned.misses;
  return all == 0 ? 0 : 100.0 * static_cast<double>(owned.hits) / static_cast<double>(all);
}

Json CaseResultToJson(const CaseResult& result) {
  Json json;
  VisitFields(result, [&json](const char* name, const auto& field) { json[name] = field; });
  VisitHistograms(result, [&json](const char* name, const Histogram& histogram) {
    json[name] = HistogramToJson(histogram);
  });
  return json;
}

absl::StatusOr<CaseResult> CaseResultFromJson(const Json& json) {
  CaseResult result;
  try {
    VisitFields(result, [&json](const char* name, auto& field) { json.at(name).get_to(field); });
    VisitHistograms(result, [&json](const char* name, Histogram& histogram) {
      histogram = HistogramFromJson(json.at(name));
    });
  } catch (const Json::exception& error) {
    return absl::DataLossError(absl::StrCat("no result of a case: ", error.what()));
  }
  return result;
}

}  // namespace pando::bench
