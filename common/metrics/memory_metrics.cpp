#include "common/metrics/memory_metrics.h"

#include <string_view>

namespace pando {
namespace {

constexpr auto kCounter = MetricInfo::kCounter;
constexpr auto kGauge = MetricInfo::kGauge;

constexpr MetricInfo kRegionBytes = {"pando_memory_region_bytes", kGauge, "Size of the region"};
constexpr MetricInfo kFreeBytes = {"pando_memory_free_bytes", kGauge,
                                   "Bytes of chunks that anybody may get"};
constexpr MetricInfo kUsedBytes = {"pando_memory_used_bytes", kGauge,
                                   "Bytes of chunks that trees and redo logs have"};

struct Known {
  std::string_view counter;  // its name in `pando stats`
  MetricInfo info;
};

constexpr Known kKnown[] = {
    {"calls", {"pando_memory_calls_total", kCounter, "Control calls"}},
    {"bad_messages",
     {"pando_memory_bad_messages_total", kCounter, "Messages that were no control calls"}},
    {"refused_calls",
     {"pando_memory_refused_calls_total", kCounter, "Control calls answered with an error"}},
    {"repeated_calls",
     {"pando_memory_repeated_calls_total", kCounter, "Control calls that were sent again"}},
    {"clients", {"pando_memory_clients", kGauge, "Compute servers that are joined"}},
    {"clients_dead", {"pando_memory_dead_clients", kGauge, "Entries in the table of the dead"}},
    {"joins", {"pando_memory_joins_total", kCounter, "Compute servers that joined"}},
    {"attaches",
     {"pando_memory_attaches_total", kCounter, "Compute servers that joined elsewhere and came"}},
    {"leaves", {"pando_memory_leaves_total", kCounter, "Compute servers that left in order"}},
    {"deaths", {"pando_memory_client_deaths_total", kCounter, "Compute servers that died"}},
    {"fenced", {"pando_memory_fenced_clients_total", kCounter, "Compute servers cut off"}},
    {"fences",
     {"pando_memory_fences_total", kCounter,
      "Lives of compute servers whose end others asked for"}},
    {"lock_words_cleared",
     {"pando_memory_lock_words_cleared_total", kCounter, "Locks taken from the dead"}},
    {"peers_gone", {"pando_memory_peers_gone_total", kCounter, "Processes that disconnected"}},
    {"trees", {"pando_memory_trees", kGauge, "Trees"}},
    {"trees_created", {"pando_memory_trees_created_total", kCounter, "Trees that were created"}},
    {"trees_dropped", {"pando_memory_trees_dropped_total", kCounter, "Trees that were dropped"}},
    {"trees_freed",
     {"pando_memory_trees_freed_total", kCounter, "Dropped trees whose memory came back"}},
    {"chunk_bytes", {"pando_memory_chunk_bytes", kGauge, "Size of a chunk"}},
    {"chunks", {"pando_memory_chunks", kGauge, "Chunks of the region"}},
    {"chunks_free", {"pando_memory_chunks_free", kGauge, "Chunks that no tree has"}},
    {"chunks_used", {"pando_memory_chunks_used", kGauge, "Chunks that trees and redo logs have"}},
    {"chunks_kept_back",
     {"pando_memory_chunks_kept_back", kGauge, "Free chunks that only the owners' tree gets"}},
    {"chunks_back", {"pando_memory_chunks_returned_total", kCounter, "Chunks that came back"}},
    {"chunks_again",
     {"pando_memory_chunks_reused_total", kCounter, "Chunks that were handed out again"}},
    {"chunks_exhausted",
     {"pando_memory_chunks_exhausted_total", kCounter, "Times that no chunk was left"}},
    {"zeroed_bytes",
     {"pando_memory_zeroed_bytes_total", kCounter, "Bytes cleared before their next use"}},
    {"extents", {"pando_memory_extents", kGauge, "Redo logs"}},
    {"extent_bytes", {"pando_memory_extent_bytes", kGauge, "Bytes of redo logs"}},
    {"spare_log_bytes",
     {"pando_memory_spare_log_bytes", kGauge,
      "Bytes kept for the redo logs of clients that take over"}},
    {"tombstones",
     {"pando_memory_tombstones", kGauge,
      "Erases of owned trees that are not in their leaves yet, as owners said"}},
    {"oldest_tombstone_ms",
     {"pando_memory_oldest_tombstone_ms", kGauge, "For how long the oldest has waited at most"}},
    {"nodes_untouched",
     {"pando_memory_nodes_untouched", kGauge, "Nodes of used chunks that no client has had"}},
    {"nodes_free", {"pando_memory_nodes_free", kGauge, "Nodes of used chunks that are free"}},
    {"nodes_out", {"pando_memory_nodes_out", kGauge, "Nodes that clients hold in reserve"}},
    {"nodes_settled", {"pando_memory_nodes_settled", kGauge, "Nodes that are part of a tree"}},
    {"nodes_orphan", {"pando_memory_nodes_orphan", kGauge, "Nodes that a dead client held"}},
    {"node_grants", {"pando_memory_node_grants_total", kCounter, "Calls that handed out nodes"}},
    {"nodes_granted", {"pando_memory_nodes_granted_total", kCounter, "Nodes handed out"}},
    {"nodes_granted_again",
     {"pando_memory_nodes_reused_total", kCounter, "Nodes handed out again"}},
    {"nodes_returned",
     {"pando_memory_nodes_returned_total", kCounter, "Nodes that came back unwritten"}},
    {"nodes_freed", {"pando_memory_nodes_freed_total", kCounter, "Nodes freed by merges"}},
    {"frees_ignored",
     {"pando_memory_frees_ignored_total", kCounter, "Nodes freed that were free already"}},
};

}  // namespace

MetricList MemoryMetrics(const ServerInfo& info, const CounterList& counters) {
  MetricList metrics = {
      {kRegionBytes, static_cast<double>(info.superblock.region_bytes)},
      {kFreeBytes, static_cast<double>(info.free_bytes)},
      {kUsedBytes, static_cast<double>(info.used_bytes)},
  };
  for (const auto& [name, value] : counters) {
    for (const Known& known : kKnown) {
      if (known.counter == name) metrics.push_back({known.info, static_cast<double>(value)});
    }
  }
  return metrics;
}

}  // namespace pando
