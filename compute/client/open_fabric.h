// The transports that a client can use, by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/fabric.h"
#include "common/registry/server_location.h"
#include "pando/options.h"

namespace pando {

// InvalidArgument: this build has no such fabric (says which it has).
absl::Status CheckFabricName(const std::string& fabric);

// Connects to the servers over options.fabric, each within `timeout_ms`. Those that cannot be
// connected are left out, and `missing` says why, unless it is nullptr. Statuses as ConnectShm()
// and ConnectVerbs().
absl::StatusOr<std::shared_ptr<Fabric>> OpenFabric(const std::vector<ServerLocation>& servers,
                                                   const ClientOptions& options, int64_t timeout_ms,
                                                   std::vector<absl::Status>* missing);
// To all of them, each within the options' time-out.
inline absl::StatusOr<std::shared_ptr<Fabric>> OpenFabric(
    const std::vector<ServerLocation>& servers, const ClientOptions& options) {
  return OpenFabric(servers, options, options.connect_timeout_ms, nullptr);
}

}  // namespace pando
