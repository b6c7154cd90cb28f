#include "compute/core/counters.h"

namespace pando {

void SessionCounters::AddTo(ClientStats* stats) const {
  FabricStats& f = stats->fabric;
  f.reads += reads.value();
  f.writes += writes.value();
  f.cas += cas.value();
  f.faa += faa.value();
  f.chains += chains.value();
  f.round_trips += round_trips.value();
  f.bytes_read += bytes_read.value();
  f.bytes_written += bytes_written.value();
  f.calls += calls.value();
  TreeStats& t = stats->tree;
  t.cache_hits += cache_hits.value();
  t.cache_misses += cache_misses.value();
  t.place_hits += place_hits.value();
  t.place_misses += place_misses.value();
  t.splits += splits.value();
  t.root_splits += root_splits.value();
  t.separator_repairs += separator_repairs.value();
  t.torn_retries += torn_retries.value();
  t.stale_retries += stale_retries.value();
  t.moves_right += moves_right.value();
  t.lock_attempts += lock_attempts.value();
  t.lock_failures += lock_failures.value();
  t.handovers += handovers.value();
  t.combined += combined.value();
  t.lost_races += lost_races.value();
  t.merges += merges.value();
  t.root_shrinks += root_shrinks.value();
  t.repairs += repairs.value();
  t.redone += redone.value();
  t.lock_recoveries += lock_recoveries.value();
  stats->owned.hits += owned_hits.value();
  stats->owned.misses += owned_misses.value();
  stats->owned.lent += owned_lent.value();
}

}  // namespace pando
