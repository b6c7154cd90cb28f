#include "bench/ycsb/plan.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/host/host_info.h"
#include "bench/host/json_file.h"
#include "bench/workload/values.h"
#include "common/base/status.h"
#include "common/base/units.h"
#include "common/metrics/endpoint.h"

namespace pando::bench {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(KeyOptions, kind, zero_padding, key_bytes, words_file)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DistributionOptions, name, theta, hotspot_items,
                                   hotspot_operations, exponential_operations, exponential_items)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Workload, name, description, shares, distribution,
                                   scan_length_min, scan_length_max, scan_lengths, preload, upsert)

}  // namespace pando::bench

namespace pando {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RdmaOptions, device, port, gid_index, mtu_bytes, traffic_class,
                                   service_level, pkey_index)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Techniques, command_combining, on_chip_locks, local_locks,
                                   wait_queue, handover, operation_combining, lock_and_read,
                                   handover_image, lock_back_off, two_level_versions, narrow_reads,
                                   narrow_anywhere, narrow_writes)

}  // namespace pando

namespace pando::bench {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Plan, fabric, rdma, secret_file, registry, memory_servers,
                                   memory_bytes, lock_words, compute_servers, compute_servers_all,
                                   compute_server_first, threads, coroutines, in_process, pin, tree,
                                   mode, narrow_reads, records, keys, value_bytes, load, drop,
                                   workload, distribution, operations, duration_s, warmup_s, rate,
                                   repeat, seed, errors_max, techniques, index_cache_bytes,
                                   value_places_bytes, handover_max, combine_max, timeout_ms,
                                   hot_bytes, log_bytes, service_threads, flush_threads, ranges_min,
                                   dirty_percent, lend_after_ms, route, metrics_address, history,
                                   folder)

namespace {

// "RDMA: rxe0, rxe1"; names that begin with rxe are SoftRoCE's.
std::string RdmaDevices() {
  std::string devices = "RDMA";
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    const std::string name = entry.path().filename();
    absl::StrAppend(&devices, devices == "RDMA" ? ": " : ", ", name,
                    name.starts_with("rxe") ? " (SoftRoCE)" : "");
  }
  return devices;
}

absl::Status Bad(const std::string& why) { return absl::InvalidArgumentError(why); }

template <typename Number>
absl::Status CheckRange(const char* flag, Number value, Number low, Number high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return Bad(absl::StrCat("--", flag, " is ", low, " to ", high, ", not ", value));
}

// They travel to the compute servers as JSON, and into the results.
absl::Status CheckTexts(const Plan& plan) {
  const std::pair<const char*, const std::string&> texts[] = {
      {"--fabric", plan.fabric},
      {"--device", plan.rdma.device},
      {"--secret_file", plan.secret_file},
      {"--registry", plan.registry},
      {"--metrics_address", plan.metrics_address},
      {"--tree", plan.tree},
      {"--words_file", plan.keys.words_file},
      {"the name of the --workload", plan.workload.name}};
  for (const auto& [what, text] : texts) {
    if (!IsUtf8(text)) return Bad(absl::StrCat(what, " is not UTF-8: give it another name"));
  }
  return absl::OkStatus();
}

absl::Status CheckNumbers(const Plan& plan) {
  constexpr double kForEver = 1e9;
  PANDO_RETURN_IF_ERROR(CheckRange("memory_servers", plan.memory_servers, 1, 1024));
  PANDO_RETURN_IF_ERROR(CheckRange("compute_servers", plan.compute_servers, 1, 1024));
  PANDO_RETURN_IF_ERROR(CheckRange("all_compute_servers", plan.compute_servers_all, 0, 1 << 16));
  PANDO_RETURN_IF_ERROR(
      CheckRange("first_compute_server", plan.compute_server_first, 0,
                 plan.is_share() ? plan.compute_servers_all - plan.compute_servers : 0));
  PANDO_RETURN_IF_ERROR(CheckRange("threads", plan.threads, 1, 1024));
  PANDO_RETURN_IF_ERROR(CheckRange("coroutines", plan.coroutines, 1, 1024));
  PANDO_RETURN_IF_ERROR(CheckRange<uint64_t>("records", plan.records, 1, uint64_t{1} << 40));
  PANDO_RETURN_IF_ERROR(CheckRange<uint64_t>("operations", plan.operations, 0, uint64_t{1} << 48));
  PANDO_RETURN_IF_ERROR(CheckRange<uint64_t>("value_bytes", plan.value_bytes, 0, kValueBytesMax));
  PANDO_RETURN_IF_ERROR(CheckRange("duration", plan.duration_s, 0.0, kForEver));
  PANDO_RETURN_IF_ERROR(CheckRange("warmup", plan.warmup_s, 0.0, kForEver));
  PANDO_RETURN_IF_ERROR(CheckRange("rate", plan.rate, 0.0, 1e12));
  PANDO_RETURN_IF_ERROR(CheckRange("repeat", plan.repeat, 1, 1000));
  PANDO_RETURN_IF_ERROR(CheckRange("errors_max", plan.errors_max, 1, 1 << 30));
  PANDO_RETURN_IF_ERROR(CheckRange<int64_t>("timeout_ms", plan.timeout_ms, 1, 3'600'000));
  PANDO_RETURN_IF_ERROR(CheckRange("handover_max", plan.handover_max, 1, 1 << 20));
  PANDO_RETURN_IF_ERROR(CheckRange("combine_max", plan.combine_max, 1, 1 << 20));
  if (plan.operations == 0 && plan.duration_s == 0) {
    return Bad("when to stop? Give --operations or --duration");
  }
  return absl::OkStatus();
}

absl::Status CheckHistory(const Plan& plan) {
  if (!plan.history) return absl::OkStatus();
  if (plan.is_share()) return Bad("--history knows one host's clock: no --all_compute_servers");
  return CheckValues(plan, 0);
}

}  // namespace

// A history is checked by its values: no two may be the same.
absl::Status CheckValues(const Plan& plan, uint64_t skipped) {
  const uint64_t capacity = Values::Capacity(plan.value_bytes, plan.writers(), skipped);
  // The operations of a thread may all be one coroutine's. Those of a warm-up nobody limits.
  const uint64_t most = plan.operations == 0 || plan.warmup_s > 0
                            ? std::numeric_limits<uint32_t>::max()
                            : (plan.operations / plan.total_threads() + 1) * plan.repeat;
  if (std::max(plan.initial_records(), most) < capacity) return absl::OkStatus();
  return Bad(absl::StrCat("--history needs values that all differ; ", plan.value_bytes,
                          " bytes are too few", skipped == 0 ? "" : " beside those of the tree",
                          ": use a larger --value_bytes",
                          skipped == 0 ? "" : ", --drop or another --tree"));
}

uint64_t Plan::region_bytes() const {
  if (memory_bytes != 0) return memory_bytes;
  const uint64_t inserts = static_cast<uint64_t>(
      workload.share(OperationKind::kInsert) *
      static_cast<double>(std::max<uint64_t>(operations, 1'000'000) * repeat));
  const uint64_t slot_bytes = std::max<uint64_t>(keys.key_bytes, 1) + value_bytes + 3;
  // Leaves may be half full, a line carries 56 of its 64 bytes, and inner nodes come on top: three
  // times is plenty. The region is sparse, so that too much costs nothing.
  const uint64_t bytes =
      (initial_records() + inserts) * slot_bytes * 4 / memory_servers + 256 * kMiB;
  // The server with most room gets the next log, and keeps room for another one.
  const uint64_t logs = owned() ? log_bytes * ((compute_servers - 1) / memory_servers + 2) : 0;
  return (bytes + logs) / kMiB * kMiB;
}

absl::Status CheckPlan(Plan* plan) {
  PANDO_RETURN_IF_ERROR(CheckNumbers(*plan));
  PANDO_RETURN_IF_ERROR(CheckTexts(*plan));
  if (plan->load != "bulk" && plan->load != "put" && plan->load != "none") {
    return Bad(absl::StrCat("--load is bulk, put or none, not '", plan->load, "'"));
  }
  if (plan->mode != "shared" && plan->mode != "owned") {
    return Bad(absl::StrCat("--mode is shared or owned, not '", plan->mode, "'"));
  }
  constexpr uint64_t kOwnerBytesMin = 64 * kKiB;
  PANDO_RETURN_IF_ERROR(
      CheckRange("hot_bytes", plan->hot_bytes, kOwnerBytesMin, uint64_t{1} << 40));
  PANDO_RETURN_IF_ERROR(
      CheckRange("log_bytes", plan->log_bytes, kOwnerBytesMin, uint64_t{1} << 40));
  PANDO_RETURN_IF_ERROR(CheckRange("service_threads", plan->service_threads, 1, 64));
  PANDO_RETURN_IF_ERROR(CheckRange("flush_threads", plan->flush_threads, 1, 16));
  PANDO_RETURN_IF_ERROR(CheckRange("ranges_min", plan->ranges_min, 1, 64));
  PANDO_RETURN_IF_ERROR(CheckRange("dirty_percent", plan->dirty_percent, 1, 90));
  PANDO_RETURN_IF_ERROR(CheckRange<int64_t>("lend_after_ms", plan->lend_after_ms, -1, 86'400'000));
  if (plan->route != "any" && plan->route != "owner") {
    return Bad(absl::StrCat("--route is owner or any, not '", plan->route, "'"));
  }
  if (plan->routed() && !plan->owned()) {
    return Bad("--route=owner is for --mode=owned: keys of a shared tree have no owner");
  }
  const bool narrows = plan->techniques.narrow_anywhere || plan->techniques.narrow_writes;
  if (narrows && !plan->narrow_reads && plan->load != "none") {
    return Bad("--narrow_anywhere and --narrow_writes are for --narrow_reads");
  }
  if (plan->load == "put" && plan->is_share()) {
    return Bad("--load=put is for a whole run: no --all_compute_servers");
  }
  if (!plan->metrics_address.empty()) {
    PANDO_RETURN_IF_ERROR(
        AddressWithOffset(plan->metrics_address, plan->compute_servers - 1).status());
  }
  if (plan->tree.empty()) return Bad("--tree needs a name");
  if (plan->distribution.name.empty()) plan->distribution.name = plan->workload.distribution;
  PANDO_RETURN_IF_ERROR(Distribution::Validate(plan->distribution));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Keys> keys, Keys::Create(plan->keys, plan->records));
  plan->keys.key_bytes = keys->key_bytes_max();
  return CheckHistory(*plan);
}

nlohmann::json PlanToJson(const Plan& plan) { return plan; }

absl::StatusOr<Plan> PlanFromJson(const nlohmann::json& json) {
  try {
    return json.get<Plan>();
  } catch (const nlohmann::json::exception& e) {
    return absl::DataLossError(absl::StrCat("not a plan: ", e.what()));
  }
}

std::vector<std::string> RdmaFlags(const RdmaOptions& rdma) {
  std::vector<std::string> flags;
  if (!rdma.device.empty()) flags.push_back("--device=" + rdma.device);
  if (rdma.port != 0) flags.push_back(absl::StrCat("--port=", rdma.port));
  if (rdma.gid_index >= 0) flags.push_back(absl::StrCat("--gid_index=", rdma.gid_index));
  if (rdma.mtu_bytes != 0) flags.push_back(absl::StrCat("--mtu=", rdma.mtu_bytes));
  const auto add = [&](const char* name, int value) {
    if (value != 0) flags.push_back(absl::StrCat("--", name, "=", value));
  };
  add("traffic_class", rdma.traffic_class);
  add("service_level", rdma.service_level);
  add("pkey_index", rdma.pkey_index);
  return flags;
}

nlohmann::json ConfigJson(const Plan& plan) {
  nlohmann::json config = plan;
  for (const char* internal :
       {"folder", "workload", "distribution", "keys", "techniques", "rdma"}) {
    config.erase(internal);
  }
  if (plan.metrics_address.empty()) config.erase("metrics_address");
  if (!plan.owned()) {
    config.erase("hot_bytes");
    config.erase("log_bytes");
    config.erase("service_threads");
    config.erase("flush_threads");
    config.erase("ranges_min");
    config.erase("dirty_percent");
    config.erase("lend_after_ms");
    config.erase("route");
  }
  if (!plan.is_share()) {
    config.erase("compute_servers_all");
    config.erase("compute_server_first");
  }
  config["workload"] = plan.workload.name;
  config["mix"] = nlohmann::json::object();
  for (const OperationKind kind : kAllOperationKinds) {
    if (plan.workload.share(kind) > 0) {
      config["mix"][std::string(OperationName(kind))] = plan.workload.share(kind);
    }
  }
  config["distribution"] = plan.distribution.name;
  config["theta"] = plan.distribution.theta;
  if (plan.distribution.name == "hotspot") {
    config["hotspot_items"] = plan.distribution.hotspot_items;
    config["hotspot_operations"] = plan.distribution.hotspot_operations;
  }
  config["keys"] = plan.keys.kind;
  config["key_bytes"] = plan.keys.key_bytes;
  config["narrow_reads"] = plan.narrow_reads;
  if (plan.keys.kind == "words") config["words_file"] = plan.keys.words_file;
  config["memory_bytes"] = plan.region_bytes();
  for (const auto& [name, field] : kTechniqueFlags) config[name] = plan.techniques.*field;

  const HostInfo host = GetHostInfo();
  config["commit"] = host.commit;
  config["compiler"] = host.compiler;
  config["kernel"] = host.kernel;
  config["cpu"] = host.cpu;
  config["cpus"] = host.cpus;
  config["memory_gib"] = host.memory_gib;
  if (plan.registry.starts_with(plan.folder)) config.erase("registry");  // gone by now
  config["device"] = plan.fabric == "shm" ? "shared memory of this host" : RdmaDevices();
  if (plan.fabric != "shm") {
    config["port"] = plan.rdma.port;
    config["gid_index"] = plan.rdma.gid_index;
    config["mtu"] = plan.rdma.mtu_bytes;
    config["traffic_class"] = plan.rdma.traffic_class;
    config["service_level"] = plan.rdma.service_level;
    config["pkey_index"] = plan.rdma.pkey_index;
  }
  return config;
}

}  // namespace pando::bench
