// Reads of other owners' keys from leaves on loan, and writes of own keys that are lent (rule O15).
#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/owner/member.h"
#include "compute/owner/owned_tree.h"

namespace pando {

// --- The owner.

bool OwnedTree::LendHere(OperationContext& context, std::string_view key, PeerAnswer* answer) {
  OwnRange* const range = FindOwn(key);
  if (range == nullptr) return false;
  answer->lent_low = range->low;
  answer->lent_high = range->high;
  {
    const Lock lock(range->partition.mutex());
    range->Charge(context.session, /*records=*/1);
    if (range->state == OwnRange::State::kGone) return false;
    answer->lent = range->state == OwnRange::State::kServing &&
                   range->lending.Lend(member_.lease().NowNs(), member_.read_lease_ns(),
                                       member_.lend_after_ns(),
                                       range->IsClean() || !RuleHolds(Rule::kO15Clean));
  }
  // Behind it, as behind any answer (rule O5): whoever takes this member's place waits from a later
  // moment on.
  if (context.session.fenced() || !member_.lease().Held()) answer->lent = false;
  return true;
}

absl::StatusOr<bool> OwnedTree::AwaitUnlent(OperationContext& context, OwnRange* range,
                                            Lock* lock) {
  if (range->lending.MayWrite() || !RuleHolds(Rule::kO15Write)) [[likely]]
    return false;
  const int64_t now_ns = member_.lease().NowNs(), left_ns = range->lending.until_ns() - now_ns;
  if (left_ns <= 0) {
    range->lending.Over();
    return false;
  }
  range->lending.NoteWait(now_ns, member_.read_lease_ns());
  lock->unlock();
  // At once, so that a peer hears of it in time (rule T6).
  const int64_t until_ns = context.session.NowNs() + left_ns;
  if (until_ns > context.deadline_ns()) {
    return absl::DeadlineExceededError(
        absl::StrCat("without effect: others read the key's range for ", left_ns / kMicrosecondNs,
                     " us more, beyond the deadline"));
  }
  context.session.scheduler().SleepUntil(until_ns);
  return true;
}

// --- Others.

ReadLease* OwnedTree::Borrow(OperationContext& context, std::string_view key) {
  const Clock& clock = read_leases_.clock();
  ReadLease* lease = read_leases_.Find(key);
  ReadCount& reads = lease != nullptr ? lease->reads : read_leases_.reads();
  if (lease != nullptr && lease->fresh.IsAhead(clock)) [[likely]] {
    reads.Note();
    return lease;
  }
  const auto held = [&]() -> ReadLease* {
    const bool covers = lease != nullptr && lease->Covers(key);
    return covers && lease->held.IsAhead(clock) ? lease : nullptr;
  };
  if (lease != nullptr && lease->refused.IsAhead(clock)) return held();
  // One asks. The others' reads go to the owner, or to leaves as long as it is held.
  const std::optional<Owner> owner = reads.IsWorthIt() ? OwnerOf(key) : std::nullopt;
  if (!owner.has_value() || !reads.Take()) {
    reads.Note();
    return held();
  }
  const int64_t sent_ns = read_leases_.NowNs();
  // Of the next key above one of the greatest length its range is asked for by that one.
  const PeerRequest request = {.operation = PeerRequest::Operation::kLend,
                               .tree_id = id(),
                               .key = key.substr(0, kPeerKeyBytesMax)};
  PeerAnswer answer;
  const absl::Status asked = member_.Ask(context, owner->id, owner->address, request, &answer);
  if (asked.ok() && answer.not_owner) {
    Forget(key);
  } else if (asked.ok() && answer.status.ok()) {
    lease = read_leases_.Learn(answer.lent_low, answer.lent_high, answer.lent, sent_ns,
                               member_.read_lease_ns());
  } else if (lease != nullptr) {
    read_leases_.NoteRefused(lease, member_.read_lease_ns());
  }
  return held();
}

void OwnedTree::NoteUnreadable(OperationContext& context, int64_t began_ns, ReadLease* lease) {
  const bool had_time = context.deadline_ns() - began_ns >= member_.read_lease_ns();
  if ((context.expired() && !had_time) || context.session.fenced()) return;
  read_leases_.NoteUnreadable(lease, member_.read_lease_ns());
}

std::optional<absl::Status> OwnedTree::GetLent(OperationContext& context, std::string_view key,
                                               std::string* value) {
  ReadLease* const lease = Borrow(context, key);
  if (lease == nullptr) return std::nullopt;
  const int64_t began_ns = context.session.NowNs();
  absl::Status status = GetKey(context, leaves_, key, value);
  if (!status.ok() && !absl::IsNotFound(status)) {
    NoteUnreadable(context, began_ns, lease);
    return std::nullopt;
  }
  context.session.counters().owned_lent.Add();
  return status;
}

}  // namespace pando
