// A client over a fabric that exists already: the simulator's, or a test's.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/base/time_constants.h"
#include "common/fabric/fabric.h"
#include "pando/client.h"

namespace pando {

// As Client::Connect(), but for `registry`, `fabric` and `memory_servers_min`, which are not used.
// `times`: what the memory servers were given (InvalidArgument: its invariants do not hold).
absl::StatusOr<std::unique_ptr<Client>> ConnectOverFabric(const ClientOptions& options,
                                                          std::shared_ptr<Fabric> fabric,
                                                          const TimeConstants& times = {});

}  // namespace pando
