// What pando-chaos is to do: the flags, checked, in a form that travels to the compute servers.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "pando/options.h"

namespace pando::chaos {

struct Plan {
  std::string fabric = "shm";
  RdmaOptions rdma;
  std::string mode = "shared";  // of the tree; or owned
  uint64_t seed = 1;
  double duration_s = 30;
  int kills = 5;
  int stops = 2;
  int memory_stops = 0;
  int leaves = 0;     // compute servers that leave under load, and come back; owned trees
  double stop_s = 0;  // length of each stop; 0: seeded, up to 3 s
  int memory_servers = 2;
  uint64_t memory_bytes = 0;  // a server; 0: from the number of records
  int compute_servers = 3;
  int threads = 2;     // a compute server, each with a session
  int coroutines = 4;  // a thread
  uint64_t records = 10'000;
  uint32_t value_bytes = 8;         // of all writes but upserts, which add numbers of 8
  uint32_t inline_value_bytes = 0;  // of the tree: longer ones lie in cells; 0: the default
  bool narrow_reads = false;        // of the tree, and in use whatever the fabric gains
  bool narrow_writes = false;       // so do writes
  double rate = 3'000;              // operations/s of all compute servers together
  int64_t timeout_ms = 3'000;       // of an operation
  int64_t gap_max_ms = 1'000;       // how long others may be held up by a kill
  int64_t after_stop_max_ms = 500;  // how long an operation may take that was called after a stop
  uint64_t upserts = 0;             // instead of the load (upserts.h); 0: none
  std::string folder;               // of this run: registry, logs

  int events() const { return kills + stops + memory_stops; }
  bool owned() const { return mode == "owned"; }
  uint64_t region_bytes() const;
  // Each start of a compute server is a life of its own; every life has these many writers, whose
  // values differ. One more loads.
  int lives_max() const { return compute_servers + kills + leaves; }
  uint64_t writers_a_life() const { return static_cast<uint64_t>(threads) * coroutines; }
  uint64_t writers() const { return lives_max() * writers_a_life() + 1; }
  std::string registry() const { return folder + "/registry"; }
  std::string log_file(int life, int thread) const;
  ClientOptions client_options() const;
};

// Of the share of the run that a kill or stop has for itself.
inline constexpr double kStopShareMax = 0.6;
inline constexpr char kTreeName[] = "chaos";
inline constexpr uint32_t kKeyBytes = 8;
inline constexpr uint32_t kNumberBytes = 8;  // what upserts add
// For so long a compute server tries to leave at a time; then again.
inline constexpr int64_t kLeaveMs = 2'000;
// Of an owner: little, so that records come and go, and its log is reused every few seconds.
inline constexpr uint64_t kHotBytes = 256 << 10, kLogBytes = 256 << 10;

// InvalidArgument says which flag and why.
absl::Status CheckPlan(const Plan& plan);

nlohmann::json PlanToJson(const Plan& plan);
absl::StatusOr<Plan> PlanFromJson(const nlohmann::json& json);

}  // namespace pando::chaos
