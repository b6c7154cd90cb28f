#include "compute/index/write_back.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "common/fabric/server_index.h"

namespace pando {
namespace {

// After a chain to the node that ended in `why`. Only READs: a WRITE that is repeated may hit what
// somebody else was given, once its first try has landed.
bool NothingInFlight(OperationContext& context, const TimeConstants& times, RemoteAddress node,
                     const absl::Status& why) {
  if (!absl::IsUnavailable(why)) return true;
  // As long, and as often, as where a lock's chain failed (lock_recovery.h).
  const int64_t give_up_ns =
      std::min(context.deadline_ns(), context.session.NowNs() + times.lock_recovery_ns);
  const absl::StatusOr<BufferLease> line = context.session.buffers().Lease(kLineBytes);
  if (!line.ok() || !RuleHolds(Rule::kR6)) return false;
  absl::Status status = why;
  ChainLease chain(&context.session.buffers());
  while ((IsRecoverable(status) || absl::IsAborted(status)) &&
         context.session.NowNs() < give_up_ns) {
    context.session.scheduler().SleepUntil(context.session.NowNs() + times.lock_recovery_poll_ns);
    chain->Reset(node.server());
    chain->Read(MemorySpace::kMain, node.offset(), line->buffer());
    status = context.Await(chain.get());
  }
  return status.ok();
}

}  // namespace

WriteBack::WriteBack(OperationContext& context, const TreeContext& tree, ServerId server)
    : context_(context), tree_(tree), chain_(&context.session.buffers()) {
  chain_->Reset(server);
}

absl::Status WriteBack::AddRaw(RemoteAddress at, LocalBuffer bytes) {
  if (chain_->size() + 1 >= static_cast<size_t>(Chain::kMaxVerbs)) PANDO_RETURN_IF_ERROR(Flush());
  chain_->Write(MemorySpace::kMain, at.offset(), bytes);
  return absl::OkStatus();
}

absl::Status WriteBack::Add(const LineRuns& runs, RemoteAddress node, LocalBuffer image) {
  for (const LineRun& run : runs) {
    const RemoteAddress at(node.server(), node.offset() + run.offset_bytes());
    PANDO_RETURN_IF_ERROR(AddRaw(at, image.Slice(run.offset_bytes(), run.bytes())));
  }
  return absl::OkStatus();
}

absl::Status WriteBack::AddNodeHeaderFirst(RemoteAddress node, LocalBuffer image) {
  // A WRITE of its own: the lines of one WRITE land in any order.
  PANDO_RETURN_IF_ERROR(AddRaw(node, image.Slice(0, kLineBytes)));
  return Add(NodeRuns(tree_.layout, 1, tree_.entry.shape.packet_bytes), node, image);
}

absl::Status WriteBack::AddNodeHeaderLast(RemoteAddress node, LocalBuffer image) {
  PANDO_RETURN_IF_ERROR(
      Add(NodeRuns(tree_.layout, 1, tree_.entry.shape.packet_bytes), node, image));
  return AddRaw(node, image.Slice(0, kLineBytes));
}

absl::Status WriteBack::AddNode(RemoteAddress node, LocalBuffer image) {
  return Add(NodeRuns(tree_.layout, 0, tree_.entry.shape.packet_bytes), node, image);
}

absl::Status WriteBack::Flush() {
  if (chain_->size() == 0) return absl::OkStatus();
  posted_ = true;
  life_ = context_.session.LifeOf(chain_->server());
  PANDO_RETURN_IF_ERROR(context_.Await(chain_.get()));
  chain_->Reset(chain_->server());
  return absl::OkStatus();
}

absl::Status WriteBack::Release(HeldLock&& lock, const std::byte* image) {
  posted_ = posted_ || chain_->size() > 0;
  return tree_.environment.hocl.Release(context_, std::move(lock), chain_.get(), image);
}

absl::Status WriteBackFailed(const absl::Status& status) {
  return OutcomeUnknownError(absl::StrCat("write-back failed: ", status.ToString()));
}

bool AbandonNode(OperationContext& context, TreeContext& tree, RemoteAddress node,
                 LocalBuffer image, const absl::Status& why) {
  NodeAllocator& allocator = tree.environment.allocator;
  SetMarker(image.data, NodeState::kDead, Reference{});
  SealEntryLevel(image.data, 0, 1, tree.environment.crc);
  // If the failed WRITE may be in flight, a READ of the node succeeds first: then the WRITE cannot
  // land on the mark any more. The mark is posted once: after one that has landed a sweep may have
  // given the node away (rule R6).
  if (NothingInFlight(context, tree.environment.times, node, why)) {
    WriteBack writes(context, tree, node.server());
    absl::Status marked = writes.AddRaw(node, image.Slice(0, kLineBytes));
    if (marked.ok()) marked = writes.Flush();
    if (marked.ok()) {
      allocator.Free(tree.id(), {node, LifeOf(image.data)});
      return true;
    }
  }
  allocator.NoteUncertain(tree.id(), node.server());
  return false;
}

namespace {

// The siblings that lie on other servers than the node that is split.
class Elsewhere {
 public:
  Elsewhere(OperationContext& context, TreeContext& tree, ServerId here)
      : context_(context), tree_(tree), here_(here) {}

  // Adds them to chains, which may be posted where they are full.
  absl::Status Add(absl::Span<const NewNode> siblings) {
    for (const NewNode& sibling : siblings) {
      const RemoteAddress at = sibling.spare.address;
      if (at.server() == here_) continue;
      if (Find(at.server()) == nullptr) {
        writes_.push_back(std::make_unique<WriteBack>(context_, tree_, at.server()));
        posts_.push_back(writes_.back().get());
      }
      PANDO_RETURN_IF_ERROR(Find(at.server())->AddNode(at, sibling.image.buffer()));
    }
    return absl::OkStatus();
  }
  // With `also`, which goes with them.
  absl::Status Flush(WriteBack* also = nullptr) {
    std::vector<WriteBack*> all = posts_;
    if (also != nullptr) all.push_back(also);
    return all.empty() ? absl::OkStatus() : WriteBack::FlushAll(context_, all);
  }
  // After Add() or Flush() has failed: nothing will ever refer to any of the siblings (rule R6).
  // Waits: not under a lock.
  void GiveUp(std::vector<NewNode> siblings) {
    NodeAllocator& allocator = tree_.environment.allocator;
    std::vector<ServerId> unsettled;
    for (NewNode& sibling : siblings) {
      const RemoteAddress at = sibling.spare.address;
      const WriteBack* const writes = Find(at.server());
      if (writes != nullptr && writes->posted()) {
        allocator.NoteFailure(at.server(), writes->life(), writes->last_status());
      }
      if (writes == nullptr || !writes->posted()) {
        allocator.PutBack(tree_.id(), std::move(sibling.spare));
      } else if (std::find(unsettled.begin(), unsettled.end(), at.server()) == unsettled.end() &&
                 !AbandonNode(context_, tree_, at, sibling.image.buffer(), writes->last_status())) {
        unsettled.push_back(at.server());  // a sweep finds the others, too
      }
    }
  }

 private:
  WriteBack* Find(ServerId server) const {
    const auto found = std::find_if(posts_.begin(), posts_.end(), [server](const auto* writes) {
      return writes->server() == server;
    });
    return found == posts_.end() ? nullptr : *found;
  }

  OperationContext& context_;
  TreeContext& tree_;
  const ServerId here_;
  std::vector<std::unique_ptr<WriteBack>> writes_;
  std::vector<WriteBack*> posts_;
};

}  // namespace

absl::Status WriteBack::FlushAll(OperationContext& context, absl::Span<WriteBack* const> all) {
  if (all.size() == 1) return all.front()->Flush();
  std::vector<Chain*> chains;
  for (WriteBack* const writes : all) {
    writes->posted_ = true;
    writes->life_ = context.session.LifeOf(writes->server());
    chains.push_back(writes->chain_.get());
  }
  const absl::Status together = context.AwaitAll(chains);
  absl::Status status;
  for (WriteBack* const writes : all) {
    Chain& chain = *writes->chain_;
    absl::Status own = chain.done() ? chain.status() : together;
    // The client has nodes there, but this session has not taken the server up yet.
    if (IsNotConnected(own)) own = writes->Flush();
    if (own.ok()) chain.Reset(chain.server());
    if (status.ok()) status = own;
  }
  return status;
}

absl::Status WriteSplit(OperationContext& context, TreeContext& tree, HeldLock lock,
                        std::vector<NewNode> siblings, LocalBuffer image) {
  Hocl& hocl = tree.environment.hocl;
  const RemoteAddress node = lock.target().node.address;
  WriteBack writes(context, tree, node.server());
  Elsewhere elsewhere(context, tree, node.server());
  // The variant of S4 writes the first one, and commits.
  const auto early =
      absl::MakeConstSpan(siblings).first(RuleHolds(Rule::kS4) ? siblings.size() : 1);
  const auto late = absl::MakeConstSpan(siblings).subspan(early.size());
  absl::Status status = elsewhere.Add(early);
  // Chains to two servers have no order: the siblings elsewhere are complete before line 0 of the
  // node makes them reachable (rules S1, L7).
  if (status.ok() && RuleHolds(Rule::kL7)) status = elsewhere.Flush();
  if (!status.ok()) {
    // Nothing refers to the siblings, and nothing was posted here: the next waiter for the lock
    // goes on, and reads the node afresh.
    (void)writes.Release(std::move(lock), nullptr);
    elsewhere.GiveUp(std::move(siblings));
    return status;
  }
  const auto add_here = [&](absl::Span<const NewNode> nodes) {
    for (const NewNode& sibling : nodes) {
      if (!status.ok() || sibling.spare.address.server() != node.server()) continue;
      status = writes.AddNode(sibling.spare.address, sibling.image.buffer());
    }
  };
  // One chain, in this order: the siblings here, line 0 of the node, which commits, its other
  // lines. A death behind line 0 leaves moved slots in the node; they lie outside its fences, and
  // the next holder's repair drops them (rules S2, C4).
  if (RuleHolds(Rule::kS1)) add_here(early);
  if (status.ok()) status = writes.AddNodeHeaderFirst(node, image);
  if (!RuleHolds(Rule::kS1)) add_here(early);  // the variant commits first
  add_here(late);
  // The variant does not wait for the other servers.
  if (status.ok() && !RuleHolds(Rule::kL7)) status = elsewhere.Flush(&writes);
  if (!status.ok()) {
    tree.environment.allocator.NoteUncertain(tree.id());
    hocl.LeaveToFencing(context, std::move(lock), status);
    return WriteBackFailed(status);
  }
  status = writes.Release(std::move(lock), image.data);
  if (status.ok() && !late.empty()) {
    Elsewhere at_last(context, tree, node.server());
    if (at_last.Add(late).ok()) (void)at_last.Flush();
  }
  if (status.ok()) return status;
  tree.environment.allocator.NoteUncertain(tree.id());
  return WriteBackFailed(status);
}

}  // namespace pando
