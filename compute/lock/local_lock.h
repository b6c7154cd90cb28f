// The local half of HOCL (Sherman, section 4.3): one FIFO queue a global lock word, shared by the
// sessions of a compute server, so that only one of them competes for the word and a held word can
// be passed on.
//
// Thread safety: all methods from any thread; the mutex is held for moments and never across a
// suspension. Invariants:
//   1. At most one session holds a LocalLock. Each grant ends in one call of Release() or
//      Handover().
//   2. While it is held no other session of this compute server touches the global word.
//   3. Waiters are served in arrival order, except that a holder may execute any of them
//      (combining).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "compute/lock/lock_request.h"
#include "compute/lock/stay_away.h"

namespace pando {

class LocalLock {
 public:
  LocalLock() = default;
  ~LocalLock() { delete contended_.load(); }
  LocalLock(const LocalLock&) = delete;
  LocalLock& operator=(const LocalLock&) = delete;

  // Takes the lock if it is free and has no waiters. `stay_away_ns`: when the global word may be
  // tried (rule L6).
  bool TryAcquire(int64_t* stay_away_ns);
  // The same, or queues the request.
  bool AcquireOrEnqueue(const LockRequestPtr& request, int64_t* stay_away_ns);

  // The waiter's side, after it was woken or its time passed: the state to act on. On timeout a
  // queued or executing request becomes kAbandoned; a granted one stays granted.
  LockRequest::State Resolve(const LockRequestPtr& request, bool timed_out);

  // A hint: Release() serves a waiter that arrives a moment later.
  bool HasWaiters() const { return state_.load(std::memory_order_relaxed) == kQueued; }
  // For code that works otherwise when nobody waits: a hint, for so many turns after it was noted.
  void NoteCrowd() { crowded_turns_.store(kCrowdedTurns, std::memory_order_relaxed); }
  bool TakeCrowdedTurn() {
    const uint8_t turns = crowded_turns_.load(std::memory_order_relaxed);
    if (turns == 0) return false;
    crowded_turns_.store(turns - 1, std::memory_order_relaxed);
    return true;
  }
  // Moves up to `max` combinable waiters for that node to kExecuting, in order.
  std::vector<LockRequestPtr> TakeCombinable(uint32_t tree_id, const Reference& node, size_t max);
  // Puts executing requests back to the front, in order; abandoned ones are dropped.
  void PutBack(const std::vector<LockRequestPtr>& requests);
  // Results of executed requests; wakes their waiters.
  void Finish(const std::vector<LockRequestPtr>& requests,
              const std::vector<absl::Status>& results);

  // Passes the local lock and the held global word to the next waiter. `image`: the node as it is
  // now under the lock, or null. False: there is no waiter; the caller still holds both.
  bool Handover(int handovers, const Reference& image_of, const std::byte* image,
                uint32_t image_bytes);
  // Gives up the local lock (the global word is already free): the next waiter gets it, and must
  // take the word itself.
  void Release(int64_t stay_away_until_ns);

  // --- For the holder: which other compute servers had the global word lately (stay_away.h).
  void NoteRival(uint16_t compute_server, int64_t now_ns, int64_t period_ns) {
    contended().rivals.Note(compute_server, now_ns, period_ns);
  }
  bool MayHaveRivals() const {
    const Contended* const contended = contended_.load(std::memory_order_acquire);
    return contended != nullptr && contended->rivals.any();
  }
  int CountRivals(int64_t now_ns, int64_t period_ns) {
    Contended* const contended = contended_.load(std::memory_order_acquire);
    return contended == nullptr ? 0 : contended->rivals.Count(now_ns, period_ns);
  }

  // Copies the image that came with the handover to the new holder. False: none for this node.
  bool TakeImage(const Reference& node, std::byte* to, uint32_t bytes);

 private:
  // kQueued: held, and the queue is not empty. Taking and giving up a lock without waiters is one
  // atomic step each; everything about the queue happens under the mutex.
  enum State : uint8_t { kFree, kHeld, kQueued };

  // The first queued request, or null. The state follows.
  LockRequestPtr PopLocked();
  void NoteQueueLocked() {
    state_.store(contended().queue.empty() ? kHeld : kQueued, std::memory_order_relaxed);
  }

  // What only a contended lock needs; made by the first waiter. The hot part stays small: a table
  // of them is touched at random by every write.
  struct Contended {
    std::mutex mutex;
    std::deque<LockRequestPtr> queue;
    // Touched by the holder alone, these and the handed-over image.
    int64_t stay_away_until_ns = 0;
    Rivals rivals;
    Reference image_of;
    std::vector<std::byte> image;

    // With its memory: a word that is contended once is there as long as the client.
    void DropImage() {
      image_of = {};
      if (!image.empty()) std::vector<std::byte>().swap(image);
    }
  };
  Contended& contended();

  static constexpr uint8_t kCrowdedTurns = 16;

  std::atomic<State> state_{kFree};
  std::atomic<uint8_t> crowded_turns_{0};
  std::atomic<Contended*> contended_{nullptr};
};

// The local locks of one memory server's lock table. Blocks are made when first touched.
// Thread-safe.
class LocalLockTable {
 public:
  explicit LocalLockTable(uint32_t words);
  ~LocalLockTable();
  LocalLockTable(const LocalLockTable&) = delete;
  LocalLockTable& operator=(const LocalLockTable&) = delete;

  LocalLock& At(uint32_t word);
  uint32_t words() const { return words_; }

 private:
  static constexpr uint32_t kBlockLocks = 64;
  const uint32_t words_;
  std::vector<std::atomic<LocalLock*>> blocks_;
};

}  // namespace pando
