// What owners of keys report of their erases that are not in their leaves yet (rule B5), for
// clients that ask the catalog's server: counters on which nothing relies.
//
// Not thread-safe: one control thread. Invariant: at most the joined clients, and those that have
// ended since somebody last said something, have a note.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "common/base/clock.h"
#include "common/wire/owner_messages.h"
#include "memory/client_id.h"

namespace pando::memory {

class DeleteNotes {
 public:
  using IsOver = absl::FunctionRef<bool(const ClientId&)>;

  void Take(const ClientId& client, const PendingDeletes& said, int64_t now_ns, IsOver is_over) {
    absl::erase_if(notes_, [&](const auto& note) { return is_over(note.first); });
    if (said.tombstones == 0) {
      notes_.erase(client);
      return;
    }
    const auto age_ns = static_cast<int64_t>(said.oldest_ms) * kMillisecondNs;
    notes_[client] = {said.tombstones, now_ns - age_ns};
  }
  // Of all that are not over. The oldest has grown older since it was spoken of, or is gone.
  PendingDeletes Sum(int64_t now_ns, IsOver is_over) const {
    PendingDeletes sum;
    for (const auto& [client, note] : notes_) {
      if (is_over(client)) continue;
      sum.tombstones += note.tombstones;
      const auto age_ms = static_cast<uint64_t>((now_ns - note.since_ns) / kMillisecondNs);
      sum.oldest_ms = std::max(sum.oldest_ms, age_ms);
    }
    return sum;
  }

 private:
  struct Note {
    uint64_t tombstones;
    int64_t since_ns;
  };
  absl::flat_hash_map<ClientId, Note> notes_;
};

}  // namespace pando::memory
