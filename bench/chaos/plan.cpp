#include "bench/chaos/plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "bench/host/json_file.h"
#include "bench/workload/values.h"
#include "bench/ycsb/plan.h"
#include "common/base/units.h"

namespace pando::chaos {
namespace {

// Below that a kill, what follows from it, and the restart cannot be told apart from the next.
constexpr double kSecondsAnEvent = 1;
// A compute server gives its ranges to others, ends, and another process is ready.
constexpr double kSecondsALeave = 2;

absl::Status Bad(const std::string& why) { return absl::InvalidArgumentError(why); }

}  // namespace

uint64_t Plan::region_bytes() const {
  return memory_bytes != 0 ? memory_bytes : 64 * kMiB + records * (256 + 4 * uint64_t{value_bytes});
}

std::string Plan::log_file(int life, int thread) const {
  return absl::StrCat(folder, "/operations-", life, "-", thread);
}

ClientOptions Plan::client_options() const {
  ClientOptions options;
  options.registry = registry();
  options.fabric = fabric;
  options.rdma = rdma;
  options.memory_servers_min = memory_servers;
  options.connect_timeout_ms = 20'000;
  options.operation_timeout_ms = timeout_ms;
  options.hot_bytes = kHotBytes;
  options.log_bytes = kLogBytes;
  options.techniques.narrow_anywhere = narrow_reads;
  options.techniques.narrow_writes = narrow_writes;
  return options;
}

absl::Status CheckPlan(const Plan& plan) {
  if (plan.fabric != "shm" && plan.fabric != "verbs") {
    return Bad(absl::StrCat("--fabric is shm or verbs, not '", plan.fabric, "'"));
  }
  if (!bench::IsUtf8(plan.rdma.device)) return Bad("--device is not UTF-8");
  if (plan.mode != "shared" && plan.mode != "owned") {
    return Bad(absl::StrCat("--mode is shared or owned, not '", plan.mode, "'"));
  }
  if (!(plan.duration_s > 0 && plan.duration_s <= 24 * 3600)) {
    return Bad("--duration is more than 0 and at most 86400 seconds");
  }
  if (plan.kills < 0 || plan.stops < 0 || plan.memory_stops < 0) {
    return Bad("--kills, --stops and --memory_stops are 0 or more");
  }
  if (plan.leaves < 0) return Bad("--leaves is 0 or more");
  if (plan.leaves > 0 && (!plan.owned() || plan.upserts > 0)) {
    return Bad("--leaves is of --mode=owned, and not of --upserts");
  }
  if (plan.leaves * kSecondsALeave > plan.duration_s) {
    return Bad(absl::StrCat("--duration: ", plan.leaves, " leaves need ", kSecondsALeave,
                            " seconds each"));
  }
  if (plan.upserts > 0) {
    if (!plan.owned()) return Bad("--upserts is of --mode=owned");
    if (plan.stops > 0 || plan.memory_stops > 0) return Bad("--upserts: nobody is stopped");
    if (plan.kills >= plan.compute_servers) {
      return Bad("--upserts: nobody is started again, so --kills is less than --compute_servers");
    }
  }
  if (plan.upserts == 0 && plan.events() * kSecondsAnEvent > plan.duration_s) {
    return Bad(absl::StrCat("--duration: ", plan.events(), " kills and stops need a second each"));
  }
  if (!(plan.stop_s >= 0) ||
      plan.stop_s > kStopShareMax * plan.duration_s / std::max(1, plan.events())) {
    return Bad(
        "--stop_seconds: every kill and stop has an equal share of --duration, and a stop at "
        "most 60 % of one");
  }
  if (plan.compute_servers < 2 || plan.compute_servers > 64) {
    return Bad("--compute_servers is 2 to 64: some go on while others are down");
  }
  if (plan.memory_servers < 1 || plan.memory_servers > 64) return Bad("--memory_servers: 1 to 64");
  if (plan.threads < 1 || plan.threads > 64) return Bad("--threads is 1 to 64");
  if (plan.coroutines < 1 || plan.coroutines > 48) return Bad("--coroutines is 1 to 48");
  if (plan.records < 1 || plan.records > 100'000'000) return Bad("--records is 1 to 100000000");
  if (plan.value_bytes < kNumberBytes || plan.value_bytes > bench::kValueBytesMax) {
    return Bad(absl::StrCat("--value_bytes is ", kNumberBytes, " to ", bench::kValueBytesMax));
  }
  if (plan.inline_value_bytes > 254) return Bad("--inline_value_bytes is 0 to 254");
  if (plan.narrow_writes && !plan.narrow_reads) {
    return Bad("--narrow_writes is of trees with --narrow_reads");
  }
  if (!(plan.rate >= 1 && plan.rate <= 1e6)) return Bad("--rate is 1 to 1000000");
  if (plan.timeout_ms < 1 || plan.gap_max_ms < 1 || plan.after_stop_max_ms < 1) {
    return Bad("--timeout_ms, --gap_max_ms and --after_stop_max_ms are 1 or more");
  }
  const double writes = plan.rate * plan.duration_s + static_cast<double>(plan.records);
  if (writes > static_cast<double>(bench::Values::Capacity(kNumberBytes, plan.writers()))) {
    return Bad("--rate times --duration: more writes than different values");
  }
  return absl::OkStatus();
}

nlohmann::json PlanToJson(const Plan& plan) {
  return {{"fabric", plan.fabric},
          {"device", plan.rdma.device},
          {"port", plan.rdma.port},
          {"gid_index", plan.rdma.gid_index},
          {"mtu", plan.rdma.mtu_bytes},
          {"traffic_class", plan.rdma.traffic_class},
          {"service_level", plan.rdma.service_level},
          {"pkey_index", plan.rdma.pkey_index},
          {"mode", plan.mode},
          {"seed", plan.seed},
          {"duration", plan.duration_s},
          {"kills", plan.kills},
          {"stops", plan.stops},
          {"memory_stops", plan.memory_stops},
          {"leaves", plan.leaves},
          {"stop_seconds", plan.stop_s},
          {"memory_servers", plan.memory_servers},
          {"memory", plan.region_bytes()},
          {"compute_servers", plan.compute_servers},
          {"threads", plan.threads},
          {"coroutines", plan.coroutines},
          {"records", plan.records},
          {"value_bytes", plan.value_bytes},
          {"inline_value_bytes", plan.inline_value_bytes},
          {"narrow_reads", plan.narrow_reads},
          {"narrow_writes", plan.narrow_writes},
          {"rate", plan.rate},
          {"timeout_ms", plan.timeout_ms},
          {"gap_max_ms", plan.gap_max_ms},
          {"after_stop_max_ms", plan.after_stop_max_ms},
          {"upserts", plan.upserts},
          {"folder", plan.folder}};
}

absl::StatusOr<Plan> PlanFromJson(const nlohmann::json& json) {
  if (!json.is_object()) return Bad("the plan is no JSON object");
  Plan plan;
  try {
    plan.fabric = json.value("fabric", plan.fabric);
    plan.rdma.device = json.value("device", plan.rdma.device);
    plan.rdma.port = json.value("port", plan.rdma.port);
    plan.rdma.gid_index = json.value("gid_index", plan.rdma.gid_index);
    plan.rdma.mtu_bytes = json.value("mtu", plan.rdma.mtu_bytes);
    plan.rdma.traffic_class = json.value("traffic_class", plan.rdma.traffic_class);
    plan.rdma.service_level = json.value("service_level", plan.rdma.service_level);
    plan.rdma.pkey_index = json.value("pkey_index", plan.rdma.pkey_index);
    plan.mode = json.value("mode", plan.mode);
    plan.seed = json.value("seed", plan.seed);
    plan.duration_s = json.value("duration", plan.duration_s);
    plan.kills = json.value("kills", plan.kills);
    plan.stops = json.value("stops", plan.stops);
    plan.memory_stops = json.value("memory_stops", plan.memory_stops);
    plan.leaves = json.value("leaves", plan.leaves);
    plan.stop_s = json.value("stop_seconds", plan.stop_s);
    plan.memory_servers = json.value("memory_servers", plan.memory_servers);
    plan.memory_bytes = json.value("memory", plan.memory_bytes);
    plan.compute_servers = json.value("compute_servers", plan.compute_servers);
    plan.threads = json.value("threads", plan.threads);
    plan.coroutines = json.value("coroutines", plan.coroutines);
    plan.records = json.value("records", plan.records);
    plan.value_bytes = json.value("value_bytes", plan.value_bytes);
    plan.inline_value_bytes = json.value("inline_value_bytes", plan.inline_value_bytes);
    plan.narrow_reads = json.value("narrow_reads", plan.narrow_reads);
    plan.narrow_writes = json.value("narrow_writes", plan.narrow_writes);
    plan.rate = json.value("rate", plan.rate);
    plan.timeout_ms = json.value("timeout_ms", plan.timeout_ms);
    plan.gap_max_ms = json.value("gap_max_ms", plan.gap_max_ms);
    plan.after_stop_max_ms = json.value("after_stop_max_ms", plan.after_stop_max_ms);
    plan.upserts = json.value("upserts", plan.upserts);
    plan.folder = json.value("folder", plan.folder);
  } catch (const nlohmann::json::exception& error) {
    return absl::DataLossError(absl::StrCat("not a plan: ", error.what()));
  }
  if (const absl::Status status = CheckPlan(plan); !status.ok()) return status;
  return plan;
}

}  // namespace pando::chaos
