// Who waits for another's READ of a leaf (rule T3).
#pragma once

#include <cstdint>

namespace pando {

// Lies in the frame of the coroutine that waits, and in the list of one placeholder.
//
// Who may free it when: all of it happens under the partition's mutex. wake() is called under it,
// once, and nobody touches the waiter afterwards. So it may go once its coroutine has had the mutex
// and called Partition::StopWaiting(), which every waiter does when it runs again, woken or not.
struct LoadWaiter {
  enum class Outcome : uint8_t {
    kWaiting,
    kLook,      // there is something, or nobody reads any more: begin again at Find()
    kNotFound,  // the tree did not have the key at that moment
  };

  // Must not block, nor call the partition: Parking::Unpark().
  void (*wake)(LoadWaiter*) = nullptr;
  Outcome outcome = Outcome::kWaiting;

  // --- The partition's: a ring, in order of arrival. Null: in none.
  LoadWaiter* previous = nullptr;
  LoadWaiter* next = nullptr;
};

}  // namespace pando
