// What a phase did: counted by each thread for itself, merged over threads and compute servers,
// shown at the end. Histograms are merged; percentiles are never averaged. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/workload/workload.h"
#include "common/base/histogram.h"
#include "pando/options.h"
#include "pando/stats.h"

namespace pando::bench {

struct OperationStats {
  uint64_t count = 0;      // errors included
  uint64_t errors = 0;     // anything but success, NotFound and AlreadyExists
  uint64_t not_found = 0;  // NotFound, and AlreadyExists of an insert
  Histogram latency_ns;
  Histogram round_trips;
  uint64_t verbs = 0;
  uint64_t bytes_read = 0;
  uint64_t bytes_written = 0;

  void Record(int64_t latency, const OperationCost& cost);
  void Merge(const OperationStats& other);
};

struct PhaseStats {
  std::array<OperationStats, kOperationKinds> by_operation;
  std::vector<uint64_t>
      per_second;                // operations finished, by seconds since the measured part began
  int64_t start_ns = INT64_MAX;  // the measured part: CLOCK_MONOTONIC, the same for all processes
  int64_t end_ns = 0;
  int64_t cpu_ns =
      0;  // of all threads while they measured: what others on the machine do not disturb
  uint64_t backlog = 0;  // open loop: operations that were due and not even begun when time was up
  std::string first_error;
  bool gave_up = false;    // too many errors in a row
  std::string tree_error;  // what the tree has lost at the end, with a memory server
  FabricStats fabric;
  TreeStats tree;
  OwnedStats owned;

  OperationStats& of(OperationKind kind) { return by_operation[static_cast<size_t>(kind)]; }
  const OperationStats& of(OperationKind kind) const {
    return by_operation[static_cast<size_t>(kind)];
  }
  uint64_t operations() const;
  uint64_t errors() const;
  double seconds() const;
  double throughput() const;

  void CountFinished(int64_t now_ns);
  void Merge(const PhaseStats& other);
};

// For the way from a compute server to the coordinator: everything, histograms with their buckets.
nlohmann::json StatsToRawJson(const PhaseStats& stats);
absl::StatusOr<PhaseStats> StatsFromRawJson(const nlohmann::json& json);

// For programs that merge the results of several hosts: by operation's name, with histograms, times
// by the clock of the world.
nlohmann::json StatsToHistogramJson(const PhaseStats& stats);

// For the reader: `run` of the result.
nlohmann::json StatsToResultJson(const PhaseStats& stats);

// Counters as differences between two readings; gauges (cache_bytes, place_bytes; of owned trees:
// ranges, hot_bytes, dirty_bytes) as they are after.
FabricStats Difference(const FabricStats& before, const FabricStats& after);
TreeStats Difference(const TreeStats& before, const TreeStats& after);
OwnedStats Difference(const OwnedStats& before, const OwnedStats& after);

}  // namespace pando::bench
