#include "common/registry/registry.h"

#include <time.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/registry/local_registry.h"
#include "common/registry/memcached_registry.h"

namespace pando {

absl::StatusOr<std::vector<ServerLocation>> Registry::WaitFor(size_t servers_min,
                                                              int64_t timeout_ms) {
  const int64_t deadline_ns = RealClock().NowNs() + timeout_ms * kMillisecondNs;
  for (;;) {
    PANDO_ASSIGN_OR_RETURN(std::vector<ServerLocation> locations, List());
    if (locations.size() >= servers_min) return locations;
    const int64_t left_ns = deadline_ns - RealClock().NowNs();
    if (left_ns <= 0) {
      return absl::DeadlineExceededError(absl::StrCat(
          locations.size(), " of ", servers_min, " memory servers announced in ", name(), " after ",
          timeout_ms, " ms: is pando-memory running with this registry?"));
    }
    const timespec pause = {0, std::min(left_ns, poll_ns())};
    nanosleep(&pause, nullptr);
  }
}

absl::StatusOr<std::unique_ptr<Registry>> OpenRegistry(std::string_view registry) {
  constexpr std::string_view kLocal = "local:";
  if (registry.starts_with(kMemcachedScheme)) {
    PANDO_ASSIGN_OR_RETURN(MemcachedRegistryOptions options, ParseMemcachedName(registry));
    return MemcachedRegistry::Open(std::move(options));
  }
  std::string_view directory = registry;
  if (directory.starts_with(kLocal)) {
    directory.remove_prefix(kLocal.size());
  } else if (const size_t colon = directory.find(':');
             colon != std::string_view::npos && directory.find('/') > colon) {
    return absl::InvalidArgumentError(
        absl::StrCat("registry '", std::string(registry),
                     "': known are a directory (\"DIR\" or \"local:DIR\") and "
                     "\"memcached://HOST:PORT/CLUSTER\""));
  }
  if (directory.empty()) {
    return absl::InvalidArgumentError("the registry is empty: give the memory servers' directory");
  }
  return LocalRegistry::Open(std::string(directory));
}

absl::Status CheckReachable(const std::vector<ServerLocation>& servers, std::string_view fabric) {
  for (const ServerLocation& server : servers) {
    if (server.fabric != fabric) {
      return absl::FailedPreconditionError(
          absl::StrCat("memory server ", server.id, " offers fabric ", server.fabric, ", not ",
                       std::string(fabric), ": use --fabric=", server.fabric));
    }
    if (fabric == "shm" && !server.host.empty()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "memory server ", server.id, " runs on host ", server.host,
          " and fabric shm works within one host only: start this program on that host, or use "
          "another cluster name for the servers of this one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace pando
