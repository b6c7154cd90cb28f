// What becomes of a member's ranges when it has ended, whether it died or left (rules D1 to D5):
// one other member reads its log, brings what it had acknowledged to the leaves, and takes the
// ranges.
//
// Not thread-safe: in coroutines of one session, at its member's turnstile. Invariants:
//   1. Nothing of the dead is read before the recovery is claimed and every memory server that it
//      could reach has confirmed that its life is over: the catalog's first, since no server is
//      added to a tree for it after that, and then all that are listed once those have
//      (fence_listed.h).
//   2. A range changes hands after all of its messages are in its leaves. Until then its entry
//      names the dead, whatever becomes of the claimant, and every step may be repeated.
//   3. The log is freed when no entry names the dead any more. A log that cannot be read is lost,
//      never empty.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compute/core/control_channel.h"
#include "compute/core/membership.h"
#include "compute/core/session_context.h"
#include "compute/hot/partition.h"
#include "compute/index/tree_context.h"
#include "compute/owner/claim.h"
#include "compute/owner/fence_listed.h"
#include "compute/owner/loss.h"
#include "compute/owner/members.h"
#include "compute/owner/newest_messages.h"

namespace pando {

struct RecoveryParts {
  ControlChannel* control = nullptr;
  ServerId catalog_server = 0;
  const Membership* members = nullptr;
  uint32_t cluster_tree_id = 0;
  MapStore* map = nullptr;
  StampSource* stamps = nullptr;
  MemberId self;
  // Whether a memory server is gone for good: nothing of anybody is in flight to it.
  std::function<bool(ServerId)> is_gone;
  // Rule D6. nullptr: nobody has said anything.
  const LossAcceptance* loss = nullptr;
  bool event_driven = false;  // threads of its own are not to be had
  // Whether somebody without a deadline waits for the end of this.
  std::function<bool()> is_hurried = [] { return false; };
};

class Recovery {
 public:
  Recovery(RecoveryParts parts, MemberId ended) : parts_(std::move(parts)), ended_(ended) {}

  // Claims it (D1), has the dead fenced (D2), and reads its log (D3). Aborted: somebody else is at
  // it, or the dead may still act: later again. Unavailable: the log is on a memory server that is
  // gone. DataLoss: the log cannot be read, or there is none. FailedPrecondition: this client has
  // been cut off.
  absl::Status Begin(OperationContext& context);
  // What the dead owns, as of Begin().
  const std::vector<MappedRange>& ranges() const { return ranges_; }
  // How far a range's messages have come to their leaves.
  struct Replayed {
    std::vector<FlushItem> items;  // on their way, or of unknown outcome
    std::optional<size_t> next;    // of the messages
    std::vector<FlushItem> refused;
    absl::Status misfit;  // a message that the tree cannot have was left out, which is accepted
  };
  // All that the dead had acknowledged in the range is in the tree's leaves, but for
  // `replayed->refused`, ascending: what memory servers have no room for. DataLoss: the log has
  // what the tree cannot have. After an error the next call goes on where this one was.
  absl::Status Replay(OperationContext& context, TreeContext* leaves, const MappedRange& range,
                      Replayed* replayed);
  // Where no entry names the dead any more everything else of it goes (D5); else, and after an
  // error, somebody else may go on.
  absl::Status End(OperationContext& context);

  // Why Begin() could not read the log, where that is not for want of time.
  const absl::Status& unread() const { return unread_; }
  // Why it has not awaited that a memory server confirms the fence, or is connected.
  const absl::Status& unfenced() const { return unfenced_; }
  uint64_t replayed() const { return replayed_; }
  // Why its log was left out, which is accepted (rule D6).
  const absl::Status& loss() const { return loss_; }
  const absl::Status& refusal() const { return refusal_; }  // why they have no room

 private:
  absl::Status Claim(OperationContext& context);
  absl::Status FenceAll(OperationContext& context, MemberId member);
  // Where owned trees and the cluster tree have nodes now.
  absl::StatusOr<ServerSet> ListServers(OperationContext& context);
  absl::Status FenceAt(OperationContext& context, ServerId server, MemberId member);
  // What one memory server gets of the time.
  OperationContext ShareOf(OperationContext& context, int64_t longest_ns) const;
  absl::Status FenceOnceKnown(OperationContext& context, ServerId server, MemberId member);
  // The one of `ranges_` that has the key, if any.
  const MappedRange* RangeOf(uint32_t tree_id, std::string_view key) const;
  absl::Status ReadMessages(OperationContext& context);
  // A second for some million messages: not on the thread of the serving lease.
  void SealMessages(OperationContext& context);
  // Ok: the message is one that the tree can have. DataLoss: it is not.
  absl::Status CheckFits(const TreeContext& leaves, const NewestMessages::Message& message) const;
  absl::Status BringToLeaves(OperationContext& context, TreeContext* leaves,
                             std::vector<FlushItem>* items, std::vector<FlushItem>* refused);
  bool IsDeclaredDead(ServerId server) const {
    return parts_.loss != nullptr && parts_.loss->IsDead(server);
  }
  // Ok, where an operator has said that the log may be lost, and it is.
  absl::Status Accept(const OperationContext& context, const absl::Status& why);
  absl::Status HandBack(OperationContext& context);
  absl::Status FreeExtentOf(OperationContext& context);

  const RecoveryParts parts_;
  const MemberId ended_;
  std::optional<RecoveryEntry> claimed_;  // as it is in the cluster tree
  std::optional<LogEntry> log_;
  bool knows_log_ = false;           // that it has one, or none; it is fenced
  std::vector<MappedRange> ranges_;  // by tree and key
  NewestMessages messages_;
  uint64_t replayed_ = 0;
  absl::Status refusal_, loss_, unread_, unfenced_;
};

// Of a claim of `self` that an error, or a change of unknown outcome, has left where no recovery is
// under way: others may go on. OK also if there is none.
absl::Status HandBackClaim(OperationContext& context, MapStore& map, StampSource& stamps,
                           MemberId ended, MemberId self);

}  // namespace pando
