#include "compute/lock/local_lock.h"

#include <cstring>

#include "common/base/check.h"

namespace pando {

using RequestState = LockRequest::State;

LocalLock::Contended& LocalLock::contended() {
  Contended* present = contended_.load(std::memory_order_acquire);
  if (present != nullptr) return *present;
  auto* const fresh = new Contended;
  if (contended_.compare_exchange_strong(present, fresh, std::memory_order_acq_rel)) return *fresh;
  delete fresh;
  return *present;
}

bool LocalLock::TryAcquire(int64_t* stay_away_ns) {
  State expected = kFree;
  if (!state_.compare_exchange_strong(expected, kHeld, std::memory_order_acquire,
                                      std::memory_order_relaxed)) {
    return false;
  }
  const Contended* const contended = contended_.load(std::memory_order_acquire);
  *stay_away_ns = contended == nullptr ? 0 : contended->stay_away_until_ns;
  return true;
}

bool LocalLock::AcquireOrEnqueue(const LockRequestPtr& request, int64_t* stay_away_ns) {
  std::lock_guard lock(contended().mutex);
  while (true) {
    if (TryAcquire(stay_away_ns)) return true;
    // Held: from here on its holder's Release() takes the mutex, too.
    State expected = kHeld;
    if (state_.compare_exchange_strong(expected, kQueued, std::memory_order_relaxed) ||
        expected == kQueued) {
      break;
    }
  }
  contended().queue.push_back(request);
  return false;
}

LockRequest::State LocalLock::Resolve(const LockRequestPtr& request, bool timed_out) {
  std::lock_guard lock(contended().mutex);
  const RequestState state = request->state();
  if (!timed_out) return state;
  if (state == RequestState::kQueued) {
    std::erase(contended().queue, request);
    NoteQueueLocked();
    request->MoveTo(RequestState::kAbandoned);
  } else if (state == RequestState::kExecuting) {
    request->MoveTo(RequestState::kAbandoned);
    return RequestState::kExecuting;  // the caller learns that the outcome is unknown
  }
  return request->state();
}

std::vector<LockRequestPtr> LocalLock::TakeCombinable(uint32_t tree_id, const Reference& node,
                                                      size_t max) {
  std::vector<LockRequestPtr> taken;
  if (!HasWaiters()) return taken;
  std::lock_guard lock(contended().mutex);
  std::deque<LockRequestPtr> rest;
  for (LockRequestPtr& request : contended().queue) {
    if (taken.size() < max && request->combinable() && request->tree_id == tree_id &&
        request->node == node) {
      request->MoveTo(RequestState::kExecuting);
      taken.push_back(std::move(request));
    } else {
      rest.push_back(std::move(request));
    }
  }
  contended().queue.swap(rest);
  NoteQueueLocked();
  return taken;
}

void LocalLock::PutBack(const std::vector<LockRequestPtr>& requests) {
  std::lock_guard lock(contended().mutex);
  for (auto it = requests.rbegin(); it != requests.rend(); ++it) {
    if ((*it)->state() == RequestState::kAbandoned) continue;
    (*it)->MoveTo(RequestState::kQueued);
    contended().queue.push_front(*it);
  }
  NoteQueueLocked();
}

void LocalLock::Finish(const std::vector<LockRequestPtr>& requests,
                       const std::vector<absl::Status>& results) {
  PANDO_CHECK_EQ(requests.size(), results.size());
  {
    std::lock_guard lock(contended().mutex);
    for (size_t i = 0; i < requests.size(); ++i) {
      if (requests[i]->state() == RequestState::kAbandoned) continue;
      requests[i]->result = results[i];
      requests[i]->MoveTo(RequestState::kDone);
    }
  }
  for (const LockRequestPtr& request : requests) request->parking.Unpark();
}

LockRequestPtr LocalLock::PopLocked() {
  std::deque<LockRequestPtr>& queue = contended().queue;
  if (queue.empty()) return nullptr;
  LockRequestPtr next = std::move(queue.front());
  queue.pop_front();
  NoteQueueLocked();
  return next;
}

bool LocalLock::Handover(int handovers, const Reference& image_of, const std::byte* image,
                         uint32_t image_bytes) {
  LockRequestPtr next;
  {
    std::lock_guard lock(contended().mutex);
    next = PopLocked();
    if (next == nullptr) return false;
    if (image == nullptr) {
      contended().DropImage();
    } else {
      contended().image_of = image_of;
      contended().image.assign(image, image + image_bytes);
    }
    next->handovers = handovers;
    next->MoveTo(RequestState::kGrantedGlobal);
  }
  next->parking.Unpark();
  return true;
}

void LocalLock::Release(int64_t stay_away_until_ns) {
  if (Contended* const contended = contended_.load(std::memory_order_acquire)) {
    contended->stay_away_until_ns = stay_away_until_ns;
    contended->DropImage();
  }
  State expected = kHeld;
  if (state_.compare_exchange_strong(expected, kFree, std::memory_order_release,
                                     std::memory_order_relaxed)) {
    return;
  }
  LockRequestPtr next;
  {
    std::lock_guard lock(contended().mutex);
    next = PopLocked();
    if (next == nullptr) {
      state_.store(kFree, std::memory_order_release);  // every waiter has given up meanwhile
      return;
    }
    next->stay_away_until_ns = stay_away_until_ns;
    next->MoveTo(RequestState::kGrantedLocal);
  }
  next->parking.Unpark();
}

bool LocalLock::TakeImage(const Reference& node, std::byte* to, uint32_t bytes) {
  // Only the holder calls this, and the handover that stored the image happened before its grant.
  Contended& c = contended();
  if (c.image_of.is_null() || c.image_of != node || c.image.size() != bytes) return false;
  std::memcpy(to, c.image.data(), bytes);
  c.DropImage();
  return true;
}

LocalLockTable::LocalLockTable(uint32_t words)
    : words_(words), blocks_((words + kBlockLocks - 1) / kBlockLocks) {}

LocalLockTable::~LocalLockTable() {
  for (auto& block : blocks_) delete[] block.load();
}

LocalLock& LocalLockTable::At(uint32_t word) {
  PANDO_CHECK_LT(word, words_);
  std::atomic<LocalLock*>& block = blocks_[word / kBlockLocks];
  LocalLock* locks = block.load(std::memory_order_acquire);
  if (locks == nullptr) [[unlikely]] {
    auto* fresh = new LocalLock[kBlockLocks];
    if (block.compare_exchange_strong(locks, fresh, std::memory_order_acq_rel)) {
      locks = fresh;
    } else {
      delete[] fresh;
    }
  }
  return locks[word % kBlockLocks];
}

}  // namespace pando
