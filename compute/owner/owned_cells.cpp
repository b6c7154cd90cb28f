// Writes of an owned tree with large values, as its slots have them (rules K6, K7): a reference is
// appended by who was granted its cell, and what a write replaces is freed when it is durable.
#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/owner/owned_reader.h"
#include "compute/owner/owned_tree.h"

namespace pando {
namespace {

// Writes of one call that are appended before anybody waits for the first of them.
constexpr size_t kCellRunMax = 64;
// READs of a peer's cell.
constexpr int kLooksMax = 3;

}  // namespace

void OwnedTree::FreeCell(OperationContext& context, std::string_view key,
                         const CellReference& cell) {
  cells_->Free(key, cell);
  cells_->FlushIfMany(context, key, cell);
}

void OwnedTree::FreeUnlinked(OperationContext& context, const WriteOperation& operation) {
  if (!cells_.has_value()) return;
  const std::optional<CellReference> cell = CellOfStored(operation.value);
  if (cell.has_value()) FreeCell(context, operation.key, *cell);
}

absl::Status OwnedTree::ConcludeWithCells(OperationContext& context,
                                          const WriteOperation& operation, const Appended& appended,
                                          absl::Status refusal) {
  if (appended.lsn == kNoLsn) {
    FreeUnlinked(context, operation);
    return refusal;
  }
  if (!RuleHolds(Rule::kK7) && appended.replaced.has_value()) {
    FreeCell(context, operation.key, *appended.replaced);
  }
  absl::Status status = ConcludeWrite(context, appended.lsn);
  if (!status.ok()) {
    // The message may be lost, or not: one of the two cells is the key's, and a sweep finds out
    // which is not.
    cells_->NoteUncertain();
    return status;
  }
  const std::optional<CellReference> linked = CellOfStored(operation.value);
  if (linked.has_value()) cells_->NoteLinked(operation.key, *linked);
  if (appended.replaced.has_value()) FreeCell(context, operation.key, *appended.replaced);
  if (linked.has_value()) cells_->FlushIfMany(context, operation.key, *linked);
  return status;
}

std::optional<absl::Status> OwnedTree::WriteWithCells(OperationContext& context,
                                                      const WriteOperation& operation,
                                                      std::string* answer) {
  Appended appended;
  std::optional<absl::Status> done = WriteKnowing(context, operation, answer, &appended);
  if (!done.has_value()) return done;
  return ConcludeWithCells(context, operation, appended, *std::move(done));
}

size_t OwnedTree::WriteRunWithCells(OperationContext& context, absl::Span<const RunWrite> writes) {
  std::array<Appended, kCellRunMax> appended;
  size_t count = 0;
  while (count < std::min(writes.size(), kCellRunMax)) {
    const RunWrite& write = writes[count];
    std::optional<absl::Status> done =
        WriteKnowing(context, *write.operation, write.answer, &appended[count]);
    if (!done.has_value()) break;
    *write.result = *std::move(done);
    ++count;
  }
  if (count == 0) {
    *writes[0].result = Write(context, *writes[0].operation, writes[0].answer);
    return 1;
  }
  for (size_t i = 0; i < count; ++i) {
    const RunWrite& write = writes[i];
    *write.result =
        ConcludeWithCells(context, *write.operation, appended[i], std::move(*write.result));
  }
  return count;
}

std::optional<absl::Status> OwnedTree::WriteForPeer(OperationContext& context,
                                                    const WriteOperation& operation,
                                                    std::string* answer) {
  if (!cells_.has_value()) return WriteHere(context, operation, answer);
  if (MayErase(operation.kind)) return WriteHere(context, operation, answer);
  const std::optional<StoredValue> parsed = ParseStored(operation.value);
  const uint32_t value_bytes_max = leaves_.entry.shape.value_bytes_max;
  // Upserts are decided by whoever asks, who knows the value.
  if (operation.kind == WriteKind::kUpsert || !parsed.has_value() ||
      (parsed->reference.has_value() && parsed->reference->value_bytes > value_bytes_max)) {
    return absl::InvalidArgumentError("a peer's write is none of a tree with large values");
  }
  if (!parsed->reference.has_value()) return WriteHere(context, operation, answer);
  if (FindOwn(operation.key) == nullptr) return std::nullopt;
  if (!RuleHolds(Rule::kK6)) return WriteHere(context, operation, answer);
  std::string value;
  for (int looks = 1;; ++looks) {
    const absl::StatusOr<bool> found =
        cells_->Read(context, operation.key, *parsed->reference, &value);
    if (found.ok() && *found) break;
    if (context.expired()) return context.DeadlineError("reading the value of a peer's write");
    if (absl::IsAborted(found.status())) continue;  // it was too slow to be believed
    PANDO_RETURN_IF_ERROR(found.status());
    // Its server has just been connected to; or the peer has given up, or was taken for dead, which
    // it may not have heard yet.
    if (looks < kLooksMax) continue;
    return absl::UnavailableError(
        "nothing was written: the key's owner found something else where this compute server had "
        "put the value, as it does if this one was declared dead meanwhile; try again");
  }
  PANDO_ASSIGN_OR_RETURN(const CellReference copy, cells_->Write(context, operation.key, value));
  std::string stored;
  StoreReference(copy, &stored);
  WriteOperation own = operation;
  own.value = stored;
  std::optional<absl::Status> done = WriteHere(context, own, answer);
  if (!done.has_value()) FreeUnlinked(context, own);
  return done;
}

absl::Status OwnedTree::ReadOn(OperationContext& context, KeyCut* at, const KeyCut& end, bool down,
                               size_t leaves_max, LeafReader::Take take) {
  OwnedReader reader(this);
  reader.Start(*at, end, down);
  PANDO_RETURN_IF_ERROR(reader.Read(context, leaves_max, take));
  *at = reader.at();
  return absl::OkStatus();
}

}  // namespace pando
