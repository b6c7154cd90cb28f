#include <memory>
#include <string>
#include <utility>

#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/index/descend.h"
#include "compute/index/held_node.h"
#include "compute/index/leaf_write.h"
#include "compute/index/operations.h"

namespace pando {

absl::Status WriteKey(OperationContext& context, TreeContext& tree, const WriteOperation& operation,
                      std::string* answer) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree.layout.node_bytes()));
  Descent descent(context, tree, operation.key, 0);
  HeldNode leaf(context, tree, image.buffer(), Rule::kU1);
  std::shared_ptr<WriteRequest> request;
  const auto delegate = [&]() -> LockRequestPtr {
    request = std::make_shared<WriteRequest>(&context.session.scheduler(), context.deadline_ns(),
                                             tree.id(), descent.node(), operation);
    return request;
  };
  // An erase has to know how full the leaf is.
  const bool narrow = tree.narrow_writes && !MayErase(operation.kind);
  while (true) {
    PANDO_ASSIGN_OR_RETURN(const HeldNode::Attempt attempt,
                           narrow ? leaf.HoldWindow(descent, MayAdd(operation.kind), delegate)
                                  : leaf.HoldOrDelegate(descent, delegate));
    if (attempt == HeldNode::Attempt::kExecuted) {
      if (answer != nullptr) *answer = std::move(request->answer);
      return request->result;
    }
    if (attempt != HeldNode::Attempt::kHeld) [[unlikely]]
      continue;
    FenceScratch scratch;
    if (descent.moved_right()) descent.Accepted(LowFence(image.data(), tree.layout, &scratch));
    absl::Status status;
    // The caller's string gets it last: key and operand may be views of that.
    std::string said;
    const RunWrite write = {&operation, &status, answer != nullptr ? &said : nullptr};
    LeafWrite leaf_write(context, tree, image.buffer());
    size_t done = 1;
    if (leaf.window_only()) {
      leaf_write.ExecuteInWindow(leaf.TakeLock(), write, leaf.match().slot);
    } else {
      done = leaf_write.Execute(leaf.TakeLock(), {&write, 1}, leaf.match().slot);
    }
    if (!RuleHolds(Rule::kU5) && IsOutcomeUnknown(status) && !context.expired()) continue;
    if (done > 0) {
      if (answer != nullptr) answer->assign(said);
      return status;
    }
    PANDO_RETURN_IF_ERROR(tree.Refill(context, descent.node().address.server()));
  }
}

}  // namespace pando
