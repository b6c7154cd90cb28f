// What the two ends of a link between compute servers (peer.h) tell each other first, on fabrics
// with connections. The frames around it are the backend's own.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/peer.h"

namespace pando {

// What a side can do and needs, and who it is. Travels as it is.
struct PeerHello {
  uint64_t compatible = 0;
  uint64_t read_compatible = 0;
  uint64_t incompatible = 0;  // unknown bits are refused
  uint16_t compute_server = 0;
  uint16_t reserved = 0;
  uint32_t incarnation = 0;

  PeerIdentity identity() const { return {compute_server, incarnation}; }
};
static_assert(std::is_trivially_copyable_v<PeerHello> && sizeof(PeerHello) == 32);
inline constexpr uint64_t kPeerIncompatibleKnown = 0;

PeerHello MakePeerHello(const PeerIdentity& identity);
// DataLoss: no hello. FailedPrecondition: it needs what this side does not know.
absl::StatusOr<PeerHello> ParsePeerHello(std::string_view body);

// Why the other side has refused, as far as it is one of its reasons (peer.h, 3); else DataLoss.
absl::Status CheckRefusal(const absl::Status& refusal);

}  // namespace pando
