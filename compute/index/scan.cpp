#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/internal_node.h"
#include "common/wire/leaf.h"
#include "compute/index/descend.h"
#include "compute/index/operations.h"
#include "compute/index/read_node.h"

namespace pando {
namespace {

// Leaves read ahead in one round trip; bounds the buffers of a scan.
constexpr size_t kPrefetchLeavesMax = 16;

// Rule R2: the cursor is a key; only an accepted image that contains it is consumed.
class Scan {
 public:
  Scan(OperationContext& context, TreeContext& tree, std::string_view from, size_t limit,
       std::vector<KeyValue>* rows)
      : context_(context), tree_(tree), cursor_(from), limit_(limit), rows_(*rows) {}

  absl::Status Run() {
    while (rows_.size() < limit_ && !at_end_) {
      if (advanced_ && context_.expired()) return context_.DeadlineError("scanning");
      PANDO_RETURN_IF_ERROR(Prefetch());
      for (size_t i = 0; i < leaves_.size() && rows_.size() < limit_ && !at_end_; ++i) {
        if (!TryConsume(leaves_[i])) break;
      }
      if (rows_.size() < limit_ && !at_end_ && !advanced_) PANDO_RETURN_IF_ERROR(ReadOneLeaf());
    }
    return absl::OkStatus();
  }

 private:
  struct Leaf {
    Reference node;
    BufferLease image;
    bool timely = false;  // the READ was fast enough to be trusted (rule F2)
  };

  // READs the leaves under the cached level-1 node that covers the cursor, as many as the limit
  // seems to need, posted together. None where that node is not cached or the tree is a single
  // leaf.
  absl::Status Prefetch();
  std::vector<Reference> ChildrenAtCursor();
  absl::Status ReadLeaves();
  // Takes what the image holds from the cursor on. False: it is not the leaf at the cursor (any
  // more), or torn.
  bool TryConsume(const Leaf& leaf);
  bool Consume(const std::byte* image);
  // The slow way: finds the leaf at the cursor by descending and reads it until it is accepted.
  absl::Status ReadOneLeaf();

  OperationContext& context_;
  TreeContext& tree_;
  std::string cursor_;
  const size_t limit_;
  std::vector<KeyValue>& rows_;
  std::vector<Leaf> leaves_;
  std::vector<LeafEntry> entries_;
  bool at_end_ = false;
  bool advanced_ = false;
};

std::vector<Reference> Scan::ChildrenAtCursor() {
  std::vector<Reference> children;
  Reference root;
  if (tree_.root.Load(&root) < 1) return children;  // unknown, or a leaf
  Descent descent(context_, tree_, cursor_, 1);
  if (!descent.Find().ok()) return children;  // the slow way reports why
  IndexCache& cache = tree_.environment.cache;
  const EpochDomain::Guard guard(cache.epochs(), context_.session.epoch_slot());
  const CachedNode* node = cache.Find(descent.node());
  const SearchKey cursor(cursor_);
  if (node == nullptr || node->level() != 1 || !node->Covers(cursor)) return children;
  // A leaf is about two thirds full after random inserts.
  const size_t per_leaf = std::max<size_t>(1, tree_.layout.slot_count() * 2 / 3);
  const size_t wanted = std::min(kPrefetchLeavesMax, (limit_ - rows_.size()) / per_leaf + 2);
  const uint32_t first = node->ChildIndex(cursor);
  const uint32_t last =
      std::min<uint32_t>(node->child_count(), first + static_cast<uint32_t>(wanted));
  for (uint32_t i = first; i < last; ++i) children.push_back(node->Child(i));
  return children;
}

absl::Status Scan::Prefetch() {
  advanced_ = false;
  leaves_.clear();
  for (const Reference& child : ChildrenAtCursor()) {
    PANDO_ASSIGN_OR_RETURN(BufferLease image,
                           context_.session.buffers().Lease(tree_.layout.node_bytes()));
    leaves_.push_back({child, std::move(image)});
  }
  SessionCounters& counters = context_.session.counters();
  (leaves_.empty() ? counters.cache_misses : counters.cache_hits).Add();
  return leaves_.empty() ? absl::OkStatus() : ReadLeaves();
}

absl::Status Scan::ReadLeaves() {
  std::vector<std::unique_ptr<ChainLease>> chains;
  std::vector<Chain*> posted;
  std::vector<size_t> chain_of(leaves_.size());
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const ServerId server = leaves_[i].node.address.server();
    size_t c = 0;
    while (c < posted.size() && posted[c]->server() != server) ++c;
    if (c == posted.size()) {
      chains.push_back(std::make_unique<ChainLease>(&context_.session.buffers()));
      posted.push_back(chains.back()->get());
      posted[c]->Reset(server);
    }
    posted[c]->Read(MemorySpace::kMain, leaves_[i].node.address.offset(),
                    leaves_[i].image.buffer());
    chain_of[i] = c;
  }
  const absl::Status read = context_.AwaitAll(posted);
  if (!read.ok() && !absl::IsAborted(read)) return read;
  for (size_t i = 0; i < leaves_.size(); ++i) {
    const Chain& chain = *posted[chain_of[i]];
    leaves_[i].timely = chain.ok() && !ReadTookTooLong(tree_, chain);
  }
  return absl::OkStatus();
}

bool Scan::TryConsume(const Leaf& leaf) {
  if (!leaf.timely) return false;
  const NodeVerdict verdict = Classify(leaf.image.data(), tree_.layout,
                                       Expect(tree_, leaf.node, 0, cursor_), tree_.environment.crc);
  const bool contains_cursor = verdict == NodeVerdict::kAccepted;
  const bool variant = !RuleHolds(Rule::kR2) &&
                       (verdict == NodeVerdict::kMovedLeft || verdict == NodeVerdict::kMovedRight);
  return (contains_cursor || variant) && Consume(leaf.image.data());
}

bool Scan::Consume(const std::byte* image) {
  entries_.clear();
  if (!ReadLeafEntries(image, tree_.layout, &entries_)) return false;
  std::erase_if(entries_,
                [&](const LeafEntry& e) { return RuleHolds(Rule::kR2) && e.key < cursor_; });
  std::sort(entries_.begin(), entries_.end(),
            [](const LeafEntry& a, const LeafEntry& b) { return a.key < b.key; });
  for (LeafEntry& entry : entries_) {
    if (rows_.size() == limit_) break;
    rows_.push_back({std::move(entry.key), std::move(entry.value)});
  }
  FenceScratch scratch;
  cursor_ = HighFence(image, tree_.layout, &scratch);
  at_end_ = cursor_.empty();
  advanced_ = true;
  return true;
}

absl::Status Scan::ReadOneLeaf() {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context_.session.buffers().Lease(tree_.layout.node_bytes()));
  Descent descent(context_, tree_, cursor_, 0);
  while (true) {
    PANDO_RETURN_IF_ERROR(descent.Find());
    PANDO_ASSIGN_OR_RETURN(const NodeVerdict verdict,
                           ReadNode(context_, tree_, descent.node(), 0, cursor_, image.buffer()));
    if (verdict == NodeVerdict::kAccepted) {
      FenceScratch scratch;
      if (descent.moved_right()) descent.Accepted(LowFence(image.data(), tree_.layout, &scratch));
      if (Consume(image.data())) return absl::OkStatus();
      if (context_.expired()) return context_.DeadlineError("scanning a leaf that stays torn");
      context_.session.counters().torn_retries.Add();
      context_.BackOff(1);
      continue;
    }
    descent.Report(verdict,
                   verdict == NodeVerdict::kMovedRight ? RightOf(image.data()) : Reference{});
  }
}

}  // namespace

absl::Status ScanKeys(OperationContext& context, TreeContext& tree, std::string_view from,
                      size_t limit, std::vector<KeyValue>* rows) {
  rows->clear();
  const absl::Status status = Scan(context, tree, from, limit, rows).Run();
  if (!status.ok()) rows->clear();
  return status;
}

}  // namespace pando
