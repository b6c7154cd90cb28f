#include "common/fabric/shm/slot_table.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/fabric/shm/intent.h"
#include "common/fabric/shm/word_copy.h"

namespace pando {

SlotTable::SlotTable(const ShmRegion* region)
    : region_(region), owner_(region->geometry().endpoints_max, kNobody) {
  free_.reserve(owner_.size());
  for (uint32_t slot = static_cast<uint32_t>(owner_.size()); slot != 0;) free_.push_back(--slot);
}

absl::StatusOr<uint32_t> SlotTable::Assign(PeerId peer) {
  if (free_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all ", owner_.size(),
                     " endpoints of this memory server are taken (one a client, one a session): ",
                     "start it with a higher --endpoints_max"));
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  owner_[slot] = peer;
  StoreWord(region_->intent(slot) + IntentSlot::kValidOffset, 0);
  return slot;
}

absl::Status SlotTable::Free(PeerId peer, uint32_t slot) {
  if (slot >= owner_.size() || owner_[slot] != peer) {
    return absl::PermissionDeniedError(absl::StrCat("slot ", slot, " is not this client's"));
  }
  owner_[slot] = kNobody;
  free_.push_back(slot);
  return absl::OkStatus();
}

uint64_t SlotTable::CompleteAndFree(PeerId peer, const std::vector<uint32_t>& owned) {
  uint64_t completed = 0;
  for (const uint32_t slot : owned) {
    const absl::StatusOr<bool> intent = CompleteIntent(*region_, slot);
    if (!intent.ok()) {
      PANDO_LOG(WARNING) << "client " << peer << " exited: " << intent.status().message();
    } else if (*intent) {
      ++completed;
    }
    PANDO_CHECK_OK(Free(peer, slot));
  }
  return completed;
}

}  // namespace pando
