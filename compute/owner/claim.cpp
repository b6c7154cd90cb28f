#include "compute/owner/claim.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr size_t kAll = SIZE_MAX;

// Behind all keys of a tree's ranges.
KeyCut EndOf(uint32_t tree_id) { return {RangeKey(tree_id, ""), true}; }
// The ranges of all trees.
KeyRange AllRanges() {
  KeyRange all;
  all.low.key = KindPrefix(RangeEntry::kKind);
  all.high = EndOf(UINT32_MAX);
  return all;
}
KeyCut BeginOf(uint32_t tree_id) { return {RangePrefix(tree_id), false}; }

absl::Status NoEntry(uint32_t tree_id) {
  return absl::NotFoundError(absl::StrCat(
      "tree ", tree_id, " has no range that covers the key: it has been dropped; open it anew"));
}

// The entries of one kind of range keys, in order, each with the border before it in its tree.
absl::Status ParseRanges(const std::vector<KeyValue>& rows, std::vector<MappedRange>* ranges) {
  for (const KeyValue& row : rows) {
    PANDO_ASSIGN_OR_RETURN(ClusterKey key, ParseClusterKey(row.key));
    MappedRange range{.tree_id = key.tree_id, .high = std::move(key.high)};
    PANDO_RETURN_IF_ERROR(Parse(row.value, &range.entry));
    if (!ranges->empty() && ranges->back().tree_id == range.tree_id) {
      range.low = ranges->back().high;
    }
    ranges->push_back(std::move(range));
  }
  return absl::OkStatus();
}

// The border before one of a tree; "": there is none.
absl::StatusOr<std::string> ReadBorderBelow(OperationContext& context, MapStore& store,
                                            uint32_t tree_id, const KeyCut& cut) {
  std::vector<KeyValue> rows;
  PANDO_RETURN_IF_ERROR(
      ReadMap(context, store, {BeginOf(tree_id), cut}, /*reverse=*/true, 1, &rows));
  if (rows.empty()) return "";
  PANDO_ASSIGN_OR_RETURN(ClusterKey key, ParseClusterKey(rows[0].key));
  return std::move(key.high);
}

}  // namespace

absl::StatusOr<MappedRange> FindRange(OperationContext& context, MapStore& store, uint32_t tree_id,
                                      std::string_view key) {
  // No key of the tree is longer; what is behind the longest border of its kind is the same range.
  const std::string_view border = key.substr(0, kBorderBytesMax);
  // A border is the first key of the range above it.
  const KeyCut at =
      border.empty() ? BeginOf(tree_id) : KeyCut{RangeKey(tree_id, border), RuleHolds(Rule::kO2)};
  // The lower border first: a split in between makes the range seen too big, not one that does not
  // cover the key.
  PANDO_ASSIGN_OR_RETURN(std::string low, ReadBorderBelow(context, store, tree_id, at));
  std::vector<KeyValue> rows;
  PANDO_RETURN_IF_ERROR(ReadMap(context, store, {at, EndOf(tree_id)}, /*reverse=*/false, 1, &rows));
  if (rows.empty()) return NoEntry(tree_id);
  std::vector<MappedRange> ranges;
  PANDO_RETURN_IF_ERROR(ParseRanges(rows, &ranges));
  ranges[0].low = std::move(low);
  return std::move(ranges[0]);
}

absl::StatusOr<std::vector<MappedRange>> ListRanges(OperationContext& context, MapStore& store,
                                                    uint32_t tree_id) {
  std::vector<KeyValue> rows;
  PANDO_RETURN_IF_ERROR(ReadMap(context, store, {BeginOf(tree_id), EndOf(tree_id)},
                                /*reverse=*/false, kAll, &rows));
  std::vector<MappedRange> ranges;
  PANDO_RETURN_IF_ERROR(ParseRanges(rows, &ranges));
  if (ranges.empty()) return NoEntry(tree_id);
  return ranges;
}

absl::StatusOr<std::vector<MappedRange>> ListRangesOf(OperationContext& context, MapStore& store,
                                                      MemberId owner) {
  std::vector<KeyValue> rows;
  PANDO_RETURN_IF_ERROR(ReadMap(context, store, AllRanges(), /*reverse=*/false, kAll, &rows));
  std::vector<MappedRange> ranges;
  PANDO_RETURN_IF_ERROR(ParseRanges(rows, &ranges));
  std::erase_if(ranges, [&](const MappedRange& range) { return range.entry.owner != owner; });
  return ranges;
}

absl::StatusOr<std::vector<uint32_t>> ListMappedTrees(OperationContext& context, MapStore& store) {
  std::vector<uint32_t> trees;
  KeyRange rest = AllRanges();
  while (true) {
    std::vector<KeyValue> rows;
    PANDO_RETURN_IF_ERROR(ReadMap(context, store, rest, /*reverse=*/false, 1, &rows));
    if (rows.empty()) return trees;
    PANDO_ASSIGN_OR_RETURN(const ClusterKey key, ParseClusterKey(rows[0].key));
    trees.push_back(key.tree_id);
    rest.low = EndOf(key.tree_id);
  }
}

absl::Status OpenRanges(OperationContext& context, MapStore& store, uint32_t tree_id,
                        StampSource& stamps,
                        absl::FunctionRef<absl::StatusOr<bool>(OperationContext&)> is_there) {
  const std::string key = RangeKey(tree_id, "");
  std::vector<KeyValue> rows;
  PANDO_RETURN_IF_ERROR(
      ReadMap(context, store, {{key, false}, {key, true}}, /*reverse=*/false, 1, &rows));
  if (!rows.empty()) return absl::OkStatus();
  const std::string entry = Encode(RangeEntry{.stamp = stamps.Next()});
  // Left undecided it is nobody's entry, which the next one to open the tree finds or inserts, and
  // which goes with the tree.
  MapChange insert = MapChange::Insert(key, entry);
  PANDO_RETURN_IF_ERROR(insert.Settle(context, store));
  if (insert.decision() == MapChange::Decision::kOther) return absl::OkStatus();
  PANDO_ASSIGN_OR_RETURN(const bool there, is_there(context));
  if (there) return absl::OkStatus();
  // Dropped, and its entries erased, maybe before this one came. A client that has claimed it since
  // finds out as well.
  MapChange erase = MapChange::EraseIf(key, entry);
  PANDO_RETURN_IF_ERROR(erase.Settle(context, store));
  return NoEntry(tree_id);
}

absl::StatusOr<size_t> EraseRanges(OperationContext& context, MapStore& store, uint32_t tree_id,
                                   MemberId self) {
  absl::StatusOr<std::vector<MappedRange>> ranges = ListRanges(context, store, tree_id);
  if (absl::IsNotFound(ranges.status())) return 0;
  PANDO_RETURN_IF_ERROR(ranges.status());
  size_t left = 0;
  for (const MappedRange& range : *ranges) {
    const MemberId owner = range.entry.owner;
    if (!owner.nobody() && owner != self) {
      ++left;
      continue;
    }
    // Left undecided it is erased yet, or by the next call.
    RangeChange erase = RangeChange::Erase(range);
    PANDO_RETURN_IF_ERROR(erase.Settle(context, store));
    if (!erase.gone()) ++left;  // claimed just now
  }
  return left;
}

RangeChange RangeChange::ReplaceEntry(Kind kind, const MappedRange& range,
                                      const RangeEntry& desired) {
  return {kind, range, desired,
          MapChange::Replace(RangeKey(range.tree_id, range.high), Encode(range.entry),
                             Encode(desired))};
}

RangeChange RangeChange::Claim(const MappedRange& range, MemberId self, Lsn since, Stamp stamp) {
  PANDO_CHECK(range.entry.owner.nobody()) << "only its owner changes a term (rule O4)";
  PANDO_CHECK(!self.nobody() && since != kNoLsn);
  return ReplaceEntry(Kind::kClaim, range, {.stamp = stamp, .owner = self, .since = since});
}

RangeChange RangeChange::Adopt(const MappedRange& range, MemberId self, Lsn since, Stamp stamp) {
  PANDO_CHECK(!range.entry.owner.nobody() && range.entry.owner != self);
  PANDO_CHECK(!self.nobody() && since != kNoLsn);
  return ReplaceEntry(Kind::kAdopt, range, {.stamp = stamp, .owner = self, .since = since});
}

RangeChange RangeChange::GiveUp(const MappedRange& own, MemberId wished, Stamp stamp) {
  PANDO_CHECK(!own.entry.owner.nobody());
  return ReplaceEntry(Kind::kGiveUp, own, {.stamp = stamp, .wished = wished});
}

RangeChange RangeChange::Renew(const MappedRange& own, Lsn since, Stamp stamp) {
  PANDO_CHECK(!own.entry.owner.nobody() && since != kNoLsn);
  return ReplaceEntry(Kind::kRenew, own,
                      {.stamp = stamp, .owner = own.entry.owner, .since = since});
}

RangeChange RangeChange::Split(const MappedRange& own, std::string_view border, Stamp stamp) {
  PANDO_CHECK(!own.entry.owner.nobody());
  PANDO_CHECK(border > own.low && border.size() <= kBorderBytesMax);
  PANDO_CHECK(own.high.empty() || border < own.high);
  RangeEntry lower = own.entry;
  lower.stamp = stamp;
  RangeChange change(Kind::kSplit, own, lower,
                     MapChange::Insert(RangeKey(own.tree_id, border), Encode(lower)));
  change.lower_ = {own.tree_id, own.low, std::string(border), lower};
  return change;
}

RangeChange RangeChange::Erase(const MappedRange& range) {
  return {Kind::kErase,
          range,
          {},
          MapChange::EraseIf(RangeKey(range.tree_id, range.high), Encode(range.entry))};
}

absl::Status RangeChange::Conclude() {
  RangeEntry now;
  switch (change_.decision()) {
    case MapChange::Decision::kDone:
      if (kind_ == Kind::kSplit) {
        range_.low = lower_.high;
        return absl::OkStatus();
      }
      now = desired_;
      break;
    case MapChange::Decision::kOther:
      // Of a split that was lost it is the entry of another range.
      if (kind_ != Kind::kSplit) PANDO_RETURN_IF_ERROR(Parse(change_.actual(), &now));
      break;
    case MapChange::Decision::kGone:
      break;
  }
  range_.entry = now;
  return absl::OkStatus();
}

absl::Status RangeChange::Settle(OperationContext& context, MapStore& store) {
  if (settled_) return absl::OkStatus();
  PANDO_RETURN_IF_ERROR(change_.Settle(context, store));
  PANDO_RETURN_IF_ERROR(Conclude());
  const bool takes = kind_ == Kind::kClaim || kind_ == Kind::kAdopt;
  if (takes && won() && RuleHolds(Rule::kO4)) {
    absl::StatusOr<std::string> low =
        ReadBorderBelow(context, store, range_.tree_id, {change_.key(), false});
    if (absl::IsFailedPrecondition(low.status())) return low.status();  // cut off
    if (!low.ok()) {
      return OutcomeUnknownError(
          absl::StrCat(DescribeKey(change_.key()),
                       " is claimed, its lower border is not read yet: ", low.status().ToString()));
    }
    range_.low = *std::move(low);
  }
  settled_ = true;
  return absl::OkStatus();
}

bool RangeChange::won() const {
  return kind_ == Kind::kGiveUp || change_.decision() == MapChange::Decision::kDone;
}

bool RangeChange::gone() const {
  const MapChange::Decision decision = change_.decision();
  return decision == MapChange::Decision::kGone ||
         (kind_ == Kind::kErase && decision == MapChange::Decision::kDone);
}

bool RangeChange::uncertain() const {
  return change_.uncertain() || (change_.decided() && !settled_);
}

}  // namespace pando
