// An owned tree in the order of its keys, upwards or downwards (rule T8): as LeafReader reads a
// shared one, with the owner's records above the leaves.
//
// Not thread-safe. Invariants, beside those of LeafReader:
//   1. The records of an interval are copied before any of its leaves is READ, so that what has
//      come to its leaf meanwhile is seen in one of the two; and no leaf is looked at beyond what
//      was copied.
//   2. A record goes before what its leaf says; a tombstone leaves the key out.
//   3. What was taken is given to the caller when all of it is durable and, after that, the range
//      was still this member's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "compute/core/session_context.h"
#include "compute/index/key_range.h"
#include "compute/index/leaf_reader.h"
#include "compute/owner/owned_tree.h"

namespace pando {

class OwnedReader {
 public:
  using Take = LeafReader::Take;

  explicit OwnedReader(OwnedTree* tree) : tree_(*tree) {}

  void Start(KeyCut at, KeyCut end, bool down) {
    at_ = std::move(at);
    end_ = std::move(end);
    down_ = down;
  }
  bool done() const { return down_ ? at_ <= end_ : at_ >= end_; }
  const KeyCut& at() const { return at_; }

  // As LeafReader::Read(), wherever the owner of the next keys is.
  absl::Status Read(OperationContext& context, size_t leaves_max, Take take);
  // Where that is this member; nothing: it is not.
  std::optional<absl::Status> ReadHere(OperationContext& context, size_t leaves_max, Take take);

 private:
  struct Copied {
    std::string key, value;
    bool erased = false;
  };

  // From leaves on loan (rule O15); nothing: they are not lent.
  std::optional<absl::Status> ReadLent(OperationContext& context, size_t leaves_max, Take take);
  // Rows of the next leaves, up to the border, to rows_; how far these leaves reach.
  absl::StatusOr<KeyCut> ReadRows(OperationContext& context, size_t leaves_max,
                                  const KeyCut& border);
  // end_, or the border of a range, whichever comes first.
  KeyCut BorderWithin(std::string_view low, std::string_view high) const;
  KeyCut Nearer(const KeyCut& a, const KeyCut& b) const;
  // Of the next keys, one: whose it is.
  std::string NextKey() const;
  // The records from the place on to `*border`, which comes nearer where they are many; the highest
  // of their LSNs.
  Lsn CopyRecords(const Partition& partition, size_t records_max, KeyCut* border);
  bool IsBefore(std::string_view a, std::string_view b) const { return down_ ? b < a : a < b; }
  // The rows of leaves with those of records in place of theirs.
  void Merge();

  OwnedTree& tree_;
  KeyCut at_, end_;
  bool down_ = false;
  // Of one Read(); used again.
  std::vector<Copied> copied_;
  std::vector<LeafEntry> rows_, merged_;
};

}  // namespace pando
