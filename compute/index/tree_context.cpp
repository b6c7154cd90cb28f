#include "compute/index/tree_context.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/lock_word.h"

namespace pando {
namespace {

auto IsSame(const MissingSeparator& separator) {
  return [&separator](const MissingSeparator& other) {
    return other.parent_level == separator.parent_level && other.separator == separator.separator;
  };
}

}  // namespace

absl::Status LostNodesError(const std::string& tree, ServerId server) {
  return absl::DataLossError(
      absl::StrCat("tree '", tree, "' had nodes on memory server ", server,
                   ", which has started again without them: drop the tree and create it again"));
}

absl::Status DroppedTreeError(const std::string& tree, const std::string& detail) {
  return absl::FailedPreconditionError(absl::StrCat("tree '", tree, "' was dropped", detail));
}

absl::StatusOr<LockTarget> TreeContext::NodeLock(const Reference& node) const {
  const ServerId server = node.address.server();
  const uint32_t words = environment.hocl.Words(server);
  if (words == 0) [[unlikely]] {
    return absl::UnavailableError(
        absl::StrCat("tree '", entry.name, "' has a node on memory server ", server,
                     ", which this client does not find: is it running?"));
  }
  return LockTarget{.server = server,
                    .word = LockIndex(node.address, words),
                    .node = node,
                    .read_offset = node.address.offset(),
                    .read_bytes = layout.node_bytes()};
}

LockTarget TreeContext::RootLock() const {
  return {.server = entry.root_record.server(),
          .word = entry.root_lock_index,
          .node = {entry.root_record, 0},
          .read_offset = entry.root_record.offset(),
          .read_bytes = kLineBytes};
}

absl::StatusOr<TreeServerList> TreeContext::ServersOnRecord(OperationContext& context) const {
  // The root record lies on the catalog's server.
  PANDO_ASSIGN_OR_RETURN(
      const std::string body,
      environment.control.Call(context, entry.root_record.server(), ControlOpcode::kListTreeServers,
                               EncodeTreeId(id())));
  return ParseTreeServers(body);
}

absl::Status TreeContext::CheckFate() const {
  const absl::Status status = fate.status();
  return absl::IsFailedPrecondition(status) ? absl::NotFoundError(status.message()) : status;
}

absl::StatusOr<bool> TreeContext::MayHaveNodesOn(OperationContext& context, ServerId server) const {
  PANDO_ASSIGN_OR_RETURN(const TreeServerList on_record, ServersOnRecord(context));
  return std::any_of(on_record.begin(), on_record.end(),
                     [server](const TreeServer& on) { return on.server == server; });
}

absl::Status TreeContext::CheckServers(OperationContext& context, bool waits) const {
  PANDO_RETURN_IF_ERROR(CheckFate());
  ControlChannel& control = environment.control;
  PANDO_ASSIGN_OR_RETURN(const TreeServerList servers, ServersOnRecord(context));
  for (const TreeServer& on : servers) {
    if (waits) (void)context.AwaitServer(on.server);
    context.session.AdoptServers();
    const uint64_t life = context.session.LifeOf(on.server);
    if (life == 0) {
      return absl::UnavailableError(absl::StrCat("tree '", entry.name,
                                                 "' has nodes on memory server ", on.server,
                                                 ", which is not there"));
    }
    const absl::Status there = control.Call(context, on.server, ControlOpcode::kPing, "").status();
    if (!there.ok()) {
      return Annotate(there, absl::StrCat("tree '", entry.name, "' has nodes there"));
    }
    if (life == on.life) continue;
    // It has answered after the catalog: what is on record there is over, and not its next life.
    if (context.session.LifeOf(on.server) == life) return LostNodesError(entry.name, on.server);
    return absl::UnavailableError(
        absl::StrCat("memory server ", on.server, " has just started again: ask again"));
  }
  return absl::OkStatus();
}

absl::Status TreeContext::Refill(OperationContext& context, ServerId preferred) {
  return RefillPool(context, id(), layout.node_bytes(), preferred);
}

absl::Status TreeContext::RefillCells(OperationContext& context, uint16_t lines) {
  return RefillPool(context, {id(), lines}, lines * kLineBytes, 0);
}

absl::Status TreeContext::RefillPool(OperationContext& context, NodePoolId pool, uint32_t bytes,
                                     ServerId preferred) {
  NodeAllocator& allocator = environment.allocator;
  const absl::Status status = allocator.Refill(context, pool, bytes, preferred);
  if (!allocator.TakeOrphanHint(id()) && !absl::IsResourceExhausted(status)) return status;
  // One session at a time, and not all the time: a full tree has nothing to sweep most of the time.
  const int64_t now_ns = context.session.NowNs();
  int64_t next_ns = next_sweep_ns_.load(std::memory_order_relaxed);
  // An operation may refill several times: a later one takes nothing back, or nobody sweeps.
  if (now_ns >= next_ns && next_sweep_ns_.compare_exchange_strong(
                               next_ns, now_ns + environment.times.sweep_interval_ns)) {
    context.sweep_due = true;
  }
  return status;
}

void TreeContext::GiveBackSweep(OperationContext& context) {
  if (!std::exchange(context.sweep_due, false)) return;
  next_sweep_ns_.store(0, std::memory_order_relaxed);
}

bool TreeContext::BeginSeparator(const MissingSeparator& separator) {
  std::lock_guard lock(separators_mutex_);
  if (std::any_of(separators_.begin(), separators_.end(), IsSame(separator))) return false;
  separators_.push_back(separator);
  return true;
}

void TreeContext::EndSeparator(const MissingSeparator& separator) {
  std::lock_guard lock(separators_mutex_);
  std::erase_if(separators_, IsSame(separator));
}

bool TreeContext::IsInsertingSeparatorOf(const Reference& child, uint8_t parent_level) {
  std::lock_guard lock(separators_mutex_);
  return std::any_of(separators_.begin(), separators_.end(), [&](const MissingSeparator& other) {
    return other.parent_level == parent_level && other.child == child;
  });
}

}  // namespace pando
