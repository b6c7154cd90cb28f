#include "compute/client/open_fabric.h"

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/fabric/shm/shm_fabric.h"
#ifdef PANDO_HAVE_VERBS
#include "common/fabric/verbs/verbs_fabric.h"
#endif

namespace pando {

absl::Status CheckFabricName(const std::string& fabric) {
  const char* names = "shm";
#ifdef PANDO_HAVE_VERBS
  names = "shm, verbs";
  if (fabric == "verbs") return absl::OkStatus();
#endif
  if (fabric == "shm") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("unknown fabric '", fabric, "'; this build has: ", names));
}

absl::StatusOr<std::shared_ptr<Fabric>> OpenFabric(const std::vector<ServerLocation>& servers,
                                                   const ClientOptions& options, int64_t timeout_ms,
                                                   std::vector<absl::Status>* missing) {
  PANDO_RETURN_IF_ERROR(CheckFabricName(options.fabric));
#ifdef PANDO_HAVE_VERBS
  if (options.fabric == "verbs") {
    const RdmaOptions& rdma = options.rdma;
    PANDO_ASSIGN_OR_RETURN(const std::shared_ptr<const ClusterSecret> secret,
                           LoadClusterSecret(options.secret_file));
    return ConnectVerbs(servers,
                        {.device = {rdma.device, rdma.port, rdma.gid_index, rdma.mtu_bytes,
                                    rdma.traffic_class, rdma.service_level, rdma.pkey_index},
                         .connect_timeout_ms = timeout_ms,
                         .secret = secret,
                         .missing = missing});
  }
#endif
  return ConnectShm(servers, {.connect_timeout_ms = timeout_ms, .missing = missing});
}

}  // namespace pando
