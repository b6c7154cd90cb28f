#include "compute/lock/held_lock.h"

#include <utility>

#include "common/base/check.h"

namespace pando {

HeldLock& HeldLock::operator=(HeldLock&& other) noexcept {
  PANDO_CHECK(!held_) << "a held lock is overwritten";
  target_ = other.target_;
  local_ = other.local_;
  handovers_ = other.handovers_;
  image_is_fresh_ = other.image_is_fresh_;
  image_is_older_ = other.image_is_older_;
  answers_from_image_ = other.answers_from_image_;
  wanted_ = other.wanted_;
  may_hand_over_ = other.may_hand_over_;
  held_ = std::exchange(other.held_, false);
  return *this;
}

HeldLock::~HeldLock() { PANDO_CHECK(!held_) << "a node lock was not released"; }

}  // namespace pando
