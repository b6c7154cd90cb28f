// What a member does again and again, beside its users' operations.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/core/extent_calls.h"
#include "compute/core/fence_calls.h"
#include "compute/owner/client_state.h"
#include "compute/owner/log_move.h"
#include "compute/owner/member.h"
#include "compute/owner/members.h"
#include "compute/owner/recovery.h"
#include "compute/owner/turnstile.h"

namespace pando {
namespace {

constexpr int kPingsPerLease = 8;
constexpr int64_t kTendChains = 8;  // rule W3
constexpr int64_t kTendIdleNs = 10 * kMillisecondNs;
constexpr int64_t kLookAroundNs = kSecondNs;
constexpr int64_t kMoveNsMax = 10 * kSecondNs;
// Of a peer that has not answered for so long the catalog's server is asked.
constexpr int64_t kOverdueNs = 250 * kMillisecondNs;

}  // namespace

absl::Status Member::RenewLease(OperationContext& context) {
  // The clock before the request: the catalog's server counts its lease from a later moment (rule
  // O5).
  const int64_t sent_ns = lease_.NowNs();
  const absl::StatusOr<int64_t> lease_ns = RenewServingLease(context, control_, catalog_server_);
  if (absl::IsFailedPrecondition(lease_ns.status()) ||
      absl::IsPermissionDenied(lease_ns.status())) {
    lease_.End();
    on_fenced_();
  }
  PANDO_RETURN_IF_ERROR(lease_ns.status());
  lease_.Renew(sent_ns);
  return absl::OkStatus();
}

void Member::LeaseLoop(Parking* parking) {
  if (!lease_.has_lease()) return;
  const int64_t pause_ns = lease_.lease_ns() / kPingsPerLease;
  while (Pause(parking, NowNs() + pause_ns) && !lease_.ended()) {
    if (session_->fenced()) return lease_.End();
    OperationContext context(session_, NowNs() + pause_ns);
    (void)RenewLease(context);  // a lost ping is no reason to wait
  }
}

void Member::TendLoop(Parking* parking) {
  while (true) {
    const bool waits = log_->next_lsn() - 1 > log_->durable();
    const int64_t pause_ns =
        waits ? std::min(kTendIdleNs, kTendChains * session_->chain_ns()) : kTendIdleNs;
    if (!Pause(parking, NowNs() + pause_ns)) return;
    if (!joined_.load(std::memory_order_acquire)) continue;  // it has left
    OperationContext context(session_, NowNs() + kJobNsMin);
    (void)log_->Tend(context);
  }
}

// Rule W6.
void Member::LogLoop(Parking* parking) {
  int64_t pause_ns = kTendIdleNs;
  while (Pause(parking, NowNs() + pause_ns)) {
    pause_ns = kTendIdleNs;
    if (!joined_.load(std::memory_order_acquire)) continue;
    const LogExtent extent = log_entry_.extent;
    session_->AdoptServers();
    // Also where nobody writes: what is acknowledged is here alone from then on.
    const bool gone =
        session_->LifeOf(extent.server) != extent.server_life || is_gone_(extent.server);
    if (log_->failure().ok() && gone) {
      log_->NoteServerGone(absl::UnavailableError(
          absl::StrCat("memory server ", extent.server, ", or its life with the log, is over")));
    }
    const absl::Status failure = log_->failure();
    if (failure.ok()) continue;
    if (!absl::IsUnavailable(failure)) return;  // this client is cut off
    OperationContext context(session_, NowNs() + kMoveNsMax);
    const absl::Status moved = log_move_->Run(context, log_.get(), &log_entry_);
    if (moved.ok()) {
      PANDO_LOG(WARNING) << "the redo log of this compute server goes on at memory server "
                         << log_entry_.extent.server;
      appended_.NoteAppendedAgain();
      NoteTime();
      KickFlush();
      continue;
    }
    if (absl::IsResourceExhausted(moved) || absl::IsFailedPrecondition(moved)) {
      log_->NoteStays(moved);
      WakeWriters();
      pause_ns = kRetryNsMax;
    }
  }
}

void Member::LookLoop(Parking* parking) {
  bool told = false;
  while (Pause(parking, NowNs() + kLookAroundNs)) {
    OperationContext saying(session_, NowNs() + kJobNsMin);
    SayDeletes(saying, &told);
    Turnstile::Pass pass(turnstile_.get());
    OperationContext context(session_, NowNs() + kJobNsMin);
    (void)LookForEnded(context, &pass);  // again in a moment
    map_.Tend(context);
  }
}

void Member::NoteEnded(MemberId member) {
  if (peers_ != nullptr) peers_->NoteEnded({member.compute_server, member.incarnation});
}

// Rule P3. Also of a client without a log, which looks for nothing else.
void Member::LinkLoop(Parking* parking) {
  while (Pause(parking, NowNs() + kLookAroundNs)) {
    OperationContext context(session_, NowNs() + kJobNsMin);
    for (const PeerIdentity peer : peers_->Overdue(NowNs() - kOverdueNs)) {
      const MemberId member = {peer.compute_server, peer.incarnation};
      const auto state = AskClientState(context, control_, catalog_server_, member);
      if (state.ok() && HasEnded(*state)) NoteEnded(member);
    }
  }
}

// Rules O8, O9: work for the cluster that any living member does.
absl::Status Member::LookForEnded(OperationContext& context, Turnstile::Pass* pass) {
  PANDO_RETURN_IF_ERROR(SettlePending(context));
  for (OwnedTree* const tree : OpenTrees()) {
    // What has lost its leaves with a memory server's life is brought nowhere.
    if (tree->leaves().fate.lost()) Discard(tree);
  }
  // Also of trees that nobody has open any more. The list comes before the questions: a tree that
  // is made meanwhile is not on it.
  PANDO_ASSIGN_OR_RETURN(std::vector<uint32_t> trees, ListMappedTrees(context, map_));
  for (const OwnedTree* const tree : OpenTrees()) {
    const bool is_mapped = std::ranges::find(trees, tree->id()) != trees.end();
    if (!is_mapped && !tree->dropped()) trees.push_back(tree->id());
  }
  for (const uint32_t id : trees) {
    PANDO_ASSIGN_OR_RETURN(const bool exists, IsInCatalog(context, id));
    if (exists) continue;
    if (OwnedTree* const tree = FindOpen(id); tree != nullptr) {
      tree->NoteDropped();
      Discard(tree);
    }
    PANDO_RETURN_IF_ERROR(EraseRanges(context, map_, id, self()).status());
  }
  PANDO_ASSIGN_OR_RETURN(const std::vector<MemberId> ended, ListEnded(context));
  // With a second each, but for a recovery that comes forward: one that takes all of it each time
  // would keep those behind it waiting. Whose caller waits shares the time among them.
  const auto share = [&](size_t of) {
    const int64_t left_ns = std::max<int64_t>(0, context.deadline_ns() - NowNs());
    const int64_t share_ns = pass != nullptr ? kJobNsMin : left_ns / static_cast<int64_t>(of);
    return OperationContext(session_, NowNs() + std::min(share_ns, kJobNsMin));
  };
  for (size_t i = 0; i < ended.size(); ++i) {
    if (pass != nullptr) {
      (void)pass->LetOthers(kNeverNs);
      if (!failed_.Find(ended[i], NowNs(), session_->generation()).ok()) continue;
    }
    OperationContext looking = share(ended.size() - i + 1);
    (void)LookAtEnded(looking, ended[i]);
  }
  OperationContext freeing = share(1);
  return FreeLostExtents(freeing);
}

absl::Status Member::LookAtEnded(OperationContext& context, MemberId ended) {
  PANDO_ASSIGN_OR_RETURN(const std::vector<MappedRange> ranges, ListRangesOf(context, map_, ended));
  PANDO_ASSIGN_OR_RETURN(const bool is_ours, CanTake(context, ranges));
  if (is_ours) return Recover(context, ended);
  // Who has claimed it here may not have come to hand it back; as long as this member lives nobody
  // else may go on.
  PANDO_RETURN_IF_ERROR(SettlePending(context));
  return HandBackClaim(context, map_, stamps_, ended, self());
}

// Who dies between getting an extent and its `l`, or when its `l` is erased already, leaves one
// that nothing names.
absl::Status Member::FreeLostExtents(OperationContext& context) {
  const std::vector<ServerId> servers = members_.Ids();
  absl::Status first;
  for (size_t i = 0; i < servers.size(); ++i) {
    // One that says nothing keeps nobody from the others.
    const int64_t left_ns = std::max<int64_t>(0, context.deadline_ns() - NowNs());
    const auto left = static_cast<int64_t>(servers.size() - i);
    OperationContext share(context, NowNs() + left_ns / left);
    first.Update(FreeLostExtentsOf(share, servers[i]));
  }
  return first;
}

absl::Status Member::FreeLostExtentsOf(OperationContext& context, ServerId server) {
  const auto extents = ListExtents(context, control_, server);
  if (!extents.ok()) return absl::OkStatus();
  // Its own that were granted when it had given up: nothing was ever sent there. Once the log moves
  // it may be in any of them, as a server goes on with what it had begun to grant.
  const auto is_late = [&](const LogExtent& extent) {
    return extent != log_entry_.extent && !log_room_.IsUnsure(extent) && !log_move_->has_begun();
  };
  const auto free_own = [&](const LogExtent& extent) {
    if (!is_late(extent)) return;
    const Turnstile::Pass move(log_move_->turnstile(), context.deadline_ns());
    if (!move.ok() || !is_late(extent)) return;
    (void)FreeExtent(context, control_, extent, self().incarnation);
  };
  if (server == log_entry_.extent.server) (void)FreeLog(context);
  for (const HeldExtent& held : *extents) {
    const MemberId holder = {held.compute_server, held.incarnation};
    if (holder == self()) {
      free_own(held.extent);
      continue;
    }
    if (held.holder == ClientLiveness::kJoined) continue;
    PANDO_ASSIGN_OR_RETURN(const ClientLiveness state,
                           AskClientState(context, control_, catalog_server_, holder));
    if (state == ClientLiveness::kJoined) continue;
    // It has ended: it inserts no `l` any more, and one with ranges has had one.
    const auto log = FindEntry<LogEntry>(context, map_, holder);
    if (absl::IsNotFound(log.status())) {
      (void)FreeExtent(context, control_, held.extent, holder.incarnation);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Member::CanTake(OperationContext& context,
                                     const std::vector<MappedRange>& ranges) {
  for (const MappedRange& range : ranges) {
    if (FindOpen(range.tree_id) != nullptr && joined_.load(std::memory_order_acquire) &&
        !retired_.load(std::memory_order_acquire)) {
      continue;
    }
    // Of trees that are not open here, others take care; of those that were dropped, whoever sees
    // it.
    PANDO_ASSIGN_OR_RETURN(const bool exists, IsInCatalog(context, range.tree_id));
    if (exists) return false;
  }
  return true;
}

absl::Status Member::Tidy(uint32_t dropped_tree_id, int64_t deadline_ns) {
  return RunBlocking(deadline_ns, [this, dropped_tree_id](OperationContext& context) {
    // Where it is open it is served until this has passed: as Close() does.
    const bool is_open = FindOpen(dropped_tree_id) != nullptr;
    if (is_open) hurries_.fetch_add(1);
    const Turnstile::Pass pass(turnstile_.get(), is_open ? kNeverNs : context.deadline_ns());
    if (is_open) hurries_.fetch_sub(1);
    if (!pass.ok()) return TurnError(context);
    for (OwnedTree* const tree : OpenTrees()) {
      if (tree->id() != dropped_tree_id) continue;
      tree->NoteDropped();
      Discard(tree);
    }
    PANDO_RETURN_IF_ERROR(EraseRanges(context, map_, dropped_tree_id, MemberId()).status());
    PANDO_RETURN_IF_ERROR(EraseRanges(context, map_, dropped_tree_id, self()).status());
    // Who has loops looks for the rest in a moment, and recoveries take their time.
    return joined_.load(std::memory_order_acquire) ? absl::OkStatus() : LookForEnded(context);
  });
}

void Member::Discard(OwnedTree* tree) {
  {
    const Turnstile::Pass pass(flushing_.get());
    for (OwnRange* const range : tree->OwnRanges()) {
      tree->Remove(range);
      DropRecords(range);
    }
  }
  NoteRefusing();
  WakeWriters();
}

}  // namespace pando
