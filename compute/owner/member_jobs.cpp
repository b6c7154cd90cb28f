// What a member changes in the cluster tree, one job at a time (rules O2 to O4, O8, O9).
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/owner/client_state.h"
#include "compute/owner/member.h"
#include "compute/owner/members.h"
#include "compute/owner/recovery.h"
#include "compute/owner/to_caller.h"
#include "compute/owner/turnstile.h"

namespace pando {
namespace {

// Who gives up a recovery begins it anew: it waits as long as it took to come so far, and no longer
// than this.
constexpr int64_t kAgainNsMax = 5 * kSecondNs;

}  // namespace

struct Member::Recovering {
  MappedRange range;
  MemberId ended;
  LossAcceptance* loss = nullptr;
  Recovery::Replayed replayed = {};
  bool is_unanswered = false;  // the catalog's server does not say whether its tree is there
};

absl::StatusOr<bool> Member::IsInCatalog(OperationContext& context, uint32_t tree_id) {
  const absl::Status listed =
      control_
          .Call(context, catalog_server_, ControlOpcode::kListTreeServers, EncodeTreeId(tree_id))
          .status();
  if (listed.ok()) return true;
  if (absl::IsNotFound(listed)) return false;
  return listed;
}

absl::StatusOr<bool> Member::IsStillThere(OperationContext& context, uint32_t tree_id) {
  OperationContext asking(context, std::min(context.deadline_ns(), NowNs() + kJobNsMin));
  return IsInCatalog(asking, tree_id);
}

// --- Ranges.

absl::Status Member::SettlePending(OperationContext& context) {
  if (!pending_.has_value()) return absl::OkStatus();
  PANDO_RETURN_IF_ERROR(pending_->Settle(context, map_));
  // Who flushes a record finds it where it was. Not before: flushes do not wait for the cluster
  // tree.
  std::optional<Turnstile::Pass> flush;
  if (pending_->is_split()) flush.emplace(flushing_.get());
  const RangeChange settled = *std::exchange(pending_, std::nullopt);
  OwnedTree* const tree = FindOpen(settled.range().tree_id);
  const bool is_ours = settled.won() && settled.range().entry.owner == self();
  if (!is_ours || tree == nullptr) {
    // One that was won late has no messages yet, but for those that it was adopted with: with such
    // it is recovered from the log. Else it is given up, as nobody would serve it (rule O4).
    const bool has_messages = is_ours && adopted_.has_value();
    if (has_messages) {
      kept_lsn_ = std::min(kept_lsn_, adopted_->since);
      keeps_entries_.store(true, std::memory_order_relaxed);
    }
    DropAdopted();
    if (!is_ours || has_messages || !settled.is_taking()) return absl::OkStatus();
    if (!RuleHolds(Rule::kO14)) return absl::OkStatus();  // its variant gives up nothing late
    RangeChange change = RangeChange::GiveUp(settled.range(), /*wished=*/{}, stamps_.Next());
    const absl::Status given_up = change.Settle(context, map_);
    if (!given_up.ok()) pending_ = std::move(change);
    return given_up;
  }
  if (settled.is_split()) {
    OwnRange* const whole = tree->FindOwn(settled.lower().low);
    if (whole != nullptr && whole->Covers(settled.range().low)) Divide(tree, whole, settled);
    return absl::OkStatus();
  }
  OwnRange* const own = tree->FindOwn(settled.range().low);
  if (own == nullptr && settled.is_taking()) {
    absl::Status taken_up = TakeUp(context, tree, settled.range());
    if (!taken_up.ok()) pending_ = settled;
    return taken_up;
  }
  // Else it is a term of an earlier handle, with messages in the log perhaps: see ObtainRange().
  if (own != nullptr) own->mapped = settled.range();
  return absl::OkStatus();
}

absl::Status Member::TakeUp(OperationContext& context, OwnedTree* tree, const MappedRange& range) {
  // Rule O8: the entry covers what is below it, which had entries of its own perhaps. They are
  // erased when the tree has left the catalog, and this range's border was read before now.
  PANDO_ASSIGN_OR_RETURN(const bool exists, IsStillThere(context, tree->id()));
  if (!exists && RuleHolds(Rule::kO8)) {
    tree->NoteDropped();
    DropAdopted();
    return absl::OkStatus();
  }
  auto records = adopted_.has_value() ? std::exchange(adopted_, std::nullopt)->records
                                      : std::make_shared<Partition>();
  auto own = std::make_unique<OwnRange>(range, OwnRange::State::kServing, std::move(records));
  own->came_ns = NowNs();
  tree->Add(std::move(own));
  NoteRefusing();
  return absl::OkStatus();
}

absl::Status Member::ObtainRange(OperationContext& context, OwnedTree* tree,
                                 const std::string& key) {
  if (!IsOpen(tree)) return absl::FailedPreconditionError("the tree is being closed");
  if (tree->FindOwn(key) != nullptr) return absl::OkStatus();
  PANDO_RETURN_IF_ERROR(SettlePending(context));
  if (tree->FindOwn(key) != nullptr) return absl::OkStatus();
  if (tree->dropped()) return tree->DroppedError();
  // Many operations miss the owner at once; the first of their jobs has looked for all of them.
  if (tree->OwnerOf(key).has_value()) return absl::OkStatus();
  if (IsOnItsWay(*tree, key)) return absl::AbortedError("the key's range is on its way");
  // An earlier handle of this tree may still be giving its ranges up.
  for (const OwnedTree* const other : OpenTrees()) {
    if (other != tree && other->id() == tree->id()) {
      return absl::AbortedError("an earlier handle of the tree is being closed");
    }
  }
  const absl::StatusOr<MappedRange> found = FindRange(context, map_, tree->id(), key);
  // No key's absence: nobody can say what it holds.
  if (absl::IsNotFound(found.status())) return tree->DroppedError();
  PANDO_RETURN_IF_ERROR(found.status());
  const MappedRange& range = *found;
  const MemberId owner = range.entry.owner;
  ClientLiveness state = ClientLiveness::kUnknown;
  if (!owner.nobody() && owner != self()) {
    PANDO_RETURN_IF_ERROR(failed_.Find(owner, NowNs(), session_->generation()));
    OperationContext asking(context, std::min(context.deadline_ns(), NowNs() + kJobNsMin));
    PANDO_ASSIGN_OR_RETURN(state, AskClientState(asking, control_, catalog_server_, owner));
    if (HasEnded(state)) NoteEnded(owner);
  }
  if (state == ClientLiveness::kJoined) {
    const absl::StatusOr<MemberEntry> member = FindEntry<MemberEntry>(context, map_, owner);
    if (member.ok() && !member->address.empty()) {
      tree->Learn(range, member->address);
      return absl::OkStatus();
    }
    return absl::AbortedError(
        absl::StrCat("the key belongs to ", ToText(owner), ", which lives, and cannot be asked"));
  }
  if (owner.nobody() && AwaitsWished(range)) {
    return absl::AbortedError(
        absl::StrCat("the key's range is on its way to ", ToText(range.entry.wished)));
  }
  if (retired_.load(std::memory_order_acquire) && owner != self()) {
    return AskOtherToClaim(context, tree, key);
  }
  PANDO_RETURN_IF_ERROR(JoinToOwn(context, owner));
  if (owner.nobody()) {
    // Of an earlier term messages may be in the log still (rule O12).
    const Lsn since = RuleHolds(Rule::kO12) ? log_->next_lsn() : Lsn{1};
    return Take(context, tree, RangeChange::Claim(range, self(), since, stamps_.Next())).status();
  }
  if (owner == self()) {
    if (keeps_entries_.load(std::memory_order_relaxed)) return KeptError();
    return TakeUp(context, tree, range);
  }
  const absl::Status recovered = Recover(context, owner, /*loss=*/nullptr, tree, key);
  // What was in the way of other ranges is nothing to this key.
  return tree->FindOwn(key) != nullptr ? absl::OkStatus() : recovered;
}

absl::StatusOr<bool> Member::Take(OperationContext& context, OwnedTree* tree, RangeChange change) {
  const absl::Status settled = change.Settle(context, map_);
  if (!settled.ok()) {
    if (change.uncertain()) {
      pending_ = std::move(change);
    } else {
      DropAdopted();
    }
    return settled;
  }
  if (!change.won()) {  // somebody else was first: look again
    DropAdopted();
    return false;
  }
  {
    std::lock_guard lock(mutex_);
    ++stats_.claims;
  }
  const absl::Status taken_up = TakeUp(context, tree, change.range());
  if (taken_up.ok()) return true;
  // Others wait for the one that the entry names, which nobody may need a key of again.
  pending_ = std::move(change);
  return taken_up;
}

absl::Status Member::AcceptLoss(LossAcceptance* acceptance, int64_t timeout_ns) {
  const auto accept = [&](OperationContext& context) -> absl::Status {
    for (const ServerId server : acceptance->servers_dead) {
      OperationContext asking(session_, std::min(context.deadline_ns(), NowNs() + kJobNsMin));
      if (control_.Call(asking, server, ControlOpcode::kServerInfo, "").ok() &&
          RuleHolds(Rule::kD6Alive))
        return absl::FailedPreconditionError(
            absl::StrCat("memory server ", server, " answers: it is not dead"));
    }
    const auto recover_all = [&]() -> absl::Status {
      Turnstile::Pass pass(turnstile_.get(), context.deadline_ns());
      if (!pass.ok()) return TurnError(context);
      PANDO_RETURN_IF_ERROR(JoinCluster(context));
      PANDO_ASSIGN_OR_RETURN(const std::vector<MemberId> ended, ListEnded(context));
      absl::Status first;
      for (size_t i = 0; i < ended.size(); ++i) {
        if (i > 0 && !pass.LetOthers(context.deadline_ns())) {
          first.Update(TurnError(context));
          break;
        }
        // A server that says nothing leaves time for those behind it. What comes forward has all of
        // the time.
        const int64_t left_ns = std::max<int64_t>(0, context.deadline_ns() - NowNs());
        acceptance->share_ns = left_ns / static_cast<int64_t>(ended.size() - i);
        first.Update(Recover(context, ended[i], acceptance));
      }
      return first;
    };
    absl::Status why;
    while (true) {
      const absl::Status first = recover_all();
      // Others that have the trees open try it as well, and cannot go on.
      if (!absl::IsAborted(first) && !absl::IsDeadlineExceeded(first)) return first;
      // A round that ends with the time may say only that there was none for some server.
      if (why.ok() || !context.expired()) why = first;
      if (context.expired()) return why;
      scheduler().SleepUntil(std::min(NowNs() + kRetryNsMax, context.deadline_ns()));
    }
  };
  return ToCaller(RunBlocking(NowNs() + timeout_ns, accept),
                  "some keys are not taken over yet: call again, or say which memory servers are "
                  "dead");
}

absl::Status Member::Recover(OperationContext& context, MemberId ended, LossAcceptance* loss,
                             OwnedTree* tree, std::string_view key) {
  PANDO_RETURN_IF_ERROR(SettlePending(context));
  Recovery recovery({.control = &control_,
                     .catalog_server = catalog_server_,
                     .members = &members_,
                     .cluster_tree_id = cluster_tree_.id(),
                     .map = &map_,
                     .stamps = &stamps_,
                     .self = self(),
                     .is_gone = is_gone_,
                     .loss = loss,
                     .event_driven = event_driven_,
                     .is_hurried = [this] { return hurries_.load() > 0; }},
                    ended);
  const int64_t began_ns = NowNs();
  const uint64_t generation = session_->generation();
  failed_.Forget(ended);
  absl::Status status = recovery.Begin(context);
  const bool has_begun = status.ok();
  // It is fenced, and lends nothing any more; what it had lent ends by then (rule O15).
  if (has_begun && !recovery.ranges().empty() && RuleHolds(Rule::kO15Dead))
    scheduler().SleepUntil(NowNs() + Lending::WaitNs(read_lease_ns()));
  // Bringing its messages to the leaves takes its time: who began again would begin at the start.
  OperationContext bringing(session_, std::max(context.deadline_ns(), NowNs() + kRecoveryNsMax));
  std::deque<Recovering> left;
  for (const MappedRange& range : recovery.ranges()) {
    const bool is_wanted = tree != nullptr && range.tree_id == tree->id() && range.Covers(key);
    left.insert(is_wanted ? left.begin() : left.end(),
                {.range = range, .ended = ended, .loss = loss});
  }
  absl::Status late;
  // Since a range came forward: turns in vain; and how long it takes to come there again.
  size_t in_vain = 0;
  int64_t forward_ns = NowNs();
  const auto is_stuck = [&] {
    const int64_t patience_ns = std::min(forward_ns - began_ns, kAgainNsMax);
    return in_vain >= left.size() && NowNs() - forward_ns >= std::max(patience_ns, kJobNsMin);
  };
  bool is_unanswered = false, gives_way = false;
  // In turns, each as far as it comes in its time: leaves that are out of reach, or lost, keep no
  // other range waiting, nor other jobs. A range that comes forward goes on, as none might come to
  // its end otherwise. One change at a time (rule O4).
  for (size_t turns = 0; !left.empty() && has_begun; ++turns) {
    if (pending_.has_value() || bringing.expired() || session_->fenced()) break;
    if (stopping_.load(std::memory_order_acquire) || (turns > 0 && hurries_.load() > 0)) break;
    // Who waits for its range has it.
    if (turns >= recovery.ranges().size() && tree != nullptr && tree->FindOwn(key) != nullptr)
      break;
    const bool others_wait = turnstile_->is_wanted();
    gives_way = others_wait && (is_unanswered || is_stuck());
    if (gives_way) break;
    const int64_t share_ns = kJobNsMin / static_cast<int64_t>(others_wait ? left.size() : 1);
    const int64_t until_ns = NowNs() + std::max(share_ns, kTurnNsMin);
    Recovering one = std::move(left.front());
    left.pop_front();
    const auto brought = [&] { return recovery.replayed() + one.replayed.refused.size(); };
    const uint64_t before = brought();
    one.is_unanswered = false;
    const absl::Status recovered = RecoverRange(bringing, until_ns, &recovery, &one);
    const bool comes_forward = brought() > before;
    is_unanswered = one.is_unanswered && !comes_forward;
    if (!recovered.ok() && NowNs() >= until_ns) {
      late = recovered;
      left.insert(comes_forward ? left.begin() : left.end(), std::move(one));
      in_vain = comes_forward ? 0 : in_vain + 1;
      if (comes_forward) forward_ns = NowNs();
      continue;
    }
    status.Update(recovered);
    in_vain = 0;
    forward_ns = NowNs();
  }
  absl::Status stuck;
  if (!left.empty() && has_begun) {
    const bool is_over = bringing.expired() || session_->fenced();
    const absl::Status later = absl::AbortedError(
        late.ok() ? "the recovery goes on later"
                  : absl::StrCat("the recovery goes on later: ", late.message()));
    if (gives_way) stuck = later;
    status.Update(is_over && !late.ok() ? late : later);
  }
  // Also after an error: others may be able to go on. But not while it may still come true that a
  // range is taken under this claim.
  OperationContext ending(session_, std::max(bringing.deadline_ns(), NowNs() + kJobNsMin));
  const absl::Status over = pending_.has_value() ? absl::OkStatus() : recovery.End(ending);
  for (const absl::Status& why : {stuck, recovery.unread()})
    if (!why.ok()) failed_.Note(ended, why, began_ns, NowNs(), generation);
  // That somebody's lease has not run out may be found at once, and again.
  if (!recovery.unfenced().ok())
    failed_.Note(ended, recovery.unfenced(), std::min(began_ns, NowNs() - kRetryNsMax), NowNs(),
                 generation);
  {
    std::lock_guard lock(mutex_);
    stats_.adopted_messages += recovery.replayed();
  }
  PANDO_RETURN_IF_ERROR(status);
  return over;
}

absl::Status Member::RecoverRange(OperationContext& context, int64_t until_ns, Recovery* recovery,
                                  Recovering* one) {
  const MappedRange& range = one->range;
  // Who retires takes nothing, and erases what was dropped.
  OwnedTree* const tree =
      retired_.load(std::memory_order_acquire) ? nullptr : FindOpen(range.tree_id);
  const bool has_log = joined_.load(std::memory_order_acquire);
  const auto is_there = [&] {
    absl::StatusOr<bool> there = IsStillThere(context, range.tree_id);
    one->is_unanswered = absl::IsDeadlineExceeded(there.status());
    return there;
  };
  const auto change_hands = [&]() -> absl::StatusOr<bool> {
    if (!has_log) {  // rule W7: for nobody
      PANDO_RETURN_IF_ERROR(LeaveToNobody(context, range));
      return true;
    }
    const Lsn since = adopted_.has_value() ? adopted_->since : log_->next_lsn();
    return Take(context, tree, RangeChange::Adopt(range, self(), since, stamps_.Next()));
  };
  const auto adopt = [&]() -> absl::Status {
    const absl::Status& why = recovery->loss().ok() ? one->replayed.misfit : recovery->loss();
    if (why.ok()) return change_hands().status();
    const Loss loss = {.tree = tree->leaves().entry.name,
                       .low = range.low,
                       .high = range.high,
                       .owner = one->ended,
                       .since = range.entry.since,
                       .why = why.ToString()};
    one->loss->Note(loss);
    const absl::StatusOr<bool> changed = change_hands();
    const bool may_come_true = pending_.has_value() && RuleHolds(Rule::kD6Note);
    if (!changed.value_or(false) && !may_come_true) one->loss->TakeBack(loss);
    return changed.status();
  };
  if (tree != nullptr && !RuleHolds(Rule::kD4)) PANDO_RETURN_IF_ERROR(adopt());
  absl::Status replayed;
  if (tree != nullptr) {
    // What follows is not to end in its middle.
    OperationContext turn(context, std::min(until_ns, context.deadline_ns()));
    replayed = recovery->Replay(turn, &tree->leaves(), range, &one->replayed);
  }
  const std::vector<FlushItem>& refused = one->replayed.refused;
  if (replayed.ok() && !refused.empty() && !has_log) return absl::OkStatus();  // left as it is
  if (replayed.ok() && !refused.empty() && RuleHolds(Rule::kD4)) {
    // Rule O8, asked while nothing is kept yet that an error could lose: the borders were read when
    // the recovery began.
    PANDO_ASSIGN_OR_RETURN(const bool exists, is_there());
    replayed =
        exists ? AppendAdopted(context, range, refused, recovery->refusal()) : tree->DroppedError();
  }
  // A tree that was dropped cannot grow, and is open perhaps.
  if (tree == nullptr || !replayed.ok()) {
    PANDO_ASSIGN_OR_RETURN(const bool exists, is_there());
    // Whoever has it open sees to it; of one that was dropped nobody wants anything.
    if (exists) return replayed;
    RangeChange erase = RangeChange::Erase(range);
    return erase.Settle(context, map_);
  }
  if (RuleHolds(Rule::kD4)) PANDO_RETURN_IF_ERROR(adopt());
  std::lock_guard lock(mutex_);
  ++stats_.adoptions;
  return absl::OkStatus();
}

absl::Status Member::Renew(OperationContext& context, OwnedTree* tree, OwnRange* range, Lsn since) {
  if (!IsOpen(tree)) return absl::FailedPreconditionError("the tree is being closed");
  PANDO_RETURN_IF_ERROR(SettlePending(context));
  {
    std::lock_guard lock(range->partition.mutex());
    if (range->state == OwnRange::State::kGone) {
      return absl::FailedPreconditionError("the range is not owned any more");
    }
  }
  RangeChange change = RangeChange::Renew(range->mapped, since, stamps_.Next());
  const absl::Status settled = change.Settle(context, map_);
  if (settled.ok() && change.won()) {
    range->mapped = change.range();
  } else if (change.uncertain()) {
    pending_ = std::move(change);
  } else if (settled.ok()) {
    return absl::InternalError("the entry of a range of this member has changed");
  }
  return settled;
}

}  // namespace pando
