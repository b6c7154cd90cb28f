// Handles of the C interface, and what stands behind them.
//
// A handle is a number in the shape of a pointer: an index into a table, and how often that place
// has been given out. So one that was closed, or that is none, is told from one that is open,
// whatever became of the memory, and nothing is ever read through it.
//
// Thread-safe. Invariants:
//   1. What a handle stands for lives at least while a Held of it does. Closing it first refuses
//      all that come later, and then waits for those.
//   2. Objects end after their children (a client's trees, sessions and executors, a session's
//      cursors), each once, by the call that closes it or its parent first.
//   3. A place is given out again under another number: 2^39 times, then it stays unused.
//   4. After fork() the child has none of its parent's: they are refused, and not closed.
//   5. Nobody waits here inside a callback: that is refused before (call.h).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando::c {

enum class Kind : uint8_t { kClient, kTree, kSession, kCursor, kExecutor, kList };

// What a handle stands for. Derived classes have a `static constexpr Kind kKind`.
class Object {
 public:
  explicit Object(Kind kind, std::shared_ptr<Object> parent = nullptr)
      : kind_(kind), parent_(std::move(parent)) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  // Ends what this stands for: nobody uses it, and it has no children. Once.
  virtual void End() {}

  Kind kind() const { return kind_; }
  // Outlives this. Null: there is none.
  const std::shared_ptr<Object>& parent() const { return parent_; }

 private:
  friend absl::StatusOr<void*> Open(std::shared_ptr<Object> object);
  friend absl::Status Close(const void* handle, Kind kind);
  void CloseChildren();

  const Kind kind_;
  const std::shared_ptr<Object> parent_;
  std::mutex mutex_;
  std::condition_variable child_left_;
  std::vector<void*> children_;
};

// A handle for the object. The caller holds its parent. ResourceExhausted: there are too many; the
// object has ended.
absl::StatusOr<void*> Open(std::shared_ptr<Object> object);

// As pando_close_*(): with all children. Null is none, and OK.
absl::Status Close(const void* handle, Kind kind);

uint64_t OpenHandles();

struct Slot;

// While it lives, what the handle stands for does.
class HeldObject {
 public:
  HeldObject() = default;
  ~HeldObject();
  HeldObject(const HeldObject&) = delete;
  HeldObject& operator=(const HeldObject&) = delete;

  // Once. InvalidArgument: no handle of this kind; ClosedError().
  absl::Status Take(const void* handle, Kind kind);
  const std::shared_ptr<Object>& object() const;

 private:
  Slot* slot_ = nullptr;
};

template <typename T>
class Held {
 public:
  absl::Status Take(const void* handle) { return held_.Take(handle, T::kKind); }
  T* operator->() const { return static_cast<T*>(held_.object().get()); }
  T& operator*() const { return *operator->(); }
  std::shared_ptr<T> shared() const { return std::static_pointer_cast<T>(held_.object()); }

 private:
  HeldObject held_;
};

// PANDO_CLOSED.
absl::Status ClosedError(Kind kind);
bool IsClosed(const absl::Status& status);

}  // namespace pando::c
