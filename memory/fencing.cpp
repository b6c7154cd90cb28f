#include "memory/fencing.h"

#include <algorithm>

#include "common/base/status.h"

namespace pando::memory {

Fencing::Fencing(Region* region, uint32_t words_per_step)
    : region_(region), words_per_step_(words_per_step) {}

absl::StatusOr<std::optional<ClientId>> Fencing::Step() {
  if (pending_.empty()) return std::optional<ClientId>();
  const ClientId dead = pending_.front();
  if (!published_) {
    // Published before any word is freed (rule C2). A waiter that READs the table may take a word
    // over at once, and need not wait for the steps below (rule C3).
    region_->PublishDead(dead);
    published_ = true;
    next_word_ = 0;
    if (words_per_step_ != 0) return std::optional<ClientId>();
  }
  const uint32_t left = region_->superblock().lock_words - next_word_;
  const uint32_t count = words_per_step_ == 0 ? left : std::min(left, words_per_step_);
  PANDO_ASSIGN_OR_RETURN(const uint32_t cleared, region_->ClearLockWords(dead, next_word_, count));
  words_cleared_ += cleared;
  next_word_ += count;
  if (next_word_ < region_->superblock().lock_words) return std::optional<ClientId>();
  pending_.pop_front();
  published_ = false;
  return std::optional(dead);
}

bool Fencing::IsPending(const ClientId& client) const {
  return std::find(pending_.begin(), pending_.end(), client) != pending_.end();
}

}  // namespace pando::memory
