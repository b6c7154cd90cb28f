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
//   5. Spares (rule W7): pieces that are kept for logs to come, taken by no nodes. There is one, as
//      long as the longest extent, while there are extents; two, as long as the last one that there
//      was, once there are none. An extent is granted only if that holds afterwards, or if there is
//      an extent whose holder has ended: the client that takes over frees it, and it is then the
//      spare. What a spare had in it rests, too.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/functional/function_ref.h"
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

  using IsOver = absl::FunctionRef<bool(const ClientId&)>;

  // Chunks come from the ledger's pool. `life`: of this memory server. `spares`: kept while there
  // are extents, and one more once there are none; 0: none at all.
  ExtentTable(const Region* region, NodeLedger* nodes, const Clock* clock,
              const TimeConstants& times, uint64_t life, uint32_t spares = 1);

  // At least `bytes`. A grant without memory says when to ask again, for the same number of bytes:
  // what the client was promised before is zeroed step by step, and given up where it asks for
  // another number. ResourceExhausted: says how much would fit. `is_over`: whether a holder has
  // ended here.
  absl::StatusOr<ExtentGrant> Allocate(const ClientId& holder, uint64_t bytes, IsOver is_over);
  // nullptr: there is no such extent (any more).
  const ClientId* HolderOf(uint64_t id) const;
  // Of an extent that there is.
  void Free(uint64_t id);
  // `liveness_of`: what is known here of a holder.
  ExtentList List(const ExtentQuery& query,
                  const std::function<ClientLiveness(const ClientId&)>& liveness_of) const;

  uint64_t extents() const { return extents_.size(); }
  uint64_t bytes() const { return chunks_ * chunk_bytes_; }
  uint64_t spare_bytes() const;

 private:
  struct Extent {
    uint64_t id = 0;
    ClientId holder;
    uint32_t chunks = 0;
    uint32_t asked = 0;    // a spare is given as it is
    uint32_t cleared = 0;  // chunks of it; less than `chunks`: it was not handed out yet
  };
  using Extents = absl::btree_map<uint32_t, Extent>;  // by its first chunk
  struct Spare {
    uint32_t first = 0, chunks = 0;
    int64_t rested_ns = 0;
  };

  // What the holder was promised, and did not get yet.
  Extents::iterator FindPromise(const ClientId& holder);
  Extents::const_iterator Find(uint64_t id) const;
  void GiveBack(Extents::const_iterator extent);
  ExtentGrant Add(const ClientId& holder, uint32_t first, uint32_t chunks, uint32_t asked);
  // Chunks of free memory, and of a spare as well where another one is needed then. Nothing: they
  // are not there.
  std::optional<ExtentGrant> TakeFree(const ClientId& holder, uint32_t chunks);
  // Nothing: there is no spare as long as that which may go.
  std::optional<ExtentGrant> TakeSpare(const ClientId& holder, uint32_t chunks);
  uint32_t SparesWanted(size_t extents) const {
    return spares_max_ + (spares_max_ > 0 && extents == 0 ? 1 : 0);
  }
  uint32_t LongestExtent() const;
  // There is a spare as long as the longest extent, and as that.
  bool HasSpareFor(uint32_t chunks) const;
  // Memory that has come back is a spare where one is missing, or too short; what is not needed
  // goes back.
  void MendSpares();
  void GiveBack(uint32_t first, uint32_t chunks);
  // The next chunks of a promise; all: it is handed out.
  ExtentGrant Prepare(Extents::iterator extent);
  ExtentGrant AskAgain(int64_t in_ns) const;
  absl::Status Exhausted(uint64_t bytes) const;

  const Region* const region_;
  NodeLedger* const nodes_;
  const Clock* const clock_;
  const TimeConstants times_;
  const uint64_t life_, chunk_bytes_;
  const uint32_t spares_max_;
  Extents extents_;
  std::vector<Spare> spares_;  // by length
  uint64_t chunks_ = 0, next_id_ = 1;
};

}  // namespace pando::memory
