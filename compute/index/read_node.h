// Reading nodes and the root record: READ, classify, retry (rules V1, V4, F2).
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/node_image.h"
#include "common/wire/node_repair.h"
#include "common/wire/root_record.h"
#include "compute/core/buffer_pool.h"
#include "compute/core/session_context.h"
#include "compute/index/tree_context.h"

namespace pando {

// What a READ of one node is meant to find.
inline NodeExpectation Expect(const TreeContext& tree, const Reference& node, uint8_t level,
                              std::string_view key) {
  return {.tree_id = tree.id(), .level = level, .life = node.life, .key = key};
}

inline bool TookLonger(const TreeContext& tree, const Chain& chain, int64_t limit_ns) {
  const int64_t took_ns = chain.completed_ns() - chain.started_ns();
  return (took_ns > tree.read_max_ns && RuleHolds(Rule::kR3)) ||
         (took_ns > limit_ns && RuleHolds(Rule::kF2Slow));
}
// True if a READ of a node may have taken so long that a version came around (rule F2), or that
// the node was freed, has rested and lives again (rule R3): any one of the chain's, however many
// there are.
inline bool ReadTookTooLong(const TreeContext& tree, const Chain& chain) {
  return TookLonger(tree, chain, tree.read_limits.node_ns);
}
// The same for READs that want lines which are each good by themselves: the root record, a header.
inline bool LinesTookTooLong(const TreeContext& tree, const Chain& chain) {
  return TookLonger(tree, chain, tree.read_limits.line_ns);
}

// One READ; kTorn also where it was interrupted or too slow (rule F2).
inline absl::StatusOr<NodeVerdict> ReadOnce(OperationContext& context, const TreeContext& tree,
                                            const Reference& node,
                                            const NodeExpectation& expectation, LocalBuffer image,
                                            LeafMatch* match, Chain* chain) {
  chain->Reset(node.address.server());
  chain->Read(MemorySpace::kMain, node.address.offset(), image);
  const absl::Status read = context.Await(chain);
  if (!read.ok()) [[unlikely]] {
    if (absl::IsAborted(read)) return NodeVerdict::kTorn;
    return read;
  }
  if (ReadTookTooLong(tree, *chain)) [[unlikely]]
    return NodeVerdict::kTorn;
  return Classify(image.data, tree.layout, expectation, tree.environment.crc, match);
}

// Rule N2: one chain of READs of line 0 and the key's window, or its near groups, into their places
// in `image`, of a leaf to which its parent led; where a flag asks for it, or the key is not near,
// another chain, for the other lines. Found,
// absent, or kUnclear, also where a READ was interrupted or too slow: READ the leaf.
absl::StatusOr<WindowVerdict> ReadWindow(OperationContext& context, TreeContext& tree,
                                         const Reference& leaf, std::string_view key,
                                         LocalBuffer image, LeafMatch* match);
// With another chain, unless that is done (OperationContext::AwaitWith()).
absl::StatusOr<WindowVerdict> ReadWindowWith(OperationContext& context, TreeContext& tree,
                                             const Reference& leaf, std::string_view key,
                                             LocalBuffer image, LeafMatch* match, Chain* along);

// ReadNode() from the second READ on.
absl::StatusOr<NodeVerdict> ReadTornNode(OperationContext& context, TreeContext& tree,
                                         const Reference& node, uint8_t level, std::string_view key,
                                         LocalBuffer image, LeafMatch* match);

// READs the node until its image is not torn; a READ that the fabric was interrupted in and gave up
// (Aborted, rule F2) counts as one. The verdict is accepted, stale or moved; never torn. A node
// that a dead client left torn is repaired (rule V4), so not under a node lock; what is torn and
// not the node meant is stale. DeadlineExceeded when it stays torn.
inline absl::StatusOr<NodeVerdict> ReadNode(OperationContext& context, TreeContext& tree,
                                            const Reference& node, uint8_t level,
                                            std::string_view key, LocalBuffer image,
                                            LeafMatch* match = nullptr) {
  // Inline, for the sake of the returns behind a suspension (common/sched/README.md).
  {
    ChainLease chain(&context.session.buffers());
    PANDO_ASSIGN_OR_RETURN(
        const NodeVerdict verdict,
        ReadOnce(context, tree, node, Expect(tree, node, level, key), image, match, chain.get()));
    if (verdict != NodeVerdict::kTorn) [[likely]]
      return verdict;
  }
  return ReadTornNode(context, tree, node, level, key, image, match);
}

// The same for a leaf; another chain goes along with its first READ, unless that is done.
absl::StatusOr<NodeVerdict> ReadLeafWith(OperationContext& context, TreeContext& tree,
                                         const Reference& leaf, std::string_view key,
                                         LocalBuffer image, LeafMatch* match, Chain* along);

// The same for holders of another lock, who may not wait for long or take this one (rule L2): gives
// up with kTorn after a few READs. Aborted, and `*unknown` is set: the node lies on a memory server
// that is to be waited for under no lock.
absl::StatusOr<NodeVerdict> TryReadNode(OperationContext& context, const TreeContext& tree,
                                        const Reference& node, uint8_t level, std::string_view key,
                                        LocalBuffer image, Reference* unknown);

// A node that is READ with others.
struct NodeRead {
  Reference node;
  BufferLease image;
  // The READ succeeded, and was fast enough to be trusted (rule F2).
  bool timely = false;
};
// READs the nodes once each, posted together: one chain a server where they fit. Waits.
void ReadTogether(OperationContext& context, const TreeContext& tree, absl::Span<NodeRead> reads);

// What the header lines say, also of a node that is torn behind them; for holders of another lock.
// Empty: it is not the node meant, or its header stays torn. Aborted: as of TryReadNode().
absl::StatusOr<std::optional<NodeEdges>> ReadNodeEdges(OperationContext& context,
                                                       const TreeContext& tree,
                                                       const Reference& node, uint8_t level,
                                                       Reference* unknown);

// READs a node's bytes, whatever they are.
absl::Status ReadRaw(OperationContext& context, const TreeContext& tree, RemoteAddress node,
                     LocalBuffer image);

// READs the root record and refreshes the tree's hint. FailedPrecondition: the tree was dropped and
// its memory given back (the record says so, or is another tree's).
absl::StatusOr<RootRecord> ReadRoot(OperationContext& context, TreeContext& tree);

}  // namespace pando
