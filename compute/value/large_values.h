// Values of any length up to 64 KiB: operations of users, made of operations on slots, which hold
// short values themselves, and references to the cells of longer ones (value_cell.h). The slots are
// in the leaves, or, of an owned tree, at the owners of their keys (owned_slots.h), who then do
// invariants 1 and 2.
//
// Thread-safe; inside a coroutine of the context's session; keys and values have been validated.
// Invariants (rules K1 to K8 of common/protocol.md):
//   1. A reference is put into the tree once, by who has written its cell, and no sooner.
//   2. Who takes a reference out of the tree frees its cell, once it is known to be out. Who does
//      not know what became of an operation frees nothing: a sweep does.
//   3. A value is given from a cell that the tree referred to at a moment of the call.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/wire/node_messages.h"
#include "compute/cache/value_places.h"
#include "compute/core/session_context.h"
#include "compute/index/erase_range.h"
#include "compute/index/holder_states.h"
#include "compute/index/key_range.h"
#include "compute/index/leaf_reader.h"
#include "compute/index/operations.h"
#include "compute/index/tree_context.h"
#include "compute/index/write_operation.h"
#include "compute/value/cell_store.h"
#include "compute/value/owned_slots.h"
#include "pando/check.h"

namespace pando {

class LargeValues {
 public:
  // Of a tree whose shape has cells. `owned`: nullptr of a shared tree. Both outlive this.
  LargeValues(TreeContext* tree, OwnedSlots* owned)
      : tree_(*tree), owned_(owned), places_(tree->environment.places), cells_(tree) {}

  // As in compute/index/operations.h and its neighbours, with values of users.
  absl::Status Get(OperationContext& context, std::string_view key, std::string* value);
  absl::Status Write(OperationContext& context, const WriteOperation& operation,
                     std::string* answer);
  // The cells of the writes to one leaf are written together, and then the leaf.
  size_t WriteRun(OperationContext& context, absl::Span<const RunWrite> writes,
                  std::vector<MissingSeparator>* later);
  absl::Status EraseRange(OperationContext& context, const KeyRange& range, NoteErased note,
                          ErasedKeys* keys);
  absl::Status BulkLoad(OperationContext& context, NextEntry next);
  SlotReader NewSlotReader() { return SlotReader(&tree_, owned_); }

  // Entries as a leaf has them become a user's. Those that were erased meanwhile are not `there`.
  absl::Status Resolve(OperationContext& context, absl::Span<LeafEntry> entries,
                       std::vector<bool>* there);

  // cell_sweep.cpp (rule K4): what the dead left of this tree's cells. As SweepTree(). All cells
  // are looked at if `thorough`; else a part, where a memory server asks this client to.
  absl::Status Sweep(OperationContext& context, bool thorough, SweepResult* result);
  // Reads all values of the tree, and adds to the report what is wrong with them.
  absl::Status Check(OperationContext& context, const CheckOptions& options, CheckReport* report);

 private:
  // What the slot has of a value of this key: itself, or the reference to a new cell.
  struct Stored {
    std::string bytes;
    std::optional<CellReference> cell;
  };

  // The slot, wherever it is.
  absl::Status GetSlot(OperationContext& context, std::string_view key, std::string* stored) {
    return owned_ != nullptr ? owned_->Get(context, key, stored)
                             : GetKey(context, tree_, key, stored);
  }
  absl::Status WriteSlot(OperationContext& context, const WriteOperation& of_slot,
                         std::string* answer) {
    return owned_ != nullptr ? owned_->Write(context, of_slot, answer)
                             : WriteKey(context, tree_, of_slot, answer);
  }
  bool NeedsCell(const WriteOperation& operation) const {
    return operation.kind != WriteKind::kErase &&
           operation.value.size() > tree_.entry.shape.inline_value_bytes_max;
  }
  uint64_t HashOf(std::string_view key) const { return ValuePlaces::HashOf(tree_.id(), key); }
  // How many at the head go to one leaf, and do not depend on what is there.
  size_t RunLength(OperationContext& context, absl::Span<const RunWrite> writes) const;
  absl::Status Store(OperationContext& context, std::string_view key, std::string_view value,
                     Stored* stored);
  // The value of the key, and what its slot has of it. Looks where this client has last met it, and
  // remembers where it is.
  absl::Status Look(OperationContext& context, std::string_view key, std::string* stored,
                    std::string* value);
  // READs the slot, and the cell that it refers to. False: that holds something else by now, or was
  // READ too slowly (`*too_slow`).
  absl::StatusOr<bool> LookOnce(OperationContext& context, std::string_view key,
                                const std::optional<CellReference>& place, std::string* stored,
                                std::string* value, bool* too_slow);
  // From now on the key is looked for there; nothing: it has no cell.
  void Remember(std::string_view key, const std::optional<CellReference>& cell);
  // What to do about cells when an operation has ended so, unless the key's owner sees to it.
  // `previous`: what the slot had before, where it took effect.
  void Settle(OperationContext& context, std::string_view key, const absl::Status& result,
              const std::optional<CellReference>& linked, std::string_view previous);
  // The cell of what the slot had, which it has not any more.
  void FreeReplaced(OperationContext& context, std::string_view key, std::string_view previous);
  // Of cell_sweep.cpp. Each with those before: of the dead, settled, out to the living.
  enum class CellsListed : uint8_t { kOrphans = 0, kSettled = 1, kAll = 2 };
  struct CellPlace {
    uint16_t lines = 0;
    uint64_t offset = 0;
    bool at_end = false;
  };
  // About `max` of them from the place on, which moves.
  absl::StatusOr<std::vector<CellUse>> ListCells(OperationContext& context, ServerId server,
                                                 CellsListed which, size_t max, CellPlace* place);
  absl::Status SweepAll(OperationContext& context, ServerId server, HolderStates* holders,
                        SweepResult* result);
  // A part: an operation may wait for it. The next one goes on there.
  absl::Status SweepSome(OperationContext& context, ServerId server, HolderStates* holders,
                         SweepResult* result);
  // Frees, settles or leaves each, as far as the time goes; a key's owner is asked for `each_ns`
  // (kNeverNs: as long as there is time).
  struct Decided {
    size_t looked_at = 0;   // of the cells
    bool complete = true;   // none of these has to be looked at again
    absl::Status not_said;  // why it is not known of one of them whether it is somebody's
  };
  absl::StatusOr<Decided> Decide(OperationContext& context, ServerId server,
                                 const std::vector<CellUse>& cells, HolderStates* holders,
                                 int64_t each_ns, SweepResult* result);
  // Whether the tree refers to the cell in that life. `*gone`: it has no key, or another life.
  absl::StatusOr<bool> IsReferredTo(OperationContext& context, ServerId server, const CellUse& cell,
                                    bool* gone);
  // Drops the settled ones that the tree refers to.
  absl::Status LeaveOutReferredTo(OperationContext& context, ServerId server,
                                  std::vector<CellUse>* cells);
  absl::Status Done(OperationContext& context, ServerId server, uint64_t due);
  absl::Status WriteBlind(OperationContext& context, const WriteOperation& operation);
  absl::Status Erase(OperationContext& context, std::string_view key);
  // Ascending; counts and lists those that were erased. The first error.
  absl::Status EraseKeys(OperationContext& context, const std::vector<std::string>& erased_keys,
                         uint64_t* erased, ErasedKeys* keys);
  absl::Status WriteIf(OperationContext& context, const WriteOperation& operation,
                       std::string* answer);
  absl::Status Upsert(OperationContext& context, const WriteOperation& operation,
                      std::string* answer);
  // Puts `value` in place of what the slot has; nothing: where the key is not there. False:
  // somebody was quicker.
  absl::StatusOr<bool> Exchange(OperationContext& context, std::string_view key,
                                const std::optional<std::string>& present, std::string_view value);

  // How far this client has come with what a memory server has asked it to go through. Where more
  // has become due meanwhile it goes on from there all the same, and once more afterwards: so it
  // comes to every cell, however often that happens.
  struct Pass {
    uint64_t due = 0;
    CellPlace place;
    bool complete = true;  // all cells before the place, since that became due
  };

  TreeContext& tree_;
  OwnedSlots* const owned_;  // nullptr: the slots are in the leaves
  ValuePlaces& places_;      // of all trees; not used for an owned one
  CellStore cells_;
  std::mutex passes_mutex_;
  std::map<ServerId, Pass> passes_;
};

// A LeafReader whose entries have values of users.
class LargeReader {
 public:
  using Take = LeafReader::Take;

  LargeReader(TreeContext* tree, LargeValues* values)
      : values_(*values), tree_(*tree), slots_(values->NewSlotReader()) {}

  void Start(KeyCut at, KeyCut end, bool down) {
    at_ = std::move(at);
    end_ = std::move(end);
    down_ = down;
  }
  bool done() const { return down_ ? at_ <= end_ : at_ >= end_; }
  const KeyCut& at() const { return at_; }
  absl::Status Read(OperationContext& context, size_t leaves_max, Take take);

 private:
  LargeValues& values_;
  TreeContext& tree_;
  SlotReader slots_;
  KeyCut at_, end_;
  bool down_ = false;
  std::vector<LeafEntry> entries_;
  std::vector<bool> there_;
};

}  // namespace pando
