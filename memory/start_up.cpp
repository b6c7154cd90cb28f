#include "memory/start_up.h"

#include <time.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/base/units.h"

namespace pando::memory {
namespace {

constexpr uint64_t kPageBytes = 2 * kMiB;  // regions are mapped in whole huge pages
// Of the shm fabric, where `options` leave it to that.
constexpr uint64_t kEndpoints = 1024, kPacketBytes = 4096, kSlotHeaderBytes = 64;
// What a server has open beside its clients: memory, sockets, log, metrics.
constexpr uint64_t kOwnFiles = 48;
constexpr uint64_t kFilesPerConnection = 2;
constexpr int64_t kAskAgainNs = 200 * kMillisecondNs;

}  // namespace

uint64_t MappedBytes(const ServerFabricOptions& options) {
  const uint64_t endpoints = options.endpoints_max != 0 ? options.endpoints_max : kEndpoints;
  const uint64_t packet_bytes = options.packet_bytes != 0 ? options.packet_bytes : kPacketBytes;
  const uint64_t bytes =
      options.main_bytes + options.lock_bytes + endpoints * (packet_bytes + kSlotHeaderBytes);
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

absl::Status FitIntoHost(const HostMemory& host, bool overcommit, ServerFabricOptions* options) {
  const uint64_t bytes = MappedBytes(*options);
  if (options->huge_pages && host.huge_free_bytes >= bytes) return absl::OkStatus();
  if (options->huge_pages && options->numa_node >= 0) {
    PANDO_LOG(WARNING) << "NUMA node " << options->numa_node << " has "
                       << FormatBytes(host.huge_free_bytes) << " in free huge pages, not "
                       << FormatBytes(bytes) << ", using normal pages (reserve more in "
                       << "/sys/devices/system/node/node" << options->numa_node
                       << "/hugepages/hugepages-2048kB/nr_hugepages)";
    options->huge_pages = false;
  }
  const absl::Status fits = CheckMemory(bytes, host);
  if (fits.ok()) return fits;
  if (overcommit) {
    PANDO_LOG(WARNING) << "taken all the same, as asked for: " << fits.message();
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      fits.message(), ": offer less (--memory), or take it all the same (--memory_overcommit): it ",
      "is used as it fills, and when there is none left the kernel ends processes"));
}

uint64_t ConnectionsWithin(uint64_t files, uint64_t connections_max) {
  const uint64_t left = files - std::min(files, kOwnFiles);
  return std::min(connections_max, left / kFilesPerConnection);
}

absl::Status RegistryPatience::Try(const std::function<absl::Status()>& attempt,
                                   const volatile std::sig_atomic_t* stop) {
  const int64_t start_ns = RealClock().NowNs();
  const int64_t deadline_ns = start_ns + wait_ms_ * kMillisecondNs;
  for (bool said = false;; said = true) {
    const absl::Status status = attempt();
    const int64_t now_ns = RealClock().NowNs();
    const int64_t waited_s = (now_ns - start_ns) / kSecondNs;
    if (!absl::IsUnavailable(status)) {
      if (said && status.ok()) {
        PANDO_LOG(INFO) << "memory server " << server_id_ << ": its registry answers, after "
                        << waited_s << " s";
      }
      return status;
    }
    if (now_ns >= deadline_ns) {
      return Annotate(status, absl::StrCat("waited ", waited_s, " s for it (--registry_wait)"));
    }
    if (!said) {
      PANDO_LOG(WARNING) << "memory server " << server_id_ << " waits for its registry, for up to "
                         << wait_ms_ / 1000 << " s (--registry_wait): " << status.message();
    }
    const timespec pause = {0, std::min(kAskAgainNs, deadline_ns - now_ns)};
    nanosleep(&pause, nullptr);
    if (*stop != 0) return absl::CancelledError("stopped while it waited for its registry");
  }
}

}  // namespace pando::memory
