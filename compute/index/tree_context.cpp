#include "compute/index/tree_context.h"

#include "absl/strings/str_cat.h"
#include "common/wire/lock_word.h"

namespace pando {
namespace {

// Between two sweeps that a client makes by itself.
constexpr int64_t kSweepIntervalNs = kSecondNs;

}  // namespace

absl::StatusOr<LockTarget> TreeContext::NodeLock(const Reference& node) const {
  const ServerId server = node.address.server();
  const uint32_t words = environment.hocl.Words(server);
  if (words == 0) [[unlikely]] {
    return absl::UnavailableError(
        absl::StrCat("tree '", entry.name, "' has a node on memory server ", server,
                     ", which this client is not connected to: reconnect"));
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

absl::Status TreeContext::Refill(OperationContext& context, ServerId preferred) {
  NodeAllocator& allocator = environment.allocator;
  const absl::Status status = allocator.Refill(context, id(), layout.node_bytes(), preferred);
  if (!allocator.TakeOrphanHint(id()) && !absl::IsResourceExhausted(status)) return status;
  // One session at a time, and not all the time: a full tree has nothing to sweep most of the time.
  const int64_t now_ns = context.session.NowNs();
  int64_t next_ns = next_sweep_ns_.load(std::memory_order_relaxed);
  context.sweep_due = now_ns >= next_ns &&
                      next_sweep_ns_.compare_exchange_strong(next_ns, now_ns + kSweepIntervalNs);
  return status;
}

bool TreeContext::BeginSeparator(uint8_t level, std::string_view separator) {
  std::lock_guard lock(separators_mutex_);
  return separators_.emplace(level, separator).second;
}

void TreeContext::EndSeparator(uint8_t level, std::string_view separator) {
  std::lock_guard lock(separators_mutex_);
  separators_.erase(std::pair<int, std::string>(level, separator));
}

}  // namespace pando
