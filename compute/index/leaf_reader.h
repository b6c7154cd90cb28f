// Leaves in the order of their keys, upwards or downwards, several READ at once (rules R2, R9).
//
// Not thread-safe. Invariants:
//   1. The place is a cut between keys. Whatever is taken lies between the place before and the
//      place afterwards, all of it, as one accepted image showed it: so no key is taken twice, and
//      none that stays is left out, however leaves are split and merged meanwhile.
//   2. Separators and cached parents say only what may be worth reading. The fences of the image
//      say how far it reaches.
//   3. A Read() that fails has taken nothing and moved nowhere; one that succeeds has moved.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/wire/leaf.h"
#include "compute/core/session_context.h"
#include "compute/index/key_range.h"
#include "compute/index/read_node.h"
#include "compute/index/tree_context.h"

namespace pando {

class LeafReader {
 public:
  // Takes an entry, and may keep its strings (swap them). False: no more are wanted, the reading is
  // over.
  using Take = absl::FunctionRef<bool(LeafEntry&)>;

  explicit LeafReader(TreeContext* tree) : tree_(*tree) {}

  // From `at` on to `end`: upwards if it is above, else downwards.
  void Start(KeyCut at, KeyCut end, bool down) {
    at_ = std::move(at);
    end_ = std::move(end);
    down_ = down;
  }
  bool done() const { return down_ ? at_ <= end_ : at_ >= end_; }
  const KeyCut& at() const { return at_; }

  // Not when done. READs up to `leaves_max` leaves from the place on, posted together, gives their
  // entries to `take` in order, and moves on. Fewer where caches were out of date: at least one.
  absl::Status Read(OperationContext& context, size_t leaves_max, Take take);

 private:
  // The greatest or least string that the next leaf has to cover.
  std::string NextKey() const { return KeyToCover(at_); }
  std::string KeyToCover(const KeyCut& at) const;
  // References to the leaves from the place on, by the cached parents.
  absl::Status Gather(OperationContext& context, size_t leaves_max);
  // Adds children of the parent of the leaf that covers `key`. False: the next leaf has another
  // parent, and has to cover `key` as it is now.
  absl::Status GatherSiblings(OperationContext& context, size_t leaves_max, std::string* key,
                              bool* more);
  absl::Status Add(OperationContext& context, const Reference& node);
  // Takes what the image holds from the place on. False: it is not the leaf there (any more), or
  // torn.
  bool TryConsume(const NodeRead& leaf, Take take);
  bool Consume(const std::byte* image, Take take);
  // The slow way: finds the leaf by descending and READs it until it is accepted.
  absl::Status ReadOne(OperationContext& context, Take take);

  TreeContext& tree_;
  KeyCut at_, end_;
  bool down_ = false;
  bool enough_ = false;
  std::vector<NodeRead> leaves_;
  // Of the leaf at hand; the vectors and strings are used again.
  std::vector<LeafEntry> entries_;
  std::vector<LeafEntry*> wanted_;
};

}  // namespace pando
