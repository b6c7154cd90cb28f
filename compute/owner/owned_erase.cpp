// Ranges of an owned tree that are erased: each owner reads its keys leaves at a time, and erases
// them by messages.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "compute/index/erase_range.h"
#include "compute/owner/owned_reader.h"
#include "compute/owner/owned_tree.h"

namespace pando {
namespace {

// Leaves that are read at once.
constexpr size_t kEraseLeaves = 16;
// Of a call's time; with less than that left another member is asked no more.
constexpr int64_t kShareOfOthers = 8;

}  // namespace

void OwnedTree::NoteReplaced(const OwnRange& range, const Partition::View& view,
                             Replaced* replaced) {
  switch (view.state) {
    case RecordState::kClean:
    case RecordState::kDirty:
      replaced->cell = CellOfStored(view.value);
      [[fallthrough]];
    case RecordState::kTombstone:  // whoever has erased it frees what it had
      replaced->may_be_another = false;
      return;
    case RecordState::kLoading:
    case RecordState::kAbsent:
      replaced->may_be_another =
          &range != replaced->range || range.partition.MayHaveForgotten(replaced->read);
      return;
  }
}

std::optional<absl::Status> OwnedTree::EraseHere(OperationContext& context, const KeyRange& range,
                                                 ErasedPiece* piece) {
  OwnedReader reader(this);
  reader.Start(range.low, range.high, /*down=*/false);
  piece->keys.clear();
  Replaced before;
  if (cells_.has_value()) {
    before.range = FindOwn(range.low.FirstAbove());
    if (before.range == nullptr) return std::nullopt;
    std::lock_guard lock(before.range->partition.mutex());
    before.read = before.range->partition.now();
  }
  std::vector<Replaced> replaced;
  const auto take = [&](LeafEntry& entry) {
    piece->keys.push_back(std::move(entry.key));
    // Where no record says better when it is erased: somebody may have replaced that by then, and
    // has freed it then.
    if (cells_.has_value()) {
      replaced.push_back(before);
      replaced.back().cell = CellOfStored(entry.value);
    }
    return true;
  };
  std::optional<absl::Status> read = reader.ReadHere(context, kEraseLeaves, take);
  if (!read.has_value() || !read->ok()) return read;
  piece->reached = reader.at();
  // The rest of the time is for what was appended to become durable, and for the answer.
  const int64_t now_ns = context.session.NowNs();
  OperationContext appending(context, now_ns + (context.deadline_ns() - now_ns) / 4 * 3);
  size_t appended = 0;
  Lsn last = kNoLsn;
  std::optional<absl::StatusOr<Lsn>> lsn;
  for (; appended < piece->keys.size(); ++appended) {
    // Somebody else may have erased it since, so that it is not known who has.
    lsn = AppendBlind(appending, piece->keys[appended], std::nullopt,
                      cells_.has_value() ? &replaced[appended] : nullptr);
    if (!lsn.has_value() || !lsn->ok()) break;
    last = **lsn;
  }
  context.cost += appending.cost;
  if (appended < piece->keys.size()) {
    // What is wrong, or whose the next key is, the next call finds out.
    if (appended == 0 && !lsn.has_value()) return std::nullopt;
    if (appended == 0) return lsn->status();
    piece->reached = {piece->keys[appended], /*after=*/false};
    piece->keys.resize(appended);
  }
  // With the last message all of them are durable.
  const absl::Status status = last == kNoLsn ? absl::OkStatus() : ConcludeWrite(context, last);
  if (!cells_.has_value()) return status;
  if (!status.ok()) cells_->NoteUncertain();
  for (size_t i = 0; i < appended && status.ok(); ++i) {
    // What a flush and an eviction have hidden since, a sweep finds.
    if (replaced[i].may_be_another) cells_->NoteOneIsOut();
    if (replaced[i].cell.has_value()) FreeCell(context, piece->keys[i], *replaced[i].cell);
  }
  return status;
}

absl::Status OwnedTree::EraseNext(OperationContext& context, KeyRange* range, uint64_t* erased,
                                  ErasedKeys* keys) {
  ErasedPiece piece;
  bool is_here = false;
  const auto here = [&] {
    auto done = EraseHere(context, *range, &piece);
    is_here = done.has_value();
    return done;
  };
  const PeerRequest request = {.operation = PeerRequest::Operation::kEraseRange,
                               .tree_id = id(),
                               .at = {range->low.key, range->low.after},
                               .end = {range->high.key, range->high.after}};
  PeerAnswer answer;
  PANDO_RETURN_IF_ERROR(Route(context, range->low.FirstAbove(), here, request, &answer));
  if (is_here) {
    *erased += piece.keys.size();
    if (keys != nullptr) {
      std::move(piece.keys.begin(), piece.keys.end(), std::back_inserter(keys->perhaps));
    }
  } else {
    *erased += answer.erased;
    piece.reached = answer.more ? KeyCut{answer.reached_key, answer.reached_after} : range->high;
    if (keys != nullptr) keys->elsewhere.push_back({range->low, piece.reached});
  }
  range->low = std::move(piece.reached);
  return absl::OkStatus();
}

absl::Status OwnedTree::EraseRange(OperationContext& context, const KeyRange& range,
                                   NoteErased note, ErasedKeys* keys) {
  KeyRange left = range;
  uint64_t erased = 0;
  absl::Status status;
  // In less, another member might not answer in time, and nobody would know how far it has come.
  const int64_t least_ns = (context.deadline_ns() - context.session.NowNs()) / kShareOfOthers;
  while (status.ok() && left.low < left.high) {
    const bool is_own = FindOwn(left.low.FirstAbove()) != nullptr;
    const int64_t left_ns = context.deadline_ns() - context.session.NowNs();
    const bool is_late = left_ns < (is_own ? 1 : least_ns);
    status = is_late ? context.DeadlineError("erasing a range")
                     : EraseNext(context, &left, &erased, keys);
    // A piece has less time than the call: nothing has come of it.
    const bool goes_on = !is_late && absl::IsDeadlineExceeded(status) && !context.expired();
    const absl::Status told = note(erased, left.low);
    if (goes_on || status.ok()) status = told;
  }
  return status;
}

}  // namespace pando
