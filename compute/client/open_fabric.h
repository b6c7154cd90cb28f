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

// Connects to all servers over options.fabric. Statuses as ConnectShm() and ConnectVerbs().
absl::StatusOr<std::shared_ptr<Fabric>> OpenFabric(const std::vector<ServerLocation>& servers,
                                                   const ClientOptions& options);

}  // namespace pando
