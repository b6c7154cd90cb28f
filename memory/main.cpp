// The daemon pando-memory: one memory server.

#include <gflags/gflags.h>
#include <numa.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/auth/cluster_secret.h"
#include "common/auth/identity_key.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/base/system_random.h"
#include "common/base/units.h"
#include "common/program/command_line.h"
#include "common/program/file_limit.h"
#include "common/program/host_memory.h"
#include "common/program/rdma_flags.h"
#include "common/registry/id_mark.h"
#include "common/registry/registry.h"
#include "memory/memory_server.h"
#include "memory/metered_handler.h"
#include "memory/server_fabric.h"
#include "memory/start_up.h"

DEFINE_string(registry, "",
              "where servers and clients find each other: a directory, or "
              "memcached://HOST:PORT/CLUSTER; default: $PANDO_REGISTRY, else "
              "$XDG_RUNTIME_DIR/pando");
DEFINE_int32(server_id, 1, "id of this server, unique in its registry: 1 to 65535");
DEFINE_string(memory, "1G", "memory to offer, with suffix K, M, G or T");
DEFINE_string(
    chunk, "4M",
    "most memory handed to a client at once, a power of two from 64K; small servers use less");
DEFINE_int32(locks, 32768,
             "words of the lock table, 512 to 2^29; 32768 are 256 KiB, what NICs have on chip");
DEFINE_int32(
    packet_bytes, 0,
    "largest write that is whole or absent when its sender dies; 0: 4096, and no more than "
    "an RDMA path's MTU");
DEFINE_int32(numa_node, -1, "NUMA node that the memory is bound to; -1: none in particular");
DEFINE_bool(huge_pages, false, "use huge pages if there are any, else normal pages");
DEFINE_bool(memory_overcommit, false,
            "take --memory even if this machine, NUMA node or control group has less available: "
            "the kernel ends processes when it has none left");
DEFINE_int32(connections_max, 1024, "client processes at once; each takes two file descriptors");
DEFINE_int32(
    endpoints_max, 0,
    "endpoints of all clients, one per client and one per session; 0: 1024 on shm, 4096 on verbs");
DEFINE_int32(registry_wait, 2,
             "how many seconds to wait at the start for a registry that does not answer");
DEFINE_string(catalog, "auto",
              "whether this server keeps the catalog: yes, no, or auto (server 1 does)");
DEFINE_string(fabric, "shm", "transport: shm (one host, no RDMA) or verbs (RDMA)");
DEFINE_string(listen, "",
              "HOST:PORT (TCP) where verbs clients connect; :PORT: at every address of this host; "
              "default: the address of the GID, any free port");
DEFINE_string(
    secret_file, "",
    "file with the cluster's secret, 16 to 4096 bytes, readable by its owner only; over verbs this "
    "server refuses a client without it (and with no secret one that has one); default: none");
DEFINE_bool(device_memory, true, "lock table in the NIC's memory where it has enough");
DEFINE_int32(
    lease_ms, 10'000,
    "verbs: a client that is silent for this long is cut off and declared dead; 0: none is");
DEFINE_int32(serving_lease_ms, 1'000,
             "verbs, on the catalog's server: how long keys of an owned tree wait at most, once "
             "their owner is gone, before another client takes them over (if it is silent, that is "
             "once --lease_ms has passed); 0: no owned trees");
DEFINE_string(
    metrics_address, "",
    "HOST:PORT, or PORT on the loopback interface, for Prometheus to scrape; default: none");
DEFINE_bool(exit_with_parent, false, "end when the process that started this one ends");

namespace pando {
namespace {

const ProgramInfo kProgram = {.name = "pando-memory",
                              .summary =
                                  "pando-memory --registry=DIR --server_id=N --memory=SIZE\n\n"
                                  "Offers memory to Pando clients (of this host, or with "
                                  "--fabric=verbs of others) until it gets "
                                  "SIGTERM or SIGINT. Its data is gone when it "
                                  "ends.",
                              .source = __FILE__,
                              .shared_source = kRdmaFlagsSource};

constexpr uint64_t kHugePageBytes = 2 * kMiB;
// Some 20 us in host memory; through a NIC 32 READs of 512 words.
constexpr uint32_t kFenceWordsPerStep = 16 << 10;

memory::ServerFabric* server_to_stop = nullptr;
volatile std::sig_atomic_t stop_asked_for = 0;

void StopOnSignal(int) {
  stop_asked_for = 1;
  server_to_stop->Stop();
}

// While it lives, SIGTERM and SIGINT stop the server; afterwards it is on its way out and they are
// ignored.
class StopSignals {
 public:
  explicit StopSignals(memory::ServerFabric* server) {
    server_to_stop = server;
    Handle(StopOnSignal);
    signal(SIGPIPE, SIG_IGN);
  }
  ~StopSignals() { Handle(SIG_IGN); }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

 private:
  static void Handle(void (*handler)(int)) {
    struct sigaction action = {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, nullptr);
    sigaction(SIGINT, &action, nullptr);
  }
};

uint64_t BytesFromFlag(const char* name, const std::string& value) {
  const absl::StatusOr<uint64_t> bytes = ParseBytes(value);
  if (!bytes.ok())
    ExitWithUsageError(kProgram, absl::StrCat("--", name, ": ", bytes.status().message()));
  return *bytes;
}

bool IsCatalog() {
  if (FLAGS_catalog == "auto") return FLAGS_server_id == 1;
  if (FLAGS_catalog == "yes" || FLAGS_catalog == "true") return true;
  if (FLAGS_catalog == "no" || FLAGS_catalog == "false") return false;
  ExitWithUsageError(kProgram,
                     absl::StrCat("--catalog is yes, no or auto, not '", FLAGS_catalog, "'"));
}

void CheckNumaNode() {
  if (FLAGS_numa_node == -1) return;
  if (numa_available() < 0)
    ExitWithUsageError(kProgram, "--numa_node: this kernel has no NUMA support");
  if (FLAGS_numa_node < -1 || FLAGS_numa_node > numa_max_node() ||
      !numa_bitmask_isbitset(numa_all_nodes_ptr, static_cast<unsigned>(FLAGS_numa_node))) {
    ExitWithUsageError(kProgram,
                       absl::StrCat("--numa_node: there is no NUMA node ", FLAGS_numa_node,
                                    "; nodes go from 0 to ", numa_max_node()));
  }
}

void CheckRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return;
  ExitWithUsageError(kProgram,
                     absl::StrCat("--", name, " is ", low, " to ", high, ", not ", value));
}

// A restarted catalog goes on above what its earlier lives gave out (rule C0).
absl::Status ContinueIds(const std::string& registry, std::unique_ptr<IdMark>* mark,
                         memory::MemoryServerOptions* options) {
  PANDO_ASSIGN_OR_RETURN(*mark, OpenIdMark(registry));
  PANDO_ASSIGN_OR_RETURN(const std::optional<uint32_t> first, (*mark)->Load());
  options->first_id =
      first.has_value() ? *first : memory::FirstIdWithoutMark(time(nullptr), SystemRandom());
  options->keep_id_mark = [kept = mark->get()](uint32_t id) { return kept->Store(id); };
  return absl::OkStatus();
}

memory::ServerFabricOptions FabricOptions(std::string socket_path) {
  const RdmaPath path = RdmaPathFromFlags(kProgram);
  memory::ServerFabricOptions options;
  options.fabric = FLAGS_fabric;
  options.socket_path = std::move(socket_path);
  options.server_id = static_cast<ServerId>(FLAGS_server_id);
  options.huge_pages = FLAGS_huge_pages;
  options.numa_node = FLAGS_numa_node;
  options.connections_max = static_cast<uint32_t>(FLAGS_connections_max);
  options.endpoints_max = static_cast<uint32_t>(FLAGS_endpoints_max);
  options.packet_bytes = static_cast<uint32_t>(FLAGS_packet_bytes);
  options.lock_bytes = (uint64_t{static_cast<uint32_t>(FLAGS_locks)} * 8 + 63) / 64 * 64;
  const uint64_t granule = FLAGS_huge_pages ? kHugePageBytes : 4096;
  options.main_bytes = BytesFromFlag("memory", FLAGS_memory) / granule * granule;
  if (const absl::Status size = memory::Region::CheckBytes(options.main_bytes); !size.ok()) {
    ExitWithUsageError(kProgram, absl::StrCat("--memory=", FLAGS_memory, ": ", size.message()));
  }
  options.listen = FLAGS_listen;
  options.secret_file = FLAGS_secret_file;
  options.device = path.device;
  options.port = path.port;
  options.gid_index = path.gid_index;
  options.mtu_bytes = path.mtu_bytes;
  options.traffic_class = path.traffic_class;
  options.service_level = path.service_level;
  options.pkey_index = path.pkey_index;
  options.device_memory = FLAGS_device_memory;
  options.identity_timeout_ms = std::max<int64_t>(options.identity_timeout_ms, FLAGS_lease_ms);
  return options;
}

memory::MemoryServerOptions HandlerOptions(bool is_catalog) {
  const uint64_t chunk_bytes = BytesFromFlag("chunk", FLAGS_chunk);
  if (chunk_bytes > kGiB) ExitWithUsageError(kProgram, "--chunk is at most 1G");
  memory::MemoryServerOptions options;
  options.server_id = static_cast<ServerId>(FLAGS_server_id);
  options.is_catalog = is_catalog;
  options.chunk_bytes = static_cast<uint32_t>(chunk_bytes);
  options.life = std::max<uint64_t>(SystemRandom(), 1);
  return options;
}

void MakeRoomForClients() {
  const uint64_t files = RaiseFileLimit();
  const auto wanted = static_cast<uint64_t>(FLAGS_connections_max);
  const uint64_t possible = memory::ConnectionsWithin(files, wanted);
  if (possible == wanted) return;
  PANDO_LOG(WARNING) << "memory server " << FLAGS_server_id << ": " << files
                     << " open files are enough for " << possible
                     << " clients, not for --connections_max=" << wanted
                     << ": raise the hard limit (ulimit -Hn, LimitNOFILE= of the unit)";
}

// Of the cluster's secret, else of a file that its servers share; nullptr where they share neither.
absl::StatusOr<std::shared_ptr<const IdentityKey>> FindKey(const Registry& registry) {
  PANDO_ASSIGN_OR_RETURN(const auto secret, LoadClusterSecret(FLAGS_secret_file));
  PANDO_ASSIGN_OR_RETURN(const std::string path, registry.IdentityKeyPath(FLAGS_fabric));
  if (FLAGS_fabric == "verbs" && secret == nullptr) {
    PANDO_LOG(WARNING)
        << "this cluster has no secret: anybody who reaches the TCP port of a memory "
           "server can read and write all of its memory. Give servers and clients "
           "one file with --secret_file (umask 077; openssl rand -hex 32 >FILE), or "
           "keep strangers out of this network";
  }
  return FindIdentityKey(secret.get(), path);
}

absl::Status Run(const std::string& registry_name) {
  const bool is_catalog = IsCatalog();
  memory::MemoryServerOptions handler_options = HandlerOptions(is_catalog);
  const auto id = static_cast<ServerId>(FLAGS_server_id);
  memory::RegistryPatience patience(FLAGS_server_id, int64_t{FLAGS_registry_wait} * 1000);
  absl::StatusOr<std::unique_ptr<Registry>> opened;
  PANDO_RETURN_IF_ERROR(patience.Try(
      [&] { return (opened = OpenRegistry(registry_name)).status(); }, &stop_asked_for));
  const std::unique_ptr<Registry> registry = *std::move(opened);
  std::string socket_path;
  if (FLAGS_fabric == "shm") {
    PANDO_ASSIGN_OR_RETURN(socket_path, registry->SocketPath(id));
  }
  memory::ServerFabricOptions fabric_options = FabricOptions(socket_path);
  PANDO_RETURN_IF_ERROR(memory::FitIntoHost(ReadHostMemory(FLAGS_numa_node),
                                            FLAGS_memory_overcommit, &fabric_options));
  PANDO_ASSIGN_OR_RETURN(handler_options.identity_key, FindKey(*registry));
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<memory::ServerFabric> server,
                         memory::ServerFabric::Create(fabric_options));
  handler_options.packet_bytes = server->packet_bytes();
  handler_options.needs_crc = server->needs_crc();
  handler_options.fence = server->fence();
  // Bounded: calls that come meanwhile are answered between two steps.
  handler_options.fence_words_per_step = kFenceWordsPerStep;
  if (server->fence() != nullptr) {
    handler_options.lease_ns = FLAGS_lease_ms * kMillisecondNs;
    handler_options.serving_lease_ns = FLAGS_serving_lease_ms * kMillisecondNs;
  } else {
    handler_options.fence_step_ns = 0;  // words in host memory: no reason to wait
  }
  PANDO_RETURN_IF_ERROR(memory::MemoryServer::Check(server->memory(), handler_options));
  const StopSignals stop_signals(server.get());
  const ServerLocation location = {
      .id = id, .address = server->address(), .fabric = FLAGS_fabric, .host = ""};
  absl::StatusOr<std::unique_ptr<Announcement>> announcement;
  PANDO_RETURN_IF_ERROR(patience.Try(
      [&] { return (announcement = registry->Announce(location)).status(); }, &stop_asked_for));
  // Only now: an earlier life that was still there could go on giving ids out.
  std::unique_ptr<IdMark> id_mark;
  if (is_catalog) {
    PANDO_RETURN_IF_ERROR(patience.Try(
        [&] { return ContinueIds(registry_name, &id_mark, &handler_options); }, &stop_asked_for));
  }
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<memory::MemoryServer> handler,
                         memory::MemoryServer::Create(server->memory(), handler_options));
  std::unique_ptr<memory::MeteredHandler> metered;
  if (!FLAGS_metrics_address.empty()) {
    PANDO_ASSIGN_OR_RETURN(metered,
                           memory::MeteredHandler::Create(handler.get(), FLAGS_metrics_address));
    PANDO_LOG(INFO) << "memory server " << id << ": metrics on port " << metered->port();
  }
  const Superblock& superblock = handler->superblock();
  PANDO_LOG(INFO) << "memory server " << id << " at " << location.address << server->description()
                  << ": " << FormatBytes(superblock.region_bytes) << ", " << superblock.chunk_count
                  << " chunks of " << FormatBytes(superblock.chunk_bytes)
                  << (is_catalog ? ", keeps the catalog" : "");
  ControlHandler* const served = handler.get();
  PANDO_RETURN_IF_ERROR(server->Serve(metered != nullptr ? metered.get() : served));
  PANDO_LOG(INFO) << "memory server " << id << " stopped";
  return absl::OkStatus();
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  using namespace pando;
  const pid_t parent = getppid();
  ParseCommandLine(argc, argv, kProgram);
  if (FLAGS_exit_with_parent) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) return 0;  // it ended before the call
  }
  const std::string registry = RegistryFromFlag(FLAGS_registry);
  if (registry.empty()) ExitWithUsageError(kProgram, "where is the registry? Give --registry=DIR");
  CheckRange("server_id", FLAGS_server_id, 1, 65535);
  CheckRange("locks", FLAGS_locks, 512, 1 << 29);
  if (FLAGS_packet_bytes != 0) CheckRange("packet_bytes", FLAGS_packet_bytes, 1024, 65536);
  CheckRange("lease_ms", FLAGS_lease_ms, 0, 24 * 3600 * 1000);
  CheckRange("serving_lease_ms", FLAGS_serving_lease_ms, 0, 24 * 3600 * 1000);
  CheckRange("connections_max", FLAGS_connections_max, 1, 65535);
  CheckRange("endpoints_max", FLAGS_endpoints_max, 0, 65536);
  CheckRange("registry_wait", FLAGS_registry_wait, 0, 24 * 3600);
  CheckNumaNode();
  MakeRoomForClients();
  const absl::Status status = Run(registry);
  if (status.ok() || (absl::IsCancelled(status) && stop_asked_for != 0)) return 0;
  if (absl::IsInvalidArgument(status)) ExitWithUsageError(kProgram, std::string(status.message()));
  PANDO_LOG(ERROR) << "memory server " << FLAGS_server_id << ": " << status;
  return 1;
}
