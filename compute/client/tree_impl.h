// What a Tree handle points to. Shared by all handles of one tree in a client; the last one
// detaches from the servers. Thread-safe.
#pragma once

#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "compute/owner/member.h"
#include "compute/route/routed_tree.h"
#include "pando/options.h"

namespace pando {

class ClientImpl;

inline TreeOptions::Mode ModeOf(const CatalogEntry& entry) {
  return entry.mode() == TreeMode::kOwned ? TreeOptions::Mode::kOwned : TreeOptions::Mode::kShared;
}

inline uint32_t InlineBytesOf(const TreeShape& shape) {
  return shape.has_cells ? shape.inline_value_bytes_max : shape.value_bytes_max;
}

class TreeImpl {
 public:
  // `member`: RoutedTree's.
  TreeImpl(ClientImpl* client, CatalogEntry entry, NodeLayout layout, IndexEnvironment* environment,
           Member* member)
      : routed_(std::move(entry), layout, environment, member), client_(*client) {}
  ~TreeImpl();

  RoutedTree& routed() { return routed_; }
  TreeContext& context() { return routed_.shared(); }
  const TreeContext& context() const { return routed_.shared(); }
  ClientImpl& client() const { return client_; }

  // Of an owned tree: has it known to the member, once. Outside coroutines.
  absl::Status Introduce(Member* member, int64_t deadline_ns) {
    std::lock_guard lock(introduction_mutex_);
    if (is_introduced_) return absl::OkStatus();
    const absl::Status introduced = member->Open(routed_.owned(), deadline_ns);
    is_introduced_ = introduced.ok();
    return introduced;
  }
  bool is_introduced() const {
    std::lock_guard lock(introduction_mutex_);
    return is_introduced_;
  }

 private:
  RoutedTree routed_;
  ClientImpl& client_;
  mutable std::mutex introduction_mutex_;
  bool is_introduced_ = false;
};

}  // namespace pando
