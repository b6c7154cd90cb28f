#include "common/metrics/client_metrics.h"

namespace pando {
namespace {

Metric Counter(const char* name, uint64_t value, const char* help) {
  return {{name, MetricInfo::kCounter, help}, static_cast<double>(value)};
}

Metric Gauge(const char* name, uint64_t value, const char* help) {
  return {{name, MetricInfo::kGauge, help}, static_cast<double>(value)};
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
      Gauge("pando_client_cache_bytes", t.cache_bytes, "Bytes of level-1 nodes in it"),
      Counter("pando_client_place_hits_total", t.place_hits,
              "Values in cells that were READ together with their slots"),
      Counter("pando_client_place_misses_total", t.place_misses, "Those that were READ afterwards"),
      Gauge("pando_client_place_bytes", t.place_bytes, "Bytes of remembered places of values"),
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
      Counter("pando_client_owned_hits_total", o.hits, "Owned records found in memory"),
      Counter("pando_client_owned_misses_total", o.misses, "Owned records that were READ"),
      Counter("pando_client_owned_lent_total", o.lent,
              "Reads of other owners' keys from leaves on loan"),
      Counter("pando_client_forwarded_total", o.forwarded,
              "Requests sent to owners of keys on other compute servers"),
      Counter("pando_client_served_total", o.served, "Requests of others answered as an owner"),
      Counter("pando_client_messages_total", o.messages,
              "Messages to and from other compute servers"),
      Gauge("pando_client_ranges", o.ranges, "Ranges of keys that it owns"),
      Gauge("pando_client_hot_bytes", o.hot_bytes, "Bytes of owned records in memory"),
      Gauge("pando_client_dirty_bytes", o.dirty_bytes,
            "Those of records that are not in their leaves yet"),
      Counter("pando_client_claims_total", o.claims, "Ranges claimed"),
      Counter("pando_client_adoptions_total", o.adoptions,
              "Ranges taken over from owners that had ended"),
      Counter("pando_client_adopted_messages_total", o.adopted_messages,
              "Acknowledged writes of theirs, brought to leaves"),
      Counter("pando_client_range_splits_total", o.splits, "Ranges divided"),
      Counter("pando_client_given_total", o.given, "Ranges given to other owners"),
      Counter("pando_client_log_batches_total", o.log_batches, "Batches written to its redo log"),
      Counter("pando_client_log_messages_total", o.log_messages, "Writes in them"),
      Counter("pando_client_log_bytes_total", o.log_bytes, "Bytes of them, with padding"),
      Counter("pando_client_log_base_lines_total", o.base_lines, "Times that it was truncated"),
      Gauge("pando_client_log_used_bytes", o.log_used_bytes, "Bytes in use of its redo log"),
      Gauge("pando_client_log_capacity_bytes", o.log_capacity_bytes, "Bytes that it has"),
      Counter("pando_client_flushed_total", o.flushed, "Writes brought from memory to leaves"),
      Counter("pando_client_flushed_leaves_total", o.flushed_leaves, "Leaves written for them"),
      Counter("pando_client_flush_rounds_total", o.flush_rounds, "Rounds of flushes"),
      Counter("pando_client_flush_refused_total", o.refused,
              "Writes that memory servers had no room for"),
      Gauge("pando_client_tombstones", o.tombstones,
            "Erases that are not in their leaves yet (owned trees)"),
      {{"pando_client_oldest_tombstone_seconds", MetricInfo::kGauge,
        "For how long the oldest of them has waited"},
       static_cast<double>(o.oldest_tombstone_ms) / 1e3},
  };
}

}  // namespace pando
