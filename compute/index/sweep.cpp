// Rule C5: nodes that the dead held, and nodes of merges that the dead began, are looked at one by
// one; a node that cannot be reached any more is freed under its lock.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "common/wire/node_messages.h"
#include "common/wire/node_repair.h"
#include "compute/index/descend.h"
#include "compute/index/hold.h"
#include "compute/index/holder_states.h"
#include "compute/index/lock_set.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"

namespace pando {
namespace {

// Looks at a node whose lines are torn inside, and chain times between them.
constexpr int kLooksMax = 20;
constexpr int64_t kLookAgainChains = 16;
// Attempts at the lock of a node that is to be freed: its holder is about to free it, mostly.
constexpr int kLockAttemptsMax = 4;
// Chain times in which a merge that nobody holds up any more can be finished: a descent, two locks
// and their words' recovery.
constexpr int64_t kFinishMergeChains = 256;
// Orphans of a server that are looked at in one go of a sweep that is not thorough.
constexpr size_t kLookedAtMax = 512;
// How long other servers may take to say of a client whether it lives, where an operation waits.
constexpr int64_t kAskNsMax = 100 * kMillisecondNs;
// For somebody who is stopped on the way to an orphan, where none waits.
constexpr int64_t kThoroughNsMax = kSecondNs;
// What one orphan takes at most of what is left; and what is left of all for what was decided.
constexpr int64_t kPartOfTime = 4, kPartForSending = 8;

class Sweep {
 public:
  Sweep(OperationContext& context, TreeContext& tree, bool thorough, HolderStates* holders,
        SweepResult* result)
      : context_(context), tree_(tree), thorough_(thorough), holders_(*holders), result_(*result) {}

  absl::Status Run(ServerId server);

 private:
  // What of a node counts: as found in line 0 and the constant part of the header.
  struct Found {
    Reference node;
    uint8_t level = 0;
    bool ours = false;    // formatted for this tree at all
    bool marked = false;  // merging, absorbing or dead
    NodeState state = NodeState::kFree;
    std::string low;
  };

  // Empty: lines stay torn, so somebody is at work there.
  absl::StatusOr<std::optional<Found>> Look(RemoteAddress address);
  // Finishes or undoes the merge that has marked it. False: its locks are taken.
  absl::StatusOr<bool> FinishMerge(const Found& found);
  // By a descent to its level and low fence: the node that covers that key is this one, or another.
  absl::StatusOr<bool> IsReachable(OperationContext& context, const Found& found);
  // Under its lock: of a node that was not reached, and that nobody will link. True: it is dead,
  // and nobody else will write there. False: it is locked, or has changed.
  absl::StatusOr<bool> Condemn(const Found& found);
  absl::Status Decide(ServerId server, const Orphan& orphan);
  absl::Status Send(ServerId server);
  // Until when an orphan may wait for others, and no longer than that.
  int64_t UntilNs(int64_t wait_ns) const;
  // For somebody who is stopped: the next sweep sees what has become of it.
  int64_t WaitNs() const;
  // It cannot be looked at to the end: the next sweep does it, and those behind it get their turn.
  absl::Status Leave(const absl::Status& why);

  OperationContext& context_;
  TreeContext& tree_;
  const bool thorough_;
  HolderStates& holders_;
  SweepResult& result_;
  absl::Status not_said_;  // why the first of those was left
  NodeFree freed_;
  NodeSettle settled_;
};

absl::StatusOr<std::optional<Sweep::Found>> Sweep::Look(RemoteAddress address) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context_.session.buffers().Lease(tree_.layout.node_bytes()));
  for (int look = 0;; ++look) {
    PANDO_RETURN_IF_ERROR(ReadRaw(context_, tree_, address, image.buffer()));
    if (LinesWhole(image.data(), tree_.layout, tree_.environment.crc)) break;
    if (look == kLooksMax) return std::optional<Found>();
    context_.BackOff(kLookAgainChains);
  }
  const NodeHeader header = ReadHeader(image.data(), tree_.layout);
  Found found;
  found.node = {address, header.life};
  found.level = header.level;
  found.state = header.state;
  found.low = header.low;
  NodeEdges edges;
  found.ours =
      ReadEdges(image.data(), tree_.layout, Expect(tree_, found.node, found.level, found.low),
                tree_.environment.crc, &edges);
  found.marked = IsMarked(image.data());
  return std::optional<Found>(std::move(found));
}

absl::StatusOr<bool> Sweep::IsReachable(OperationContext& context, const Found& found) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree_.layout.node_bytes()));
  Descent descent(context, tree_, found.low, found.level);
  while (true) {
    const absl::Status place = descent.Find();
    if (descent.above_root()) return false;
    PANDO_RETURN_IF_ERROR(place);
    PANDO_ASSIGN_OR_RETURN(
        const NodeVerdict verdict,
        ReadNode(context, tree_, descent.node(), found.level, found.low, image.buffer()));
    if (verdict == NodeVerdict::kAccepted) return descent.node() == found.node;
    descent.Report(verdict,
                   verdict == NodeVerdict::kMovedRight ? RightOf(image.data()) : Reference{});
  }
}

absl::StatusOr<bool> Sweep::FinishMerge(const Found& found) {
  const int64_t until_ns = std::min(context_.deadline_ns(), context_.session.NowNs() + WaitNs());
  OperationContext look(context_, until_ns);
  const absl::Status status = LockAndRepair(look, tree_, found.node, found.level, found.low);
  if (absl::IsDeadlineExceeded(status) && !context_.expired()) return false;
  PANDO_RETURN_IF_ERROR(status);
  return true;
}

absl::StatusOr<bool> Sweep::Condemn(const Found& found) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context_.session.buffers().Lease(tree_.layout.node_bytes()));
  LockSet locks(context_, tree_);
  absl::StatusOr<bool> held = true;
  if (RuleHolds(Rule::kC5Lock)) {
    for (int attempt = 1;; ++attempt) {
      held = locks.TryAdd(found.node, image.buffer());
      if (!held.ok() || *held || attempt == kLockAttemptsMax) break;
      context_.BackOff(kLookAgainChains);
    }
  } else {  // the variant trusts that it was right when it had last looked
    PANDO_RETURN_IF_ERROR(ReadRaw(context_, tree_, found.node.address, image.buffer()));
  }
  if (!held.ok() || !*held) return held;
  NodeEdges edges;
  const bool same =
      ReadEdges(image.data(), tree_.layout, Expect(tree_, found.node, found.level, found.low),
                tree_.environment.crc, &edges);
  const bool dead = same && edges.state == NodeState::kDead;
  const bool condemned = same && !dead && (!IsMarked(image.data()) || !RuleHolds(Rule::kC5Lock));
  absl::Status written;
  if (condemned) {
    written = WriteMarker(context_, tree_, found.node.address, image.buffer(), NodeState::kDead,
                          Reference{});
  }
  const absl::Status released = locks.ReleaseAll();
  PANDO_RETURN_IF_ERROR(written);
  PANDO_RETURN_IF_ERROR(released);
  return dead || condemned;
}

int64_t Sweep::UntilNs(int64_t wait_ns) const {
  const int64_t now_ns = context_.session.NowNs();
  return now_ns + std::min(wait_ns, (context_.deadline_ns() - now_ns) / kPartOfTime);
}

int64_t Sweep::WaitNs() const {
  return std::max(tree_.environment.times.sweep_wait_ns,
                  kFinishMergeChains * context_.session.chain_ns());
}

absl::Status Sweep::Leave(const absl::Status& why) {
  if (context_.session.fenced()) return why;
  not_said_.Update(why);
  ++result_.left;
  return absl::OkStatus();
}

absl::Status Sweep::Decide(ServerId server, const Orphan& orphan) {
  const RemoteAddress address(server, orphan.offset);
  const auto leave = [this] {
    ++result_.left;
    return absl::OkStatus();
  };
  PANDO_ASSIGN_OR_RETURN(std::optional<Found> found, Look(address));
  // In another life somebody else has it, who may live and be about to link it: others have swept
  // since this list was made.
  const auto is_another = [&] { return found.has_value() && found->node.life != orphan.life; };
  if (is_another()) return absl::OkStatus();
  if (found.has_value() && found->ours && found->marked && found->state != NodeState::kDead) {
    PANDO_ASSIGN_OR_RETURN(const bool finished, FinishMerge(*found));
    if (!finished) return leave();
    PANDO_ASSIGN_OR_RETURN(found, Look(address));
    if (is_another()) return absl::OkStatus();
  }
  if (!found.has_value() || !found->ours) return leave();
  // A living holder may yet link a spare node; of a dead one's merge it knows nothing.
  std::optional<uint64_t> asked;
  if (found->state != NodeState::kDead) {
    if (orphan.incarnation == 0) return absl::OkStatus();  // on record as the tree's, and is
    OperationContext asking(context_, UntilNs(thorough_ ? kNeverNs : kAskNsMax));
    const absl::StatusOr<bool> dead = holders_.IsDeadEverywhere(
        asking, orphan.compute_server, orphan.incarnation, &asked.emplace());
    if (!dead.ok()) return Leave(dead.status());
    if (!*dead) return leave();
  }
  absl::StatusOr<bool> reachable = false;
  if (RuleHolds(Rule::kC5)) {
    // Who was stopped there may go on; but not each orphan that he holds up has that much time.
    const bool has_time = thorough_ && not_said_.ok();
    OperationContext looking(context_,
                             UntilNs(has_time ? std::max(kThoroughNsMax, WaitNs()) : WaitNs()));
    reachable = IsReachable(looking, *found);
    context_.cost += looking.cost;
  }
  if (!reachable.ok()) return Leave(reachable.status());
  std::vector<NodeLife>* decided = &settled_.nodes;
  if (!*reachable) {
    // The way down may have led over a server that the holder may still write to.
    if (asked.has_value() && *asked != context_.session.generation()) return leave();
    PANDO_ASSIGN_OR_RETURN(const bool condemned, Condemn(*found));
    if (!condemned) return leave();
    decided = &freed_.nodes;
  }
  decided->push_back({orphan.offset, found->node.life});
  return decided->size() == kNodesPerRequestMax ? Send(server) : absl::OkStatus();
}

absl::Status Sweep::Send(ServerId server) {
  ControlChannel& control = tree_.environment.control;
  freed_.tree_id = settled_.tree_id = tree_.id();
  if (!freed_.nodes.empty()) {
    PANDO_ASSIGN_OR_RETURN(
        const std::string body,
        control.Call(context_, server, ControlOpcode::kFreeNodes, EncodeNodeFree(freed_)));
    PANDO_ASSIGN_OR_RETURN(const NodesFreed freed, ParseNodesFreed(body));
    result_.freed += freed.count;
    freed_.nodes.clear();
  }
  if (!settled_.nodes.empty()) {
    PANDO_ASSIGN_OR_RETURN(
        const std::string body,
        control.Call(context_, server, ControlOpcode::kSettleNodes, EncodeNodeSettle(settled_)));
    PANDO_ASSIGN_OR_RETURN(const uint32_t count, ParseNodeCount(body));
    result_.settled += count;
    settled_.nodes.clear();
  }
  return absl::OkStatus();
}

absl::Status Sweep::Run(ServerId server) {
  NodeQuery query{.tree_id = tree_.id(), .max = kNodesPerRequestMax};
  // What had to be left, or took all of the time, keeps no other waiting.
  if (!thorough_) query.after_offset = tree_.sweep_places.Of(server);
  bool goes_round = query.after_offset != 0;
  size_t looked_at = 0;
  const int64_t begun_ns = context_.session.NowNs();
  const int64_t until_ns =
      context_.deadline_ns() - (context_.deadline_ns() - begun_ns) / kPartForSending;
  while (true) {
    PANDO_ASSIGN_OR_RETURN(
        const std::string body,
        tree_.environment.control.Call(context_, server, ControlOpcode::kListOrphans,
                                       EncodeNodeQuery(query)));
    PANDO_ASSIGN_OR_RETURN(const OrphanList list, ParseOrphanList(body));
    absl::Status decided;
    for (const Orphan& orphan : list.orphans) {
      if (!thorough_ && looked_at++ == kLookedAtMax) return Send(server);
      if (context_.session.NowNs() >= until_ns) decided = context_.DeadlineError("sweeping");
      if (decided.ok()) {
        if (!thorough_) tree_.sweep_places.Set(server, orphan.offset);
        decided = Decide(server, orphan);
      }
      if (!decided.ok()) break;
    }
    const absl::Status sent = Send(server);
    PANDO_RETURN_IF_ERROR(decided);
    PANDO_RETURN_IF_ERROR(sent);
    if (list.more != 0 && list.next <= query.after_offset) {
      return absl::DataLossError("a memory server lists its orphans in circles");
    }
    query.after_offset = list.more != 0 ? list.next : 0;
    if (!thorough_) tree_.sweep_places.Set(server, query.after_offset);
    if (list.more == 0 && !std::exchange(goes_round, false)) return not_said_;
    if (context_.session.NowNs() >= until_ns) return context_.DeadlineError("sweeping");
  }
}

}  // namespace

int64_t SweepDeadlineNs(OperationContext& context, bool thorough) {
  if (thorough) return context.deadline_ns();
  return std::min(context.deadline_ns(), context.session.NowNs() + kOwnSweepNsMax);
}

void FlushBeforeSweep(OperationContext& context, const TreeContext& tree, int64_t until_ns) {
  const int64_t now_ns = context.session.NowNs();
  OperationContext flushing(context, now_ns + (until_ns - now_ns) / 2);
  tree.environment.allocator.FlushTree(flushing, tree.id());
  context.cost += flushing.cost;
}

absl::Status SweepTree(OperationContext& context, TreeContext& tree, bool thorough,
                       SweepResult* result) {
  *result = {};
  const int64_t until_ns = SweepDeadlineNs(context, thorough);
  FlushBeforeSweep(context, tree, until_ns);
  HolderStates holders(tree);
  absl::Status first;
  const std::vector<ServerId> servers = tree.environment.members.Ids();
  for (size_t i = 0; i < servers.size(); ++i) {
    const ServerId server = servers[i];
    // What one server takes is not the others' time.
    const int64_t now_ns = context.session.NowNs();
    const int64_t part_ns = (until_ns - now_ns) / static_cast<int64_t>(servers.size() - i);
    OperationContext part(context, thorough ? until_ns : now_ns + part_ns);
    absl::Status status = Sweep(part, tree, thorough, &holders, result).Run(server);
    context.cost += part.cost;
    // One that is gone may be none of the tree's.
    if (absl::IsUnavailable(status) && !IsRecoverable(status)) {
      const absl::StatusOr<bool> counts = tree.MayHaveNodesOn(part, server);
      if (counts.ok() && !*counts) status = absl::OkStatus();
    }
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace pando
