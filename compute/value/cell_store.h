// Cells of one tree: taken, written, read, given back (rules K1 to K3). What is in slots, and who
// may free what, is large_values.h's to know.
//
// Thread-safe; inside a coroutine of the context's session. Invariants:
//   1. A cell is written once after it was taken, whole, and awaited, before its reference is
//      returned.
//   2. A cell to which a WRITE may still be on its way is nobody's until this client has closed the
//      tree and ended (rule R6).
//   3. What Read() gives was written for this key, in the life that the reference names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/wire/value_cell.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"
#include "compute/value/cell_runs.h"

namespace pando {

class CellStore {
 public:
  explicit CellStore(TreeContext* tree) : tree_(*tree) {}

  // A new cell with the value, of at most kLargeValueBytesMax bytes. ResourceExhausted: memory
  // servers are full.
  absl::StatusOr<CellReference> Write(OperationContext& context, std::string_view key,
                                      std::string_view value);
  // Many at once, posted together. An error: none is anybody's.
  struct NewValue {
    std::string_view key, value;
    CellReference reference;  // the result
  };
  absl::Status WriteAll(OperationContext& context, absl::Span<NewValue> values);

  // Of the variant without rule K1: what Write() has left out.
  absl::Status WriteLate(OperationContext& context, std::string_view key, std::string_view value,
                         const CellReference& reference);

  // False: the cell is not what the reference means, or not any more. Aborted: the READ took too
  // long to be believed.
  absl::StatusOr<bool> Read(OperationContext& context, std::string_view key,
                            const CellReference& reference, std::string* value);
  // Many at once. `found` false: as Read(). An error: those that are not found may be.
  struct WantedValue {
    std::string_view key;
    CellReference reference;
    std::string* value = nullptr;
    bool found = false;
  };
  absl::Status ReadAll(OperationContext& context, absl::Span<WantedValue> wanted);
  // Rule K5: what the slot of the key has, as GetKey(), READ together with the cell where its value
  // was last. True: the slot refers to that cell, and that is the value. False, also where the cell
  // could not be READ: `stored` is as good, and the value has yet to be READ.
  absl::StatusOr<bool> ReadWithSlot(OperationContext& context, std::string_view key,
                                    const CellReference& place, std::string* stored,
                                    std::string* value);
  // The key that the cell of that life was written for; empty: it is another one by now.
  absl::StatusOr<std::string> KeyOf(OperationContext& context, const Reference& cell,
                                    uint32_t lines);

  // Its reference was put into the tree.
  void NoteLinked(std::string_view key, const CellReference& reference);
  // Its reference was taken out of the tree, or never got there: no operation of this client will
  // put it there.
  void Free(std::string_view key, const CellReference& reference);
  // Many of these, whose servers are told now, as far as the time goes.
  void FreeAll(OperationContext& context, const CellRuns& cells);
  // It may have got there, and nobody knows.
  void NoteUncertain();
  // One was taken out, and nobody knows which.
  void NoteOneIsOut();
  // Tells servers of cells like that one, if there is much to tell. May wait.
  void FlushIfMany(OperationContext& context, std::string_view key, const CellReference& reference);

 private:
  NodePoolId PoolOf(size_t key_bytes, size_t value_bytes) const {
    return {tree_.id(), static_cast<uint16_t>(CellLines(key_bytes, value_bytes))};
  }
  absl::StatusOr<SpareNode> Take(OperationContext& context, NodePoolId pool);
  absl::Status WriteBatch(OperationContext& context, absl::Span<NewValue> values);
  absl::Status ReadBatch(OperationContext& context, absl::Span<WantedValue> wanted);

  TreeContext& tree_;
};

}  // namespace pando
