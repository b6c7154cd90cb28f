// What a lock guards, and the lock while it is held.
#pragma once

#include <cstdint>
#include <utility>

#include "common/base/check.h"
#include "common/wire/remote_address.h"
#include "compute/lock/local_lock.h"

namespace pando {

// What is locked, and what is read with it.
struct LockTarget {
  ServerId server = 0;
  uint32_t word = 0;         // index in the server's lock table
  Reference node;            // what `read_offset` holds, for handed-over images
  uint64_t read_offset = 0;  // in main
  uint32_t read_bytes = 0;
};

// Parts of a target, each READ to its place in the image.
struct TargetParts {
  struct Part {
    uint32_t offset = 0, bytes = 0;
  };
  Part parts[3];
  uint32_t count = 0;
};

// A held lock. Move-only; must be released (CHECKed).
class HeldLock {
 public:
  HeldLock() = default;
  HeldLock(HeldLock&& other) noexcept { *this = std::move(other); }
  HeldLock& operator=(HeldLock&& other) noexcept {
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
  ~HeldLock() { PANDO_CHECK(!held_) << "a node lock was not released"; }

  const LockTarget& target() const { return target_; }
  // What the requests of TakeCombinable() wait for; it outlives them.
  LocalLock* local() const { return local_; }
  bool held() const { return held_; }
  // The image is of all of the target: not after a handover that did not carry it, nor where parts
  // were READ.
  bool image_is_fresh() const { return image_is_fresh_; }
  // True: some operation that the image serves may have been invoked after its READ: it was handed
  // over, or operations were combined.
  bool image_is_older() const { return image_is_older_; }
  // Operations are answered from the image and nothing is written. If the image is older the answer
  // counts once a chain under the lock has succeeded (rule V5): Release() makes sure that there is
  // one, and its result says so.
  void AnswerFromImage() { answers_from_image_ = true; }
  // Rule L6: a holder of more than one word hands none of them over.
  void ForbidHandover() { may_hand_over_ = false; }

 private:
  friend class Hocl;
  LockTarget target_;
  LocalLock* local_ = nullptr;  // null: local locks are off
  int handovers_ = 0;
  bool image_is_fresh_ = false;
  bool image_is_older_ = false;
  bool answers_from_image_ = false;
  bool wanted_ = false;  // by others: a failed CAS, or waiters to combine
  bool may_hand_over_ = true;
  bool held_ = false;
};

}  // namespace pando
