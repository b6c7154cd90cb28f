// One stackful coroutine on Boost.Coroutine2: the only place in Pando that includes Boost. Tells
// ASan and TSan about each switch, because Boost's fcontext does not.
//
// Thread safety: one thread at a time. A suspended coroutine may be resumed by another thread than
// before. Invariants:
//   1. Destruction needs done() or a coroutine that was never resumed: an unfinished one is
//      CHECKed, since unwinding a foreign stack is what sanitizers cannot follow.
//   2. The stack has a fixed size and a guard page below it.
#pragma once

#include <cstddef>
#include <memory>

namespace pando::sched {

class Coroutine {
 public:
  // Must not throw.
  using Entry = void (*)(void* argument);

  // nullptr if there is no memory for a stack. The entry starts with the first Resume().
  static std::unique_ptr<Coroutine> Create(size_t stack_bytes, Entry entry, void* argument);
  ~Coroutine();
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;

  // Outside of this coroutine: runs it until it suspends or ends.
  void Resume();
  // Inside: back to its resumer.
  void Suspend();
  bool done() const;

 private:
  struct State;
  explicit Coroutine(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace pando::sched
