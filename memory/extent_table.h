// Extents: chunks side by side that belong to one life of a compute server, for its redo log (rule
// W1).
//
// Not thread-safe: one control thread. Invariants:
//   1. An extent is whole chunks, all zero when it is handed out; what they had before, and what
//      the extent had once it was freed, rests (rule R3; chunk_pool.h).
//   2. It is its holder's until it is freed, whatever becomes of the holder. Who may free it is for
//      the caller to know.
//   3. An id is one extent in a life of the server, so that a free takes effect once.
//   4. A call zeroes at most kZeroedBytesMax, or a chunk: the same client asks on, and others are
//      answered in between.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/container/btree_map.h"
#include "absl/status/statusor.h"
#include "common/base/time_constants.h"
#include "common/wire/owner_messages.h"
#include "memory/client_id.h"
#include "memory/node_ledger.h"
#include "memory/region.h"

namespace pando::memory {

class ExtentTable {
 public:
  static constexpr uint64_t kZeroedBytesMax = 16 << 20;

  // Chunks come from the ledger's pool. `life`: of this memory server.
  ExtentTable(const Region* region, NodeLedger* nodes, const Clock* clock,
              const TimeConstants& times, uint64_t life);

  // At least `bytes`. A grant without memory says when to ask again, for the same number of bytes:
  // what the client was promised before is zeroed step by step, and given up where it asks for
  // another number. ResourceExhausted: says how much would fit.
  absl::StatusOr<ExtentGrant> Allocate(const ClientId& holder, uint64_t bytes);
  // nullptr: there is no such extent (any more).
  const ClientId* HolderOf(uint64_t id) const;
  // Of an extent that there is.
  void Free(uint64_t id);
  // `liveness_of`: what is known here of a holder.
  ExtentList List(const ExtentQuery& query,
                  const std::function<ClientLiveness(const ClientId&)>& liveness_of) const;

  uint64_t extents() const { return extents_.size(); }
  uint64_t bytes() const { return chunks_ * chunk_bytes_; }

 private:
  struct Extent {
    uint64_t id = 0;
    ClientId holder;
    uint32_t chunks = 0;
    uint32_t cleared = 0;  // chunks of it; less than `chunks`: it was not handed out yet
  };
  using Extents = absl::btree_map<uint32_t, Extent>;  // by its first chunk

  // What the holder was promised, and did not get yet.
  Extents::iterator FindPromise(const ClientId& holder);
  Extents::const_iterator Find(uint64_t id) const;
  void GiveBack(Extents::const_iterator extent);
  // The next chunks of a promise; all: it is handed out.
  ExtentGrant Prepare(Extents::iterator extent);
  ExtentGrant AskAgain(int64_t in_ns) const;
  absl::Status Exhausted(uint64_t bytes) const;

  const Region* const region_;
  NodeLedger* const nodes_;
  const Clock* const clock_;
  const TimeConstants times_;
  const uint64_t life_, chunk_bytes_;
  Extents extents_;
  uint64_t chunks_ = 0, next_id_ = 1;
};

}  // namespace pando::memory
