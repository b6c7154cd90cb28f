#include "compute/index/tree_context.h"

#include "absl/strings/str_cat.h"
#include "common/wire/lock_word.h"

namespace pando {

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

bool TreeContext::BeginSeparator(uint8_t level, std::string_view separator) {
  std::lock_guard lock(separators_mutex_);
  return separators_.emplace(level, separator).second;
}

void TreeContext::EndSeparator(uint8_t level, std::string_view separator) {
  std::lock_guard lock(separators_mutex_);
  separators_.erase(std::pair<int, std::string>(level, separator));
}

}  // namespace pando
