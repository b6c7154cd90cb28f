#include "compute/client/connect.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "common/registry/registry.h"
#include "common/sched/scheduler.h"
#include "compute/client/access.h"
#include "compute/client/client_impl.h"
#include "compute/client/open_fabric.h"

namespace pando {
namespace {

// One server that does not answer holds up the others no longer.
constexpr int64_t kHandshakeMsMax = 1'000;
// Between two attempts.
constexpr int64_t kPauseNs = 20 * kMillisecondNs;

std::string Join(const std::vector<absl::Status>& reasons) {
  std::string text;
  for (const absl::Status& reason : reasons) absl::StrAppend(&text, "; ", reason.message());
  return text;
}

// Unavailable: it may go better in a moment.
absl::StatusOr<std::unique_ptr<Client>> TryConnect(const ClientOptions& options,
                                                   const std::shared_ptr<Registry>& registry,
                                                   int64_t timeout_ms) {
  const auto servers_min = static_cast<size_t>(std::max(1, options.memory_servers_min));
  std::vector<absl::Status> missing;
  PANDO_ASSIGN_OR_RETURN(std::vector<ServerLocation> servers, registry->List(&missing));
  const size_t announced = servers.size();
  absl::Status unreachable;
  std::erase_if(servers, [&](const ServerLocation& server) {
    const absl::Status reachable = CheckReachable({server}, options.fabric);
    if (!reachable.ok()) missing.push_back(unreachable = reachable);
    return !reachable.ok();
  });
  if (servers.empty() && !unreachable.ok()) return unreachable;
  if (servers.size() < servers_min) {
    return absl::UnavailableError(absl::StrCat(
        announced, " of ", servers_min, " memory servers are announced in registry '",
        options.registry, "': is pando-memory running with --registry=", options.registry, "?",
        Join(missing)));
  }
  PANDO_ASSIGN_OR_RETURN(
      std::shared_ptr<Fabric> fabric,
      OpenFabric(servers, options, std::clamp<int64_t>(timeout_ms, 1, kHandshakeMsMax), &missing));
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<ClientImpl> client,
                         ClientImpl::Join(options, std::move(fabric), registry, &missing));
  const size_t answering = client->environment().members.Ids().size();
  if (answering < servers_min) {
    return absl::UnavailableError(
        absl::StrCat(answering, " of ", servers_min, " memory servers answer", Join(missing)));
  }
  for (const absl::Status& reason : missing) {
    PANDO_LOG(WARNING) << "connected without one: " << reason.message();
  }
  return ImplAccess::Make<Client>(std::move(client));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> ConnectOverFabric(const ClientOptions& options,
                                                          std::shared_ptr<Fabric> fabric,
                                                          const TimeConstants& times) {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<ClientImpl> impl,
                         ClientImpl::Join(options, std::move(fabric), nullptr, nullptr, times));
  return ImplAccess::Make<Client>(std::move(impl));
}

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ClientOptions& options) {
  PANDO_RETURN_IF_ERROR(CheckMayBlock());
  PANDO_RETURN_IF_ERROR(ValidateOptions(options));
  PANDO_RETURN_IF_ERROR(CheckFabricName(options.fabric));
  PANDO_ASSIGN_OR_RETURN(const std::shared_ptr<Registry> registry, OpenRegistry(options.registry));
  const int64_t deadline_ns =
      RealClock().NowNs() + std::min(options.connect_timeout_ms, kTimeoutMsMax) * kMillisecondNs;
  const int64_t enough_ms = std::min(kHandshakeMsMax, options.connect_timeout_ms / 4);
  absl::Status reason;
  for (;;) {
    const int64_t left_ms = (deadline_ns - RealClock().NowNs()) / kMillisecondNs;
    absl::StatusOr<std::unique_ptr<Client>> client = TryConnect(options, registry, left_ms);
    // Servers are started together with their clients: those that are missed may come.
    if (!absl::IsUnavailable(client.status())) return client;
    // That a server did not answer an attempt that the deadline has cut short says nothing of it.
    if (reason.ok() || left_ms >= enough_ms) reason = client.status();
    if (RealClock().NowNs() + kPauseNs >= deadline_ns) return reason;
    const timespec pause = {0, kPauseNs};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace pando
