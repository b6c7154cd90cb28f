// One measurement of a figure: what is run, and what came out of it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "bench/workload/distribution.h"
#include "common/base/clock.h"
#include "common/base/histogram.h"
#include "pando/options.h"
#include "pando/stats.h"

namespace pando::bench {

// Shares of the operations; the rest are gets. Writes are puts of keys of which two thirds are
// there.
struct Mix {
  double writes = 0;
  double scans = 0;
  double erases = 0;
  uint32_t scan_rows = 100;
  // Of the keys: all; those that were loaded; or new ones, each once, whatever the distribution is.
  enum class Keys : uint8_t { kAny, kLoaded, kNew };
  Keys keys = Keys::kAny;
};

// How long virtual time goes on: until all of the minima are reached, or the maximum.
struct Span {
  uint64_t warmup_operations = 20'000;
  int64_t warmup_ns = 1 * kMillisecondNs;
  uint64_t operations = 100'000;
  int64_t measured_ns = 4 * kMillisecondNs;
  uint64_t events_max = 60'000'000;  // of the simulator, warm-up included
};

// Techniques with the bounds that belong to them.
struct System {
  Techniques techniques;
  int handover_max = 32;
};

// Of an owned tree (SnapshotOptions::owned): its compute servers are its owners, with as many keys
// each, and full memory.
struct Owners {
  // Operations begin at the owner of their key; else anywhere.
  bool routed = true;
  // Memory for records of all compute servers, as a share of what the leaves take.
  double hot_share = 0.25;
  size_t hot_bytes = 0;                               // of each, instead, if not 0
  int service_threads = 1, flush_threads = 1;         // of each
  int dirty_percent = ClientOptions().dirty_percent;  // of the memory
  // Whoever only reads has done so for long: what is clean is lent (rule O15), or nothing is.
  bool lends = true;
};

// Clients that work in closed loop on a loaded tree. Each of the threads has a session.
struct TreeCase {
  System system;
  Mix mix;
  DistributionOptions distribution;
  int compute_servers = 8;
  int threads = 22;
  int coroutines = 1;
  bool apart = false;  // compute servers have hosts of their own
  // Bound of the index cache, as a share of what all internal nodes need.
  double cache_share = 1.5;
  Span span;
  uint64_t seed = 1;
  double operation_cpu_ns = 0;   // of the profile
  std::optional<Owners> owners;  // of an owned tree
  // Not in closed loop, but so many a second of all clients together; 0: in closed loop.
  double operations_per_s = 0;
  // How old the oldest tombstone is, is looked at so often and held against this; 0: it is not.
  int64_t tombstone_ns = 0;

  int clients() const { return compute_servers * threads * coroutines; }
};

// The lock benchmark (bench/locks): one memory server, no tree.
struct LockCase {
  System system;
  DistributionOptions distribution = {.name = "zipfian", .theta = 0.99};
  int compute_servers = 8;
  int threads = 22;
  int coroutines = 1;
  uint64_t locks = 10'240;
  uint64_t operations = 200'000;
  uint64_t seed = 1;
};

// What was counted in the measured span. Histograms of what an operation cost are exact where a
// session runs one operation at a time, else they are what its coroutines did meanwhile.
struct CaseResult {
  uint64_t operations = 0;
  int64_t span_ns = 0;  // virtual
  uint64_t errors = 0;
  std::string first_error;
  Histogram latency_ns;     // of all operations
  Histogram write_trips;    // round trips of a write
  Histogram write_bytes;    // written back by a write, without the release of the lock
  Histogram write_retries;  // failed attempts at a global lock of a write
  Histogram read_retries;   // READs repeated by a get
  FabricStats fabric;
  TreeStats tree;
  OwnedStats owned;                    // ranges, memory, dirty bytes and tombstones: at the end
  uint64_t hot_bytes_max = 0;          // memory of all owners for records
  uint64_t peer_messages = 0;          // between compute servers
  uint64_t looks = 0, late_looks = 0;  // at tombstones; of those, that found one too old
  uint64_t oldest_tombstone_ms = 0;    // that was seen
  bool cut_short = false;              // at Span::events_max
  // Shares of the span in which parts were busy, with a NIC's timing: of the memory server's host
  // whose part was busiest, links each way, the NIC's engines, PCIe, its engines and its busiest
  // internal lock for atomics; of the threads of all clients, and of that what these wait until
  // others let a partition go; of an owner's partition, which one thread at a time holds, of its
  // threads that flush, and of those that execute what peers ask: the busiest of each.
  struct Busy {
    double link = 0, engines = 0, pcie = 0, atomics = 0, lock = 0;
    double cpu = 0, waits = 0, partition = 0, flush = 0, service = 0;
  };
  Busy busy;
  // For messages, in no file: of the simulation, without what came before and after it.
  uint64_t events = 0, verbs = 0;
  uint64_t doorbells = 0;  // with a NIC's timing
  double cpu_seconds = 0;
  double wall_seconds = 0;  // of everything

  double mops() const {
    return span_ns == 0 ? 0 : static_cast<double>(operations) * 1e3 / static_cast<double>(span_ns);
  }
  double PercentileUs(double percent) const {
    return static_cast<double>(latency_ns.Percentile(percent)) / kMicrosecondNs;
  }
  double MeanUs() const { return latency_ns.Mean() / kMicrosecondNs; }
  double HitPercent() const;
  // Of the owners' records.
  double OwnedHitPercent() const;
  // Of everything that the compute servers did, in the background too, an operation.
  double Each(uint64_t count) const {
    return operations == 0 ? 0 : static_cast<double>(count) / static_cast<double>(operations);
  }
};

nlohmann::json CaseResultToJson(const CaseResult& result);
// DataLoss: not what CaseResultToJson() makes.
absl::StatusOr<CaseResult> CaseResultFromJson(const nlohmann::json& json);

}  // namespace pando::bench
