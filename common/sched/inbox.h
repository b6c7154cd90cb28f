// What other threads send to a scheduler: posted tasks and wake-ups. Internal to common/sched.
//
// Thread safety: Send() from any thread; the rest from the scheduler's thread.
// Invariants:
//   1. After a Send() either the owner is awake and will look before it sleeps, or the endpoint was
//      woken.
//   2. The endpoint is touched under the mutex only while the inbox is open, so a sender that comes
//      late is safe.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "common/fabric/fabric.h"
#include "common/sched/scheduler.h"

namespace pando::sched {

struct Letter {
  std::function<void()> task;               // either this
  std::shared_ptr<Parking::State> parking;  // or this
};

class Inbox {
 public:
  explicit Inbox(Endpoint* endpoint) : endpoint_(endpoint) {}

  // False: closed, the letter is dropped.
  bool Send(Letter letter) {
    std::lock_guard lock(mutex_);
    if (!open_ || (letter.task != nullptr && !takes_tasks_)) return false;
    const bool first = letters_.empty();
    letters_.push_back(std::move(letter));
    has_letters_.store(true, std::memory_order_release);
    if (first && !owner_awake_) endpoint_->Wake();
    return true;
  }

  bool empty() const { return !has_letters_.load(std::memory_order_acquire); }

  // Moves everything into `letters`, which must be empty.
  void Take(std::vector<Letter>* letters) {
    if (empty()) return;
    std::lock_guard lock(mutex_);
    letters_.swap(*letters);
    has_letters_.store(false, std::memory_order_relaxed);
  }

  // The owner is about to wait. False: there are letters, look again.
  bool FallAsleep() {
    std::lock_guard lock(mutex_);
    if (!letters_.empty()) return false;
    owner_awake_ = false;
    return true;
  }
  // The owner promises to look before it sleeps. Returns whether it was awake before.
  bool SetAwake(bool awake) {
    std::lock_guard lock(mutex_);
    return std::exchange(owner_awake_, awake);
  }
  // The scheduler is being destroyed: no further tasks; wake-ups still arrive until Close().
  void RefuseTasks() {
    std::lock_guard lock(mutex_);
    takes_tasks_ = false;
  }
  void Close() {
    std::lock_guard lock(mutex_);
    open_ = false;
  }

 private:
  Endpoint* const endpoint_;
  std::atomic<bool> has_letters_{false};
  std::mutex mutex_;
  std::vector<Letter> letters_;
  bool open_ = true;
  bool takes_tasks_ = true;
  bool owner_awake_ = false;
};

}  // namespace pando::sched
