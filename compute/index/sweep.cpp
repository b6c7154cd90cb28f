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

class Sweep {
 public:
  Sweep(OperationContext& context, TreeContext& tree, SweepResult* result)
      : context_(context), tree_(tree), result_(*result) {}

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
  absl::StatusOr<bool> IsReachable(const Found& found);
  // Under its lock: of a node that was not reached, and that nobody will link. True: it is dead,
  // and nobody else will write there. False: it is locked, or has changed.
  absl::StatusOr<bool> Condemn(const Found& found);
  absl::Status Decide(ServerId server, const Orphan& orphan);
  absl::Status Send(ServerId server);

  OperationContext& context_;
  TreeContext& tree_;
  SweepResult& result_;
  HolderStates holders_{tree_};
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

absl::StatusOr<bool> Sweep::IsReachable(const Found& found) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context_.session.buffers().Lease(tree_.layout.node_bytes()));
  Descent descent(context_, tree_, found.low, found.level);
  while (true) {
    const absl::Status place = descent.Find();
    if (descent.above_root()) return false;
    PANDO_RETURN_IF_ERROR(place);
    PANDO_ASSIGN_OR_RETURN(
        const NodeVerdict verdict,
        ReadNode(context_, tree_, descent.node(), found.level, found.low, image.buffer()));
    if (verdict == NodeVerdict::kAccepted) return descent.node() == found.node;
    descent.Report(verdict,
                   verdict == NodeVerdict::kMovedRight ? RightOf(image.data()) : Reference{});
  }
}

absl::StatusOr<bool> Sweep::FinishMerge(const Found& found) {
  // What a stopped merger holds up is swept next time.
  const int64_t wait_ns = std::max(tree_.environment.times.sweep_wait_ns,
                                   kFinishMergeChains * context_.session.chain_ns());
  const int64_t until_ns = std::min(context_.deadline_ns(), context_.session.NowNs() + wait_ns);
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
    PANDO_ASSIGN_OR_RETURN(const bool dead,
                           holders_.IsDeadEverywhere(context_, orphan.compute_server,
                                                     orphan.incarnation, &asked.emplace()));
    if (!dead) return leave();
  }
  absl::StatusOr<bool> reachable = false;
  if (RuleHolds(Rule::kC5)) reachable = IsReachable(*found);
  PANDO_RETURN_IF_ERROR(reachable.status());
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
  while (true) {
    PANDO_ASSIGN_OR_RETURN(
        const std::string body,
        tree_.environment.control.Call(context_, server, ControlOpcode::kListOrphans,
                                       EncodeNodeQuery(query)));
    PANDO_ASSIGN_OR_RETURN(const OrphanList list, ParseOrphanList(body));
    for (const Orphan& orphan : list.orphans) PANDO_RETURN_IF_ERROR(Decide(server, orphan));
    PANDO_RETURN_IF_ERROR(Send(server));
    if (list.more == 0) return absl::OkStatus();
    if (list.next <= query.after_offset) {
      return absl::DataLossError("a memory server lists its orphans in circles");
    }
    if (context_.expired()) return context_.DeadlineError("sweeping");
    query.after_offset = list.next;
  }
}

}  // namespace

absl::Status SweepTree(OperationContext& context, TreeContext& tree, SweepResult* result) {
  *result = {};
  tree.environment.allocator.FlushTree(context, tree.id());
  absl::Status first;
  for (const ServerId server : tree.environment.members.Ids()) {
    absl::Status status = Sweep(context, tree, result).Run(server);
    // One that is gone may be none of the tree's.
    if (absl::IsUnavailable(status) && !IsRecoverable(status)) {
      const absl::StatusOr<bool> counts = tree.MayHaveNodesOn(context, server);
      if (counts.ok() && !*counts) status = absl::OkStatus();
    }
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace pando
