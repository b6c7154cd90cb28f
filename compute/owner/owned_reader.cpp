#include "compute/owner/owned_reader.h"

#include <algorithm>
#include <iterator>
#include <mutex>

#include "common/base/rule.h"
#include "common/base/status.h"

namespace pando {

Lsn OwnedReader::CopyRecords(const Partition& partition, size_t records_max, KeyCut* border) {
  copied_.clear();
  Lsn highest = kNoLsn;
  const KeyCut& low = down_ ? *border : at_;
  const KeyCut& high = down_ ? at_ : *border;
  const auto see = [&](const Partition::Seen& seen) {
    if (copied_.size() == records_max) {
      *border = {copied_.back().key, /*after=*/!down_};
      return false;
    }
    copied_.push_back({std::string(seen.key), std::string(seen.value), seen.erased});
    highest = std::max(highest, seen.lsn);
    return true;
  };
  partition.Scan(low.FirstAbove(), high.FirstAbove(), down_, see);
  return highest;
}

void OwnedReader::Merge() {
  merged_.clear();
  auto row = rows_.begin();
  const auto take_rows_before = [&](std::string_view key) {
    for (; row != rows_.end() && IsBefore(row->key, key); ++row) {
      merged_.push_back(std::move(*row));
    }
  };
  for (Copied& record : copied_) {
    take_rows_before(record.key);
    if (row != rows_.end() && row->key == record.key) ++row;
    if (!record.erased) merged_.push_back({std::move(record.key), std::move(record.value)});
  }
  std::move(row, rows_.end(), std::back_inserter(merged_));
}

std::string OwnedReader::NextKey() const {
  if (!down_) return at_.FirstAbove();
  // Not what comes behind the key, where another range may begin.
  if (at_.after) return at_.key;
  return KeyBefore(at_.key, tree_.leaves().layout.key_bytes_max());
}

KeyCut OwnedReader::BorderWithin(std::string_view low, std::string_view high) const {
  if (down_) return std::max(end_, KeyCut{std::string(low), false});
  return high.empty() ? end_ : std::min(end_, KeyCut{std::string(high), false});
}

absl::StatusOr<KeyCut> OwnedReader::ReadRows(OperationContext& context, size_t leaves_max,
                                             const KeyCut& border) {
  rows_.clear();
  LeafReader leaves(&tree_.leaves());
  leaves.Start(at_, border, down_);
  PANDO_RETURN_IF_ERROR(leaves.Read(context, leaves_max, [&](LeafEntry& entry) {
    rows_.push_back(std::move(entry));
    return true;
  }));
  return leaves.at();
}

KeyCut OwnedReader::Nearer(const KeyCut& a, const KeyCut& b) const {
  return down_ ? std::max(a, b) : std::min(a, b);
}

std::optional<absl::Status> OwnedReader::ReadLent(OperationContext& context, size_t leaves_max,
                                                  Take take) {
  const std::string key = NextKey();
  if (tree_.FindOwn(key) != nullptr) return std::nullopt;
  ReadLease* const lease = tree_.Borrow(context, key);
  if (lease == nullptr) return std::nullopt;
  const KeyCut border = BorderWithin(lease->low, lease->high);
  const int64_t began_ns = context.session.NowNs();
  const absl::StatusOr<KeyCut> read = ReadRows(context, leaves_max, border);
  if (!read.ok()) {
    tree_.NoteUnreadable(context, began_ns, lease);
    return std::nullopt;
  }
  context.session.counters().owned_lent.Add();
  at_ = Nearer(*read, border);
  for (LeafEntry& entry : rows_) {
    if (!take(entry)) break;
  }
  return absl::OkStatus();
}

std::optional<absl::Status> OwnedReader::ReadHere(OperationContext& context, size_t leaves_max,
                                                  Take take) {
  const std::string key = NextKey();
  const size_t records_max = std::max<size_t>(1, leaves_max) * tree_.leaves().layout.slot_count();
  while (true) {
    OwnRange* const range = tree_.FindOwn(key);
    if (range == nullptr) return std::nullopt;
    KeyCut border = BorderWithin(range->low, range->high), read_to;
    Lsn highest;
    const auto read_leaves = [&] {
      absl::StatusOr<KeyCut> read = ReadRows(context, leaves_max, border);
      if (read.ok()) read_to = *std::move(read);
      return read.status();
    };
    if (!RuleHolds(Rule::kT8)) PANDO_RETURN_IF_ERROR(read_leaves());
    {
      OwnedTree::Lock lock(range->partition.mutex());
      PANDO_RETURN_IF_ERROR(tree_.AwaitServing(context, range, &lock));
      if (range->state != OwnRange::State::kServing) continue;
      range->meter.Note(key);
      highest = CopyRecords(range->partition, records_max, &border);
    }
    if (RuleHolds(Rule::kT8)) PANDO_RETURN_IF_ERROR(read_leaves());
    // The leaf may reach beyond what was asked for.
    const KeyCut reached = Nearer(read_to, border);
    std::erase_if(copied_, [&](const Copied& record) {
      return down_ ? reached.IsAbove(record.key) : !reached.IsAbove(record.key);
    });
    Merge();
    {
      const std::lock_guard lock(range->partition.mutex());
      if (range->state != OwnRange::State::kServing) continue;
    }
    PANDO_RETURN_IF_ERROR(tree_.ConcludeRead(context, highest));
    at_ = reached;
    for (LeafEntry& entry : merged_) {
      if (!take(entry)) break;
    }
    return absl::OkStatus();
  }
}

absl::Status OwnedReader::Read(OperationContext& context, size_t leaves_max, Take take) {
  if (std::optional<absl::Status> done = ReadLent(context, leaves_max, take); done.has_value())
    return *std::move(done);
  bool is_here = false;
  const auto here = [&] {
    auto done = ReadHere(context, leaves_max, take);
    is_here = done.has_value();
    return done;
  };
  const size_t rows_max = std::max<size_t>(1, leaves_max) * tree_.leaves().layout.slot_count();
  const PeerRequest request = {
      .operation = PeerRequest::Operation::kScan,
      .tree_id = tree_.id(),
      .at = {at_.key, at_.after},
      .end = {end_.key, end_.after},
      .down = down_,
      .rows_max = static_cast<uint16_t>(std::min<size_t>(rows_max, UINT16_MAX))};
  PeerAnswer answer;
  PANDO_RETURN_IF_ERROR(tree_.Route(context, NextKey(), here, request, &answer));
  if (is_here) return absl::OkStatus();
  at_ = answer.more ? KeyCut{answer.reached_key, answer.reached_after} : end_;
  PeerRowReader rows(answer.rows);
  std::string_view key, value;
  LeafEntry entry;
  while (rows.Next(&key, &value)) {
    entry.key.assign(key);
    entry.value.assign(value);
    if (!take(entry)) break;
  }
  return absl::OkStatus();
}

}  // namespace pando
