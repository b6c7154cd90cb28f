// Writing a held node back: packets of a chain, and the split's two steps (rules F6, L4, S1, S2).
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/wire/line_run.h"
#include "compute/core/buffer_pool.h"
#include "compute/core/node_allocator.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"
#include "compute/lock/hocl.h"

namespace pando {

// Gathers the WRITEs of one node (or of two on one server) into a chain; posts in between when the
// chain is full, always leaving room for the release. Not thread-safe. The image must stay until
// the chain is done.
class WriteBack {
 public:
  WriteBack(OperationContext& context, const TreeContext& tree, ServerId server);

  absl::Status Add(const LineRuns& runs, RemoteAddress node, LocalBuffer image);
  // Line 0 by itself, then the rest: the order of rules S2 and C4.
  absl::Status AddNodeHeaderFirst(RemoteAddress node, LocalBuffer image);
  // The other way round: the order of rule M4.
  absl::Status AddNodeHeaderLast(RemoteAddress node, LocalBuffer image);
  absl::Status AddNode(RemoteAddress node, LocalBuffer image);
  absl::Status AddRaw(RemoteAddress at, LocalBuffer bytes);

  // Posts what is left, without a release (private nodes, or a node on another server).
  absl::Status Flush();
  // Posts what is left with the release of the lock, or hands it over; `image` goes with a
  // handover.
  absl::Status Release(HeldLock&& lock, const std::byte* image);
  // True once a WRITE may have reached the server.
  bool posted() const { return posted_; }
  // All that was added was posted, and has succeeded.
  bool all_written() const { return posted_ && chain_->size() == 0; }
  ServerId server() const { return chain_->server(); }

  // Flush() of several at once, each to another server. The first error.
  static absl::Status FlushAll(OperationContext& context, absl::Span<WriteBack* const> all);
  // How the last chain ended that was posted, and to which life of the server Flush() posted it.
  const absl::Status& last_status() const { return chain_->status(); }
  uint64_t life() const { return life_; }

 private:
  OperationContext& context_;
  const TreeContext& tree_;
  ChainLease chain_;
  bool posted_ = false;
  uint64_t life_ = 0;
};

// The outcome of an operation whose write-back failed: unknown (rule L5), whatever the fabric said.
absl::Status WriteBackFailed(const absl::Status& status);

// Rule R6, for a private node whose WRITE ended in `why`: it may be in flight, and nothing will
// ever refer to the node. `image`: as sealed for it; its line 0 is changed. READs the node until
// that succeeds: then nothing else is in flight to it (rule L5). Marks it dead, once, and frees it.
// False: not within the operation's deadline, or the server is gone; a sweep has to free the node
// then. Waits: not under a lock.
bool AbandonNode(OperationContext& context, TreeContext& tree, RemoteAddress node,
                 LocalBuffer image, const absl::Status& why);

// A private node that is going to be linked: what its memory held, and its image, sealed.
struct NewNode {
  SpareNode spare;
  BufferLease image;
};

// A split of the held node L, its image sealed, into L and its new siblings, in their order (rules
// S1, S2, S4): each refers to the next, L to the first. Takes the siblings. Unknown: S2 may have
// happened. Any other error: another server did not take one; no effect, and all are abandoned or
// spare again.
absl::Status WriteSplit(OperationContext& context, TreeContext& tree, HeldLock lock,
                        std::vector<NewNode> siblings, LocalBuffer image);

}  // namespace pando
