// Rule C2: the dead, for others to READ. One word a compute server; a waiter that meets the lock of
// somebody silent looks its owner up here (rule C3). Pure.
//
// The table is kDeadSlots words at the superblock's dead_offset. Several compute servers share a
// slot: an entry is overwritten only after no lock word of its incarnation is left, so that one who
// does not find the entry any more finds the lock word gone too.
#pragma once

#include <cstdint>

#include "common/wire/lock_word.h"

namespace pando {

inline constexpr uint32_t kDeadSlots = 512;
inline constexpr uint64_t kDeadTableBytes = kDeadSlots * sizeof(uint64_t);
static_assert(kDeadTableBytes == 4096);

// Where the word of `compute_server` lies, from the start of the table.
constexpr uint64_t DeadEntryOffset(uint16_t compute_server) {
  return uint64_t{compute_server % kDeadSlots} * sizeof(uint64_t);
}

// The word that says that this life is dead. Never 0: compute servers count from 1.
constexpr uint64_t DeadEntry(uint16_t compute_server, uint32_t incarnation) {
  return LockWord{.owner = compute_server, .incarnation = incarnation, .mode = 0}.Encode();
}

// Whether `entry`, as READ, says that the owner of `lock_word` is dead (its mode does not matter).
constexpr bool SaysDead(uint64_t entry, uint64_t lock_word) {
  const LockWord holder = LockWord::Decode(lock_word);
  return holder.owner != 0 && entry == DeadEntry(holder.owner, holder.incarnation);
}

}  // namespace pando
