// The ranges of owned trees: who owns which keys, and how that changes (rules O2, O4, O8, D4).
//
// Readers give what was there at some moment. Changes are made by one job a member and tree, one at
// a time (rule O4): a RangeChange is built from what its caller has seen or owns, and settled. All
// but the builders run in a coroutine of the context's session.
//
// How the map stays right, whichever client is late or dies:
//   1. Entries are only ever inserted and replaced, each by compare-and-swap on bytes that are used
//      once. So ranges tile the key space at any moment, and an owner's own entry is as it left it.
//   2. Inserted they are by the owner of the range that they divide, so the border below a range
//      moves by its owner's hand only: read after a claim was won it stands.
//   3. What an owner may have in flight (an insert that divides the range) is settled before it
//      gives the range up, or fenced (rule D2) before somebody adopts it. So nothing that the one
//      before sent moves a border of the one after.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/core/session_context.h"
#include "compute/owner/cluster_entries.h"
#include "compute/owner/map_change.h"
#include "compute/owner/map_store.h"

namespace pando {

// The keys in [low, high), and their entry.
struct MappedRange {
  uint32_t tree_id = 0;
  std::string low;   // "": no border below
  std::string high;  // "": no border above
  RangeEntry entry;

  bool Covers(std::string_view key) const { return key >= low && (high.empty() || key < high); }
  friend bool operator==(const MappedRange&, const MappedRange&) = default;
};

// --- Reading. NotFound: the tree has no entry there, since it has been dropped, or nobody has
// opened it yet. DataLoss: what is there is no entry.

absl::StatusOr<MappedRange> FindRange(OperationContext& context, MapStore& store, uint32_t tree_id,
                                      std::string_view key);
// In the order of keys. Ranges that are divided meanwhile may be seen whole.
absl::StatusOr<std::vector<MappedRange>> ListRanges(OperationContext& context, MapStore& store,
                                                    uint32_t tree_id);
// Of all trees. All that `owner` has, if it cannot get more meanwhile: it is fenced (rule D5), or
// is the caller.
absl::StatusOr<std::vector<MappedRange>> ListRangesOf(OperationContext& context, MapStore& store,
                                                      MemberId owner);
// That have entries. Compare it with a list of the catalog that was asked for afterwards: what is
// not on that was dropped.
absl::StatusOr<std::vector<uint32_t>> ListMappedTrees(OperationContext& context, MapStore& store);

// --- Trees that come and go.

// A client that opens a tree makes sure that the tree has an entry. `is_there` asks the catalog
// whether the tree is; NotFound: it has been dropped meanwhile. Other errors: open again.
absl::Status OpenRanges(OperationContext& context, MapStore& store, uint32_t tree_id,
                        StampSource& stamps,
                        absl::FunctionRef<absl::StatusOr<bool>(OperationContext&)> is_there);
// Of a dropped tree: erases entries of nobody and of `self`, which serves them no more and has no
// change of that tree under way. Returns how many are left, to their owners or to recovery.
absl::StatusOr<size_t> EraseRanges(OperationContext& context, MapStore& store, uint32_t tree_id,
                                   MemberId self);

// --- Changing.

class RangeChange {
 public:
  // The entry of nobody becomes a term of `self`; `since`: the next LSN of its log.
  static RangeChange Claim(const MappedRange& range, MemberId self, Lsn since, Stamp stamp);
  // A term of a member that has ended, by the holder of its recovery, with its messages durable in
  // the holder's log from `since` on (rule D4).
  static RangeChange Adopt(const MappedRange& range, MemberId self, Lsn since, Stamp stamp);
  // A term becomes nobody's; its owner has stopped serving before the first Settle(). Where that
  // says that nothing has happened it may serve again.
  static RangeChange GiveUp(const MappedRange& own, MemberId wished, Stamp stamp);
  // The owner's term goes on, with messages from `since` on only.
  static RangeChange Renew(const MappedRange& own, Lsn since, Stamp stamp);
  // The keys below `border` get an entry of their own, of the same term. low < border < high
  // (CHECKed).
  static RangeChange Split(const MappedRange& own, std::string_view border, Stamp stamp);
  // The entry of a term of a tree that was dropped, by its owner or the holder of its recovery.
  static RangeChange Erase(const MappedRange& range);

  // As MapChange::Settle(). A claim or an adoption that was won is settled when the lower border
  // has been read.
  absl::Status Settle(OperationContext& context, MapStore& store);

  // The rest: once settled.
  // Claim, adopt: it is ours. Give up: always, since whatever is there now is no term of ours.
  // Split: it is divided; false: the range is not ours any more, which is news to a member that is
  // not dead. Erase: it was there.
  bool won() const;
  // The range as it is now, with the entry that is there; of a split its upper part. Its low is
  // right where it is ours. An entry that is gone is shown as nobody's.
  const MappedRange& range() const { return range_; }
  // Split that was won: the lower part.
  const MappedRange& lower() const { return lower_; }
  // There is no entry any more: the tree was dropped.
  bool gone() const;
  bool is_split() const { return kind_ == Kind::kSplit; }
  // A claim, or an adoption.
  bool is_taking() const { return kind_ == Kind::kClaim || kind_ == Kind::kAdopt; }

  // At any time: it may have happened, and is not settled; nothing else of the tree's map may be
  // changed.
  bool uncertain() const;

 private:
  enum class Kind { kClaim, kAdopt, kGiveUp, kRenew, kSplit, kErase };
  RangeChange(Kind kind, const MappedRange& range, RangeEntry desired, MapChange change)
      : kind_(kind), range_(range), desired_(desired), change_(std::move(change)) {}
  static RangeChange ReplaceEntry(Kind kind, const MappedRange& range, const RangeEntry& desired);
  // What follows from the decision for range_. DataLoss: what is there is no entry.
  absl::Status Conclude();

  Kind kind_;
  MappedRange range_, lower_;
  RangeEntry desired_;
  MapChange change_;
  bool settled_ = false;
};

}  // namespace pando
