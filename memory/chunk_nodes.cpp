#include "memory/chunk_nodes.h"

#include <utility>

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/rule.h"
#include "common/wire/node_glance.h"

namespace pando::memory {
namespace {
uint32_t LifeAfter(uint32_t life) { return life == UINT32_MAX ? 1 : life + 1; }
}  // namespace

ChunkNodes::ChunkNodes(uint32_t count, uint32_t life, bool zero, int64_t rest_grain_ns)
    : zero_(zero),
      rest_grain_ns_(rest_grain_ns),
      records_(count, Record{life, kNone}),
      uses_(count),
      newest_life_(life) {
  counts_[static_cast<size_t>(NodeUse::kUntouched)] = count;
}

uint32_t ChunkNodes::holder(uint32_t node) const {
  const NodeUse is = use(node);
  return is == NodeUse::kOut || is == NodeUse::kOrphan ? records_[node].link : 0;
}

void ChunkNodes::SetUse(uint32_t node, NodeUse to) {
  --counts_[static_cast<size_t>(use(node))];
  uses_[node] = static_cast<uint8_t>((uses_[node] & kImageBit) | static_cast<uint8_t>(to));
  ++counts_[static_cast<size_t>(to)];
}

void ChunkNodes::Grant(uint32_t node, uint32_t life, uint32_t incarnation) {
  SetUse(node, NodeUse::kOut);
  records_[node] = {life, incarnation};
  if (LifeNewer(life, newest_life_)) newest_life_ = life;
}

void ChunkNodes::MarkNoted() {
  if (!std::exchange(notes_out_, false) || in_use(NodeUse::kOut) == 0) return;
  for (uint32_t node = 0; node < handed_; ++node) {
    if (use(node) == NodeUse::kOut) uses_[node] |= kNotedBit;
  }
}

uint32_t ChunkNodes::TakeUntouched(uint32_t nodes, uint32_t incarnation) {
  PANDO_CHECK(nodes > 0 && nodes <= count() - handed_);
  MarkNoted();
  const uint32_t first = handed_;
  // Some may have been handed out before, and have come back.
  uint32_t life = records_[first].life;
  for (uint32_t node = first; node < first + nodes; ++node) {
    if (LifeNewer(records_[node].life, life)) life = records_[node].life;
  }
  life = LifeAfter(life);
  for (; handed_ < first + nodes; ++handed_) {
    Grant(handed_, life, incarnation);
  }
  return first;
}

std::optional<uint32_t> ChunkNodes::TakeRested(int64_t now_ns, uint32_t incarnation) {
  while (!resting_.empty() && resting_.front().until_ns <= now_ns) {
    resting_count_ -= resting_.front().count;
    resting_.pop_front();
  }
  if (in_use(NodeUse::kFree) == resting_count_) return std::nullopt;
  MarkNoted();
  const uint32_t node = first_free_;
  first_free_ = records_[node].link;
  if (first_free_ == kNone) last_free_ = kNone;
  Grant(node, LifeAfter(records_[node].life), incarnation);
  return node;
}

void ChunkNodes::PushFront(uint32_t node) {
  SetUse(node, NodeUse::kFree);
  records_[node].link = first_free_;
  first_free_ = node;
  if (last_free_ == kNone) last_free_ = node;
}

void ChunkNodes::PutBack(uint32_t first, uint32_t nodes) {
  bool as_they_came = first + nodes == handed_;
  for (uint32_t node = first; node < first + nodes; ++node) {
    PANDO_CHECK(use(node) == NodeUse::kOut);
    as_they_came = as_they_came && (uses_[node] & kImageBit) == 0;
    if (!RuleHolds(Rule::kR5)) --records_[node].life;  // the variant gives the life to the next one
  }
  if (as_they_came) {  // the end of what was handed out: it stays one piece
    for (; handed_ > first; --handed_) SetUse(handed_ - 1, NodeUse::kUntouched);
    return;
  }
  for (uint32_t node = first + nodes; node > first; --node) PushFront(node - 1);
}

void ChunkNodes::Free(uint32_t node, int64_t rested_ns) {
  PANDO_CHECK(use(node) != NodeUse::kFree && use(node) != NodeUse::kUntouched);
  written_ = true;
  uses_[node] |= kImageBit;
  SetUse(node, NodeUse::kFree);
  records_[node].link = kNone;
  if (last_free_ != kNone) records_[last_free_].link = node;
  last_free_ = node;
  if (first_free_ == kNone) first_free_ = node;
  const int64_t until_ns = (rested_ns + rest_grain_ns_ - 1) / rest_grain_ns_ * rest_grain_ns_;
  if (resting_.empty() || resting_.back().until_ns < until_ns) resting_.push_back({until_ns, 0});
  ++resting_.back().count;
  ++resting_count_;
}

}  // namespace pando::memory
