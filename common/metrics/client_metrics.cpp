#include "common/metrics/client_metrics.h"

namespace pando {
namespace {

Metric Counter(const char* name, uint64_t value, const char* help) {
  return {{name, MetricInfo::kCounter, help}, static_cast<double>(value)};
}

}  // namespace

MetricList ClientMetrics(const ClientStats& stats) {
  const FabricStats& f = stats.fabric;
  const TreeStats& t = stats.tree;
  const OwnedStats& o = stats.owned;
  return {
      Counter("pando_client_reads_total", f.reads, "READ verbs"),
      Counter("pando_client_writes_total", f.writes, "WRITE verbs"),
      Counter("pando_client_cas_total", f.cas, "Compare-and-swap verbs"),
      Counter("pando_client_faa_total", f.faa, "Fetch-and-add verbs"),
      Counter("pando_client_chains_total", f.chains, "Chains of verbs posted together"),
      Counter("pando_client_round_trips_total", f.round_trips, "Round trips"),
      Counter("pando_client_read_bytes_total", f.bytes_read, "Bytes read by READs"),
      Counter("pando_client_written_bytes_total", f.bytes_written, "Bytes written by WRITEs"),
      Counter("pando_client_calls_total", f.calls, "Control calls to memory servers"),
      Counter("pando_client_cache_hits_total", t.cache_hits, "Descents the index cache answered"),
      Counter("pando_client_cache_misses_total", t.cache_misses, "Descents it did not answer"),
      Counter("pando_client_cache_evictions_total", t.cache_evictions, "Nodes evicted from it"),
      {{"pando_client_cache_bytes", MetricInfo::kGauge, "Bytes of level-1 nodes in it"},
       static_cast<double>(t.cache_bytes)},
      Counter("pando_client_place_hits_total", t.place_hits,
              "Values in cells that were READ together with their slots"),
      Counter("pando_client_place_misses_total", t.place_misses, "Those that were READ afterwards"),
      {{"pando_client_place_bytes", MetricInfo::kGauge, "Bytes of remembered places of values"},
       static_cast<double>(t.place_bytes)},
      Counter("pando_client_splits_total", t.splits, "Nodes split"),
      Counter("pando_client_root_splits_total", t.root_splits, "Times that a root was split"),
      Counter("pando_client_merges_total", t.merges, "Leaves merged"),
      Counter("pando_client_root_shrinks_total", t.root_shrinks, "Roots that lost a level"),
      Counter("pando_client_nodes_reused_total", t.nodes_reused,
              "Nodes taken whose memory had been used before"),
      Counter("pando_client_separator_repairs_total", t.separator_repairs,
              "Separators inserted for a split of another client"),
      Counter("pando_client_torn_retries_total", t.torn_retries, "READs repeated: torn"),
      Counter("pando_client_stale_retries_total", t.stale_retries, "Descents repeated: stale"),
      Counter("pando_client_moves_right_total", t.moves_right, "Steps to a right sibling"),
      Counter("pando_client_lock_attempts_total", t.lock_attempts, "Attempts at global locks"),
      Counter("pando_client_lock_failures_total", t.lock_failures, "Attempts that failed"),
      Counter("pando_client_handovers_total", t.handovers, "Locks handed to a local waiter"),
      Counter("pando_client_combined_total", t.combined, "Operations applied by a lock's holder"),
      Counter("pando_client_repairs_total", t.repairs, "Nodes repaired after a death"),
      Counter("pando_client_redone_total", t.redone, "Merges finished or undone after a death"),
      Counter("pando_client_lock_recoveries_total", t.lock_recoveries,
              "Locks kept under a queue pair that broke, then freed"),
      Counter("pando_client_lost_races_total", t.lost_races,
              "Root growth or separators that another client did first"),
      {{"pando_client_tombstones", MetricInfo::kGauge,
        "Erases that are not in their leaves yet (owned trees)"},
       static_cast<double>(o.tombstones)},
      {{"pando_client_oldest_tombstone_seconds", MetricInfo::kGauge,
        "For how long the oldest of them has waited"},
       static_cast<double>(o.oldest_tombstone_ms) / 1e3},
  };
}

}  // namespace pando
