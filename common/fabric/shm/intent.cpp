#include "common/fabric/shm/intent.h"

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/fabric/shm/word_copy.h"
#include "common/fabric/verb_check.h"

namespace pando {
namespace {

// Gathers the pieces into shared words; pieces may end inside a word.
void GatherToShared(std::byte* shared, const Verb& verb) {
  if (verb.piece_count == 1) {
    CopyToShared(shared, verb.pieces[0].data, verb.bytes);
    return;
  }
  uint64_t word = 0;
  size_t filled = 0;
  for (int p = 0; p < verb.piece_count; ++p) {
    const std::byte* from = verb.pieces[p].data;
    size_t left = verb.pieces[p].bytes;
    if (filled == 0) {
      const size_t whole = left - left % kWordBytes;
      CopyToShared(shared, from, whole);
      shared += whole;
      from += whole;
      left -= whole;
    }
    for (; left != 0; --left, ++from) {
      std::memcpy(reinterpret_cast<std::byte*>(&word) + filled, from, 1);
      if (++filled == kWordBytes) {
        StoreWord(shared, word);
        shared += kWordBytes;
        filled = 0;
      }
    }
  }
}

void CopyBetweenShared(std::byte* to, const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kWordBytes) StoreWord(to + i, LoadWord(from + i));
}

}  // namespace

void ExecuteWithIntent(std::byte* slot, const Verb& verb, std::byte* target) {
  if (!RuleHolds(Rule::kF7)) return GatherToShared(target, verb);
  GatherToShared(slot + IntentSlot::kDataOffset, verb);
  StoreWord(slot + IntentSlot::kTargetOffset, verb.offset);
  StoreWord(slot + IntentSlot::kLengthOffset,
            (static_cast<uint64_t>(verb.space) << 32) | verb.bytes);
  StoreWord(slot + IntentSlot::kValidOffset, 1);
  CopyBetweenShared(target, slot + IntentSlot::kDataOffset, verb.bytes);
  StoreWord(slot + IntentSlot::kValidOffset, 0);
}

absl::StatusOr<bool> CompleteIntent(const ShmRegion& region, uint32_t slot_index) {
  std::byte* slot = region.intent(slot_index);
  if (LoadWord(slot + IntentSlot::kValidOffset) == 0) return false;
  // Read once: whatever is checked is what is used.
  const uint64_t offset = LoadWord(slot + IntentSlot::kTargetOffset);
  const uint64_t length = LoadWord(slot + IntentSlot::kLengthOffset);
  const uint32_t bytes = static_cast<uint32_t>(length);
  const bool known_space = length >> 32 <= static_cast<uint64_t>(MemorySpace::kLocks);
  const MemorySpace space =
      known_space ? static_cast<MemorySpace>(length >> 32) : MemorySpace::kMain;
  const bool fits = known_space &&
                    CheckRange(region.space_bytes(space), offset, bytes) == nullptr &&
                    bytes <= region.geometry().packet_bytes;
  if (fits) {
    CopyBetweenShared(region.space(space) + offset, slot + IntentSlot::kDataOffset, bytes);
  }
  StoreWord(slot + IntentSlot::kValidOffset, 0);
  if (!fits) {
    return absl::DataLossError(absl::StrCat("intent slot ", slot_index, " names ", bytes,
                                            " bytes at offset ", offset, " of space ", length >> 32,
                                            ": ignored"));
  }
  return true;
}

}  // namespace pando
