#include "compute/owner/fence_listed.h"

#include "common/base/status.h"

namespace pando {

absl::StatusOr<ServerSet> FenceListed(ServerId catalog_server,
                                      absl::FunctionRef<absl::StatusOr<ServerSet>()> list,
                                      absl::FunctionRef<absl::Status(ServerId)> fence) {
  PANDO_RETURN_IF_ERROR(fence(catalog_server));
  ServerSet confirmed = {catalog_server};
  while (true) {
    PANDO_ASSIGN_OR_RETURN(const ServerSet listed, list());
    bool all_had_confirmed = true;
    for (const ServerId server : listed) {
      if (!confirmed.insert(server).second) continue;
      all_had_confirmed = false;
      PANDO_RETURN_IF_ERROR(fence(server));
    }
    if (all_had_confirmed) return confirmed;
  }
}

}  // namespace pando
