#include "bench/host/memory_servers.h"

#include <poll.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/registry/registry.h"

namespace pando::bench {
namespace {

constexpr int64_t kReadyTimeoutNs = 20 * kSecondNs;
constexpr int64_t kStepMs = 100;

}  // namespace

absl::Status CheckMemoryServers(std::vector<Process>* servers) {
  for (Process& server : *servers) {
    if (!server.HasEnded()) continue;
    return absl::UnavailableError(absl::StrCat("a memory server ", WhyEnded(server)));
  }
  return absl::OkStatus();
}

absl::Status AwaitMemoryServers(std::vector<Process>* servers, const std::string& registry,
                                int stop_fd) {
  PANDO_ASSIGN_OR_RETURN(const std::unique_ptr<Registry> opened, OpenRegistry(registry));
  const int64_t deadline_ns = RealClock().NowNs() + kReadyTimeoutNs;
  while (true) {
    const absl::Status announced = opened->WaitFor(servers->size(), kStepMs).status();
    PANDO_RETURN_IF_ERROR(CheckMemoryServers(servers));
    if (!absl::IsDeadlineExceeded(announced)) return announced;
    if (RealClock().NowNs() >= deadline_ns) {
      return absl::UnavailableError("memory servers were started and do not announce themselves");
    }
    pollfd stop = {stop_fd, POLLIN, 0};  // poll() skips negative ones
    if (poll(&stop, 1, 0) > 0) return absl::CancelledError("stopped by a signal");
  }
}

}  // namespace pando::bench
