// Entries of members: what they are doing, their logs, the recoveries of those that have ended
// (rules O2, O9, D1, D5).
//
//   auto change = ChangeEntry(dead, std::nullopt, RecoveryEntry{stamps.Next(), self});  // insert
//   absl::Status status = change.Settle(context, store);      // map_change.h says what may come
//   if (status.ok() && change.decision() == MapChange::Decision::kDone) ...   // it is our recovery
//
// A member changes its own `m` and `l`, and the client that recovers it erases them; a `d` is
// inserted by a claimant, replaced by itself (handed back), and replaced by another one once it is
// nobody's, or its claimant has ended. Functions that take a store run in a coroutine of the
// context's session; they give what was there at some moment. DataLoss: what is there is no entry.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "compute/core/session_context.h"
#include "compute/owner/cluster_entries.h"
#include "compute/owner/map_change.h"
#include "compute/owner/map_store.h"

namespace pando {

// Of MemberEntry, LogEntry or RecoveryEntry: inserts what was not there before, replaces, or erases
// what is not to be there afterwards. One of them at least is there (CHECKed).
template <typename Entry>
MapChange ChangeEntry(MemberId member, const std::optional<Entry>& before,
                      const std::optional<Entry>& after) {
  std::string key = MemberKey(Entry::kKind, member);
  PANDO_CHECK(before.has_value() || after.has_value());
  if (!before.has_value()) return MapChange::Insert(std::move(key), Encode(*after));
  if (!after.has_value()) return MapChange::EraseIf(std::move(key), Encode(*before));
  return MapChange::Replace(std::move(key), Encode(*before), Encode(*after));
}
template <typename Entry>
MapChange ChangeEntry(MemberId member, std::nullopt_t, const Entry& after) {
  return ChangeEntry<Entry>(member, std::optional<Entry>(), after);
}
template <typename Entry>
MapChange ChangeEntry(MemberId member, const Entry& before, std::nullopt_t) {
  return ChangeEntry<Entry>(member, before, std::optional<Entry>());
}
template <typename Entry>
MapChange ChangeEntry(MemberId member, const Entry& before, const Entry& after) {
  return ChangeEntry<Entry>(member, std::optional<Entry>(before), std::optional<Entry>(after));
}

// Settles a change of an entry; whether it was this one that did it.
inline absl::StatusOr<bool> SettleChange(OperationContext& context, MapStore& store,
                                         MapChange change) {
  PANDO_RETURN_IF_ERROR(change.Settle(context, store));
  return change.decision() == MapChange::Decision::kDone;
}

// The entry that a change met instead (MapChange::Decision::kOther).
template <typename Entry>
absl::StatusOr<Entry> ActualEntry(const MapChange& change) {
  Entry entry;
  PANDO_RETURN_IF_ERROR(Parse(change.actual(), &entry));
  return entry;
}

template <typename Entry>
using MemberEntries = std::vector<std::pair<MemberId, Entry>>;

// In the order of compute servers and incarnations.
template <typename Entry>
absl::StatusOr<MemberEntries<Entry>> ListEntries(OperationContext& context, MapStore& store) {
  std::vector<KeyValue> rows;
  const KeyRange all = {{KindPrefix(Entry::kKind), false},
                        {KindPrefix(static_cast<char>(Entry::kKind + 1)), false}};
  PANDO_RETURN_IF_ERROR(ReadMap(context, store, all, /*reverse=*/false, SIZE_MAX, &rows));
  MemberEntries<Entry> entries;
  for (const KeyValue& row : rows) {
    PANDO_ASSIGN_OR_RETURN(const ClusterKey key, ParseClusterKey(row.key));
    Entry entry;
    PANDO_RETURN_IF_ERROR(Parse(row.value, &entry));
    entries.emplace_back(key.member, std::move(entry));
  }
  return entries;
}

// NotFound: it has none.
template <typename Entry>
absl::StatusOr<Entry> FindEntry(OperationContext& context, MapStore& store, MemberId member) {
  const std::string key = MemberKey(Entry::kKind, member);
  std::vector<KeyValue> rows;
  PANDO_RETURN_IF_ERROR(
      ReadMap(context, store, {{key, false}, {key, true}}, /*reverse=*/false, 1, &rows));
  if (rows.empty()) return absl::NotFoundError("the cluster tree has no " + DescribeKey(key));
  Entry entry;
  PANDO_RETURN_IF_ERROR(Parse(rows[0].value, &entry));
  return entry;
}

}  // namespace pando
