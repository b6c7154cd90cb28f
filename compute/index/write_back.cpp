#include "compute/index/write_back.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"

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
  allocator.NoteFailure(node.server(), why);
  SetMarker(image.data, NodeState::kDead, Reference{});
  SealEntryLevel(image.data, 0, 1, tree.environment.crc);
  if (NothingInFlight(context, tree.environment.times, node, why)) {
    WriteBack writes(context, tree, node.server());
    absl::Status marked = writes.AddRaw(node, image.Slice(0, kLineBytes));
    if (marked.ok()) marked = writes.Flush();
    if (marked.ok()) {
      allocator.Free(tree.id(), {node, LifeOf(image.data)});
      return true;
    }
  }
  allocator.NoteUncertain(tree.id());
  return false;
}

absl::Status WriteSplit(OperationContext& context, TreeContext& tree, HeldLock lock,
                        RemoteAddress sibling, LocalBuffer sibling_image, LocalBuffer image) {
  Hocl& hocl = tree.environment.hocl;
  const RemoteAddress node = lock.target().node.address;
  WriteBack writes(context, tree, node.server());
  absl::Status status;
  if (sibling.server() == node.server()) {
    if (RuleHolds(Rule::kS1)) status = writes.AddNode(sibling, sibling_image);
  } else if (!RuleHolds(Rule::kL7)) {  // the variant does not wait for the other server
    WriteBack elsewhere(context, tree, sibling.server());
    PANDO_CHECK_OK(elsewhere.AddNode(sibling, sibling_image));
    PANDO_CHECK_OK(writes.AddNodeHeaderFirst(node, image));
    Chain* const chains[] = {elsewhere.chain_.get(), writes.chain_.get()};
    status = context.AwaitAll(chains);
    writes.chain_->Reset(node.server());
  } else {
    WriteBack elsewhere(context, tree, sibling.server());
    status = elsewhere.AddNode(sibling, sibling_image);
    if (status.ok()) status = elsewhere.Flush();
    if (!status.ok()) {
      // Nobody refers to the sibling, and nothing was posted here: whoever waits for the lock goes
      // on, and reads the node afresh.
      (void)writes.Release(std::move(lock), nullptr);
      (void)AbandonNode(context, tree, sibling, sibling_image, status);
      return status;
    }
  }
  if (status.ok()) status = writes.AddNodeHeaderFirst(node, image);
  if (!RuleHolds(Rule::kS1) && sibling.server() == node.server()) {
    status = writes.AddNode(sibling, sibling_image);  // the variant commits first
  }
  if (!status.ok()) {
    tree.environment.allocator.NoteUncertain(tree.id());
    hocl.LeaveToFencing(context, std::move(lock), status);
    return WriteBackFailed(status);
  }
  status = writes.Release(std::move(lock), image.data);
  if (status.ok()) return status;
  tree.environment.allocator.NoteUncertain(tree.id());
  return WriteBackFailed(status);
}

}  // namespace pando
