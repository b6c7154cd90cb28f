// What pando-ycsb is to do: the flags, checked, in a form that travels to the compute servers.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/workload/distribution.h"
#include "bench/workload/keys.h"
#include "bench/workload/workload.h"
#include "pando/options.h"

namespace pando::bench {

inline constexpr uint32_t kValueBytesMax = 64 << 10;  // of any tree

struct Plan {
  // Cluster.
  std::string fabric = "shm";
  RdmaOptions rdma;
  std::string secret_file;    // of the cluster; "": it has none
  std::string registry;       // given by the user, or in `folder`
  int memory_servers = 1;     // started here, or at least this many to be found
  uint64_t memory_bytes = 0;  // a server; 0: from the number of records
  int lock_words = 32768;     // a server
  int compute_servers = 1;
  // A run that several pando-ycsb share: compute servers of all of them (0: only these), and the
  // number of the first one here. Threads, keys and values are those of the whole.
  int compute_servers_all = 0;
  int compute_server_first = 0;
  int threads = 1;     // a compute server
  int coroutines = 8;  // a thread
  bool in_process = false;
  bool pin = false;

  // Data.
  std::string tree = "ycsb";
  std::string mode = "shared";  // or owned
  bool narrow_reads = TreeOptions().narrow_reads;
  uint64_t records = 1'000'000;
  KeyOptions keys;
  uint32_t value_bytes = 8;   // up to kValueBytesMax
  std::string load = "bulk";  // bulk, put, none
  bool drop = false;          // an existing tree of that name

  // Work.
  Workload workload;
  DistributionOptions distribution;
  uint64_t operations = 1'000'000;  // all threads together; 0: as long as duration_s
  double duration_s = 0;            // 0: as many as operations
  double warmup_s = 0;
  double rate = 0;  // operations/s of all threads together; 0: closed loop
  int repeat = 1;
  uint64_t seed = 1;
  int errors_max = 100;  // in a row, of one thread; then it gives up

  // Client.
  Techniques techniques;
  uint64_t index_cache_bytes = 64 << 20;
  uint64_t value_places_bytes = 32 << 20;
  int handover_max = 32;
  int combine_max = 64;
  int64_t timeout_ms = 10'000;
  uint64_t hot_bytes = ClientOptions().hot_bytes;  // of an owner
  uint64_t log_bytes = ClientOptions().log_bytes;
  int service_threads = ClientOptions().service_threads;
  int flush_threads = ClientOptions().flush_threads;
  int ranges_min = ClientOptions().ranges_min;
  int dirty_percent = ClientOptions().dirty_percent;
  int64_t lend_after_ms = ClientOptions().lend_after_ms;
  std::string route = "any";  // owned trees: of operations; or owner

  // Output.
  std::string metrics_address;  // of the first compute server here; the others are the next ports
  bool history = false;
  std::string folder;  // of this run, shared by coordinator and compute servers

  bool is_share() const { return compute_servers_all != 0; }
  int total_compute_servers() const { return is_share() ? compute_servers_all : compute_servers; }
  int total_threads() const { return total_compute_servers() * threads; }
  int total_coroutines() const { return total_threads() * coroutines; }
  // Records that are there when the run starts.
  uint64_t initial_records() const { return workload.preload ? records : 0; }
  // Nothing is in the tree but what this run loads.
  bool fresh_tree() const { return drop || (load == "bulk" && initial_records() > 0); }
  bool owned() const { return mode == "owned"; }
  bool routed() const { return route == "owner"; }
  TreeOptions::Mode tree_mode() const {
    return owned() ? TreeOptions::Mode::kOwned : TreeOptions::Mode::kShared;
  }
  // Bytes of a memory server's region.
  uint64_t region_bytes() const;
  // Clients that write, and one more for the load phase.
  uint64_t writers() const { return static_cast<uint64_t>(total_coroutines()) + 1; }
};

// InvalidArgument says which flag and why. Fills in what follows from other fields (key_bytes,
// distribution).
absl::Status CheckPlan(Plan* plan);

// InvalidArgument: values of that length are too few for a history of this plan, where the first
// `skipped` are not used.
absl::Status CheckValues(const Plan& plan, uint64_t skipped);

nlohmann::json PlanToJson(const Plan& plan);
absl::StatusOr<Plan> PlanFromJson(const nlohmann::json& json);

// As flags of a program that is started; what is not given is left out.
std::vector<std::string> RdmaFlags(const RdmaOptions& rdma);

// `config` of the result: what was asked for in the words of the flags, and what it ran on.
nlohmann::json ConfigJson(const Plan& plan);

// The techniques by the names of their flags.
struct TechniqueFlag {
  const char* name;
  bool Techniques::*field;
};
inline constexpr TechniqueFlag kTechniqueFlags[] = {
    {"command_combining", &Techniques::command_combining},
    {"on_chip_locks", &Techniques::on_chip_locks},
    {"local_locks", &Techniques::local_locks},
    {"wait_queue", &Techniques::wait_queue},
    {"handover", &Techniques::handover},
    {"operation_combining", &Techniques::operation_combining},
    {"lock_and_read", &Techniques::lock_and_read},
    {"handover_image", &Techniques::handover_image},
    {"lock_back_off", &Techniques::lock_back_off},
    {"two_level_versions", &Techniques::two_level_versions},
    {"narrow_anywhere", &Techniques::narrow_anywhere},
    {"narrow_writes", &Techniques::narrow_writes},
};

}  // namespace pando::bench
