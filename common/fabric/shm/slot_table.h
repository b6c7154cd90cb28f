// Who owns which intent slot of a server. Kept in the server's private memory: shared memory says
// only what a WRITE was about to do, never on whose behalf. Not thread-safe. Invariant: a slot that
// is handed out holds no valid intent.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/server.h"
#include "common/fabric/shm/shm_region.h"

namespace pando {

class SlotTable {
 public:
  explicit SlotTable(const ShmRegion* region);

  // ResourceExhausted: all are taken.
  absl::StatusOr<uint32_t> Assign(PeerId peer);
  // Gives back a slot whose endpoint executes no more verbs. PermissionDenied: it is not this
  // peer's.
  absl::Status Free(PeerId peer, uint32_t slot);
  // Completes the intents of a peer whose process has exited and gives its slots back. Returns how
  // many there were. `owned`: what Assign() returned for it and Free() did not take back.
  uint64_t CompleteAndFree(PeerId peer, const std::vector<uint32_t>& owned);

 private:
  static constexpr PeerId kNobody = 0;

  const ShmRegion* const region_;
  std::vector<PeerId> owner_;   // by slot
  std::vector<uint32_t> free_;  // last in, first out: warm slots first
};

}  // namespace pando
