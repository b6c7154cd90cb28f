#include "compute/index/lock_set.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"

namespace pando {

LockSet::~LockSet() { PANDO_CHECK(locks_.empty()) << "node locks were not released"; }

void LockSet::Adopt(HeldLock lock) {
  lock.ForbidHandover();
  locks_.push_back(std::move(lock));
}

bool LockSet::Holds(const LockTarget& target) const {
  const auto same = [&](const LockTarget& held) {
    return held.server == target.server && held.word == target.word;
  };
  return std::any_of(borrowed_.begin(), borrowed_.end(), same) ||
         std::any_of(locks_.begin(), locks_.end(),
                     [&](const HeldLock& lock) { return same(lock.target()); });
}

absl::StatusOr<bool> LockSet::TryAdd(const Reference& node, LocalBuffer image) {
  Hocl& hocl = tree_.environment.hocl;
  // Without waiting for a server that has just come: others wait for what is held here.
  PANDO_ASSIGN_OR_RETURN(const LockTarget target, tree_.NodeLock(node));
  last_was_shared_ = Holds(target);
  shares_ = shares_ || last_was_shared_;
  if (last_was_shared_) {
    PANDO_RETURN_IF_ERROR(hocl.ReadTarget(context_, target, image));
    return true;
  }
  PANDO_ASSIGN_OR_RETURN(std::optional<HeldLock> lock, hocl.TryAcquire(context_, target, image));
  if (!lock.has_value()) return false;
  locks_.push_back(*std::move(lock));
  return true;
}

absl::Status LockSet::Release(HeldLock lock) {
  if (shares_ && !RuleHolds(Rule::kL1)) {  // the variant releases the word once a node
    ChainLease twice(&context_.session.buffers());
    twice->Reset(lock.target().server);
    PANDO_CHECK_OK(tree_.environment.hocl.AppendRelease(context_, lock, twice.get()));
    (void)context_.Await(twice.get());
  }
  return tree_.environment.hocl.ReleaseUnchanged(context_, std::move(lock), nullptr);
}

absl::Status LockSet::ReleaseLast() {
  if (std::exchange(last_was_shared_, false)) return absl::OkStatus();
  HeldLock last = std::move(locks_.back());
  locks_.pop_back();
  return Release(std::move(last));
}

absl::Status LockSet::ReleaseAll() {
  absl::Status first;
  while (!locks_.empty()) {
    HeldLock last = std::move(locks_.back());
    locks_.pop_back();
    const absl::Status status = Release(std::move(last));
    if (first.ok()) first = status;
  }
  return first;
}

absl::Status LockSet::ReleaseTogether(Chain* chain) {
  absl::Status first;
  while (!locks_.empty()) {
    std::vector<HeldLock> here, elsewhere;
    for (HeldLock& lock : locks_) {
      const bool is_here = lock.target().server == chain->server();
      (is_here ? here : elsewhere).push_back(std::move(lock));
    }
    locks_ = std::move(elsewhere);
    if (!here.empty()) {
      const absl::Status released =
          tree_.environment.hocl.ReleaseTogether(context_, absl::MakeSpan(here), chain);
      if (first.ok()) first = released;
    }
    if (!locks_.empty()) chain->Reset(locks_.front().target().server);
  }
  return first;
}

}  // namespace pando
