#include "compute/index/leaf_reader.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/node_image.h"
#include "compute/index/descend.h"
#include "compute/index/read_node.h"

namespace pando {

std::string LeafReader::KeyToCover(const KeyCut& at) const {
  return down_ && !at.after ? KeyBefore(at.key, tree_.layout.key_bytes_max()) : at.key;
}

absl::Status LeafReader::Read(OperationContext& context, size_t leaves_max, Take take) {
  enough_ = false;
  absl::Status status = Gather(context, leaves_max);
  if (status.ok()) {
    // What one of them failed with is only of interest if its leaf is wanted: ReadOne() says it
    // then.
    ReadTogether(context, tree_, absl::MakeSpan(leaves_));
    size_t consumed = 0;
    while (consumed < leaves_.size() && !done() && !enough_ &&
           TryConsume(leaves_[consumed], take)) {
      ++consumed;
    }
    if (consumed == 0) status = ReadOne(context, take);
  }
  leaves_.clear();
  return status;
}

absl::Status LeafReader::Gather(OperationContext& context, size_t leaves_max) {
  std::string key = NextKey();
  bool more = true;
  while (more) {
    const absl::Status found = GatherSiblings(context, leaves_max, &key, &more);
    // What only a leaf further on is about is said when its turn comes.
    if (!found.ok()) return leaves_.empty() ? found : absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status LeafReader::GatherSiblings(OperationContext& context, size_t leaves_max,
                                        std::string* key, bool* more) {
  *more = false;
  Descent descent(context, tree_, *key, 0);
  PANDO_RETURN_IF_ERROR(descent.Find());
  absl::InlinedVector<Reference, 16> nodes;
  std::string next_key;
  {
    const IndexCache& cache = tree_.environment.cache;
    const EpochDomain::Guard guard(tree_.environment.cache.epochs(), context.session.epoch_slot());
    const CachedNode* const parent =
        descent.parent().is_null() ? nullptr : cache.Find(descent.parent());
    const SearchKey search_key(*key);
    if (parent == nullptr || parent->level() != 1 || !parent->Covers(search_key)) {
      nodes.push_back(descent.node());
    } else {
      for (uint32_t child = parent->ChildIndex(search_key);; child += down_ ? -1 : 1) {
        nodes.push_back(parent->Child(child));
        const bool is_last = down_ ? child == 0 : child + 1 == parent->child_count();
        std::string border = down_     ? parent->ChildLow(child)
                             : is_last ? std::string(parent->high())
                                       : parent->ChildLow(child + 1);
        const bool range_ends =
            border.empty() || (down_ ? border <= end_.key : !end_.IsAbove(border));
        if (range_ends || leaves_.size() + nodes.size() >= leaves_max) break;
        if (!is_last) continue;
        next_key = KeyToCover({std::move(border), false});
        *more = true;
        break;
      }
    }
  }
  for (const Reference& node : nodes) PANDO_RETURN_IF_ERROR(Add(context, node));
  *key = std::move(next_key);
  return absl::OkStatus();
}

absl::Status LeafReader::Add(OperationContext& context, const Reference& node) {
  PANDO_ASSIGN_OR_RETURN(BufferLease image,
                         context.session.buffers().Lease(tree_.layout.node_bytes()));
  leaves_.push_back({node, std::move(image)});
  return absl::OkStatus();
}

bool LeafReader::TryConsume(const NodeRead& leaf, Take take) {
  if (!leaf.timely) return false;
  const std::string key = NextKey();
  const NodeVerdict verdict = Classify(leaf.image.data(), tree_.layout,
                                       Expect(tree_, leaf.node, 0, key), tree_.environment.crc);
  const bool moved = verdict == NodeVerdict::kMovedLeft || verdict == NodeVerdict::kMovedRight;
  const bool variant = moved && !RuleHolds(down_ ? Rule::kR9 : Rule::kR2);
  return (verdict == NodeVerdict::kAccepted || variant) && Consume(leaf.image.data(), take);
}

bool LeafReader::Consume(const std::byte* image, Take take) {
  if (!ReadLeafEntries(image, tree_.layout, &entries_)) return false;
  tree_.fill.Note(entries_.size());
  const KeyCut& low = down_ ? end_ : at_;
  const KeyCut& high = down_ ? at_ : end_;
  const bool any_place = !down_ && !RuleHolds(Rule::kR2);
  wanted_.clear();
  for (LeafEntry& entry : entries_) {
    if (high.IsAbove(entry.key) && (!low.IsAbove(entry.key) || any_place)) {
      wanted_.push_back(&entry);
    }
  }
  std::sort(wanted_.begin(), wanted_.end(), [this](const LeafEntry* a, const LeafEntry* b) {
    return down_ ? b->key < a->key : a->key < b->key;
  });
  FenceScratch scratch;
  if (down_) {
    at_ = {std::string(LowFence(image, tree_.layout, &scratch)), false};
  } else {
    const std::string_view fence = HighFence(image, tree_.layout, &scratch);
    at_ = fence.empty() ? KeyCut::Highest(tree_.layout.key_bytes_max())
                        : KeyCut{std::string(fence), false};
  }
  for (LeafEntry* const entry : wanted_) {
    if (enough_) break;
    enough_ = !take(*entry);
  }
  return true;
}

absl::Status LeafReader::ReadOne(OperationContext& context, Take take) {
  PANDO_ASSIGN_OR_RETURN(const BufferLease image,
                         context.session.buffers().Lease(tree_.layout.node_bytes()));
  const std::string key = NextKey();
  Descent descent(context, tree_, key, 0);
  while (true) {
    PANDO_RETURN_IF_ERROR(descent.Find());
    PANDO_ASSIGN_OR_RETURN(const NodeVerdict verdict,
                           ReadNode(context, tree_, descent.node(), 0, key, image.buffer()));
    if (verdict == NodeVerdict::kAccepted) {
      FenceScratch scratch;
      if (descent.moved_right()) descent.Accepted(LowFence(image.data(), tree_.layout, &scratch));
      if (Consume(image.data(), take)) return absl::OkStatus();
      context.session.counters().torn_retries.Add();
      if (!context.expired()) context.BackOff(1);
      if (context.expired()) return context.DeadlineError("reading a leaf that stays torn");
      continue;
    }
    descent.Report(verdict,
                   verdict == NodeVerdict::kMovedRight ? RightOf(image.data()) : Reference{});
  }
}

}  // namespace pando
