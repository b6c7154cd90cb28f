// Rule F7: an intent says what a WRITE is about to do, in memory that outlives the writer, so that
// a WRITE whose writer is killed at any instruction can be made whole.
//
// Slot (64 bytes, then packet_bytes of data), all words:
//   0  valid: 1 from the moment the record is complete until the WRITE has been executed
//   8  offset in the space      16  space (high half) and bytes (low half)
//   64 the data
// Every store is a release store, so the record is complete before it is valid, valid before its
// target changes, executed before it is cleared, and cleared before the slot or a later verb's
// target is touched, on any processor.
//
// Thread safety: a slot belongs to one endpoint, and to the server once the endpoint's process has
// exited.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "common/fabric/chain.h"
#include "common/fabric/shm/shm_region.h"

namespace pando {

struct IntentSlot {
  static constexpr size_t kValidOffset = 0;
  static constexpr size_t kTargetOffset = 8;
  static constexpr size_t kLengthOffset = 16;
  static constexpr size_t kDataOffset = ShmGeometry::kIntentHeaderBytes;
};

// Executes a WRITE of at most packet_bytes (a multiple of 8) that has been checked, at `target`.
void ExecuteWithIntent(std::byte* slot, const Verb& verb, std::byte* target);

// The server's side: completes the intent in `slot`, if there is one, and clears it. True: there
// was one. DataLoss: it names memory that no WRITE may touch; nothing is written then.
absl::StatusOr<bool> CompleteIntent(const ShmRegion& region, uint32_t slot);

}  // namespace pando
