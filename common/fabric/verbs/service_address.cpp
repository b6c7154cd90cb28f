#include "common/fabric/verbs/service_address.h"

#include <unistd.h>

#include <array>
#include <climits>

namespace pando {

absl::StatusOr<HostPort> AddressToListenAt(std::string_view asked, const GidFacts& gid) {
  if (!asked.empty()) return ParseHostPort(asked);
  return HostPort{gid.IsIpv4() ? FormatGid(gid) : "", "0"};
}

HostPort AddressToPublish(const HostPort& bound, const GidFacts& gid) {
  if (!bound.host.empty()) return bound;
  if (gid.IsIpv4()) return {FormatGid(gid), bound.port};
  std::array<char, HOST_NAME_MAX + 1> name = {};
  gethostname(name.data(), name.size() - 1);
  return {name.data(), bound.port};
}

}  // namespace pando
