// Which clients use which trees on this memory server, and which trees were dropped.
//
// Servers other than the catalog's learn of a tree when its first client attaches. Not thread-safe:
// one control thread. Invariants:
//   1. A dropped tree gets no new client; it is remembered for ever (as ranges of ids: few trees
//      live at a time).
//   2. A tree that may have nodes on an earlier life of the server is refused: what it had here is
//      lost, and fresh memory would look like its nodes. Which lives those are the catalog knows
//      (rule R7), and clients say it; a tree that has nothing here is welcome, however old it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "memory/client_id.h"
#include "memory/id_ranges.h"

namespace pando::memory {

class TreeTable {
 public:
  static constexpr size_t kTreesInUseMax = 1024;
  static constexpr size_t kDroppedRangesMax = 64 * 1024;

  // `life`: this life of the server.
  explicit TreeTable(uint64_t life) : life_(life) {}

  // The incarnation of a client that was introduced here is an id that no tree has (invariant 1:
  // the ranges between living trees close). All come from one sequence: what lies far above the
  // highest is no tree's id.
  void NoteIncarnation(uint32_t incarnation);

  // `life` is that on which the tree may have nodes, 0: none. Idempotent. NotFound: dropped;
  // DataLoss: it had nodes on an earlier life; ResourceExhausted: bound; InvalidArgument: no
  // catalog has given that id out.
  absl::Status Attach(const ClientId& client, uint32_t tree_id, uint64_t life);
  // OK if the client uses the tree; if it does, and the tree may grow. FailedPrecondition: not
  // attached, or dropped.
  absl::Status CheckUses(const ClientId& client, uint32_t tree_id) const;
  absl::Status CheckMayGrow(const ClientId& client, uint32_t tree_id) const;
  // Not attached: nothing happens. True: the tree is dropped and this was its last client.
  bool Detach(const ClientId& client, uint32_t tree_id);
  // True: no client uses it. False: it goes when the last client detaches. Repeating it is
  // harmless.
  absl::StatusOr<bool> Drop(uint32_t tree_id);

  std::vector<uint32_t> TreesOf(const ClientId& client) const;  // ascending
  size_t in_use() const { return uses_.size(); }
  // Of all that was attached or introduced here; 0: nothing.
  uint32_t highest_id() const { return highest_id_; }

 private:
  using Clients = absl::flat_hash_set<ClientId>;
  const uint64_t life_;
  uint32_t highest_id_ = 0, highest_incarnation_ = 0;
  absl::btree_map<uint32_t, Clients> uses_;  // none is empty
  IdRanges dropped_;                         // and incarnations
};

}  // namespace pando::memory
