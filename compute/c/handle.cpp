#include "compute/c/handle.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando::c {

// A place of the table. `state`: how often it has been given out (kGenerationShift), whether it is
// open, and how many Held there are.
struct Slot {
  std::atomic<uint64_t> state{0};
  std::shared_ptr<Object> object;  // kept by calls that use it, or have closed it
};

namespace {

constexpr int kIndexBits = 20, kGenerationShift = 24;
constexpr uint64_t kOpen = uint64_t{1} << 23, kHolders = kOpen - 1;
constexpr uint64_t kGenerationMax = (uint64_t{1} << 39) - 1;
// Part of every handle: an address that no process of Linux has.
constexpr uint64_t kMark = uint64_t{1} << 63;
constexpr size_t kChunkSlots = 1024, kChunks = (size_t{1} << kIndexBits) / kChunkSlots;

constexpr char kClosedMark[] = "type.pando/closed";

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kClient:
      return "client";
    case Kind::kTree:
      return "tree";
    case Kind::kSession:
      return "session";
    case Kind::kCursor:
      return "cursor";
    case Kind::kExecutor:
      return "executor";
    case Kind::kList:
      return "list";
  }
  return "handle";
}

absl::Status NoHandleError(const void* handle, Kind kind) {
  return absl::InvalidArgumentError(absl::StrCat(handle == nullptr ? "NULL" : "something else",
                                                 " was given for a ", NameOf(kind),
                                                 ": give the handle of one that is open"));
}

uint64_t GenerationOf(uint64_t state) { return state >> kGenerationShift; }

// What a handle says.
struct Reference {
  uint64_t index, generation;
};
bool Decode(const void* handle, Reference* reference) {
  const auto number = reinterpret_cast<uint64_t>(handle);
  if ((number & kMark) == 0) return false;
  reference->index = number & ((uint64_t{1} << kIndexBits) - 1);
  reference->generation = (number & ~kMark) >> kIndexBits;
  return reference->generation != 0;
}

// Grows, and is never destroyed: threads may outlive main().
class Table {
 public:
  static Table& Get() {
    static Table* const table = [] {
      auto* const made = new Table;
      pthread_atfork([] { Get().mutex_.lock(); }, [] { Get().mutex_.unlock(); },
                     [] { Get().LeaveToParent(); });
      return made;
    }();
    return *table;
  }

  // Whether it was given out before this process came of another's fork().
  bool IsInherited(const Reference& reference) const {
    return reference.index < inherited_.load(std::memory_order_relaxed);
  }

  // Null: there never was such a one.
  Slot* Find(const Reference& reference) const {
    if (reference.index >= slots_.load(std::memory_order_acquire)) return nullptr;
    Slot* const chunk = chunks_[reference.index / kChunkSlots].load(std::memory_order_acquire);
    return &chunk[reference.index % kChunkSlots];
  }

  absl::StatusOr<void*> Add(std::shared_ptr<Object> object) {
    std::lock_guard lock(mutex_);
    uint64_t index;
    if (!free_.empty()) {
      index = free_.back();
      free_.pop_back();
    } else {
      index = slots_.load(std::memory_order_relaxed);
      if (index == kChunks * kChunkSlots) {
        return absl::ResourceExhaustedError(
            absl::StrCat(index, " handles are open: close those that are not needed"));
      }
      free_.reserve(index + 1);  // so that Remove() never fails
      auto& chunk = chunks_[index / kChunkSlots];
      if (chunk.load(std::memory_order_relaxed) == nullptr) {
        chunk.store(new Slot[kChunkSlots], std::memory_order_release);
      }
      slots_.store(index + 1, std::memory_order_release);
    }
    Slot* const slot = Find({index, 0});
    const uint64_t generation = GenerationOf(slot->state.load(std::memory_order_relaxed)) + 1;
    slot->object = std::move(object);
    slot->state.store(generation << kGenerationShift | kOpen, std::memory_order_release);
    ++open_;
    return reinterpret_cast<void*>(kMark | generation << kIndexBits | index);
  }

  void Remove(uint64_t index) {
    std::lock_guard lock(mutex_);
    --open_;
    const uint64_t state = Find({index, 0})->state.load(std::memory_order_relaxed);
    if (GenerationOf(state) < kGenerationMax) free_.push_back(index);
  }

  uint64_t open() const {
    std::lock_guard lock(mutex_);
    return open_;
  }

 private:
  // In a new process, which has none of the threads behind these handles.
  void LeaveToParent() {
    inherited_.store(slots_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    free_.clear();
    open_ = 0;
    mutex_.unlock();
  }

  mutable std::mutex mutex_;
  std::array<std::atomic<Slot*>, kChunks> chunks_{};
  std::atomic<uint64_t> inherited_{0};  // places below are the parent's
  std::atomic<uint64_t> slots_{0};
  std::vector<uint64_t> free_;
  uint64_t open_ = 0;
};

// One holder less.
void Release(Slot* slot) {
  const uint64_t before = slot->state.fetch_sub(1, std::memory_order_acq_rel);
  // The call that closes it waits for the last.
  if ((before & kOpen) == 0 && (before & kHolders) == 1) slot->state.notify_all();
}

}  // namespace

absl::Status ClosedError(Kind kind) {
  absl::Status status =
      absl::FailedPreconditionError(absl::StrCat("this ", NameOf(kind), " has been closed"));
  status.SetPayload(kClosedMark, absl::Cord());
  return status;
}

bool IsClosed(const absl::Status& status) { return status.GetPayload(kClosedMark).has_value(); }

HeldObject::~HeldObject() {
  if (slot_ != nullptr) Release(slot_);
}

const std::shared_ptr<Object>& HeldObject::object() const { return slot_->object; }

absl::Status HeldObject::Take(const void* handle, Kind kind) {
  Reference reference{};
  if (!Decode(handle, &reference)) return NoHandleError(handle, kind);
  Slot* const slot = Table::Get().Find(reference);
  if (slot == nullptr) return NoHandleError(handle, kind);
  if (Table::Get().IsInherited(reference)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "this ", NameOf(kind), " belongs to the process that forked this one: connect again"));
  }
  uint64_t state = slot->state.load(std::memory_order_relaxed);
  do {
    if (GenerationOf(state) < reference.generation) return NoHandleError(handle, kind);
    if (GenerationOf(state) > reference.generation || (state & kOpen) == 0) {
      return ClosedError(kind);
    }
    if ((state & kHolders) == kHolders) return absl::ResourceExhaustedError("too many threads");
  } while (!slot->state.compare_exchange_weak(state, state + 1, std::memory_order_acquire,
                                              std::memory_order_relaxed));
  slot_ = slot;
  return slot->object->kind() == kind ? absl::OkStatus() : NoHandleError(handle, kind);
}

absl::StatusOr<void*> Open(std::shared_ptr<Object> object) {
  Object* const opened = object.get();
  const std::shared_ptr<Object> keep = object, parent = object->parent();
  absl::StatusOr<void*> handle = Table::Get().Add(std::move(object));
  if (!handle.ok()) {
    opened->End();
    return handle;
  }
  if (parent != nullptr) {
    std::lock_guard lock(parent->mutex_);
    parent->children_.push_back(*handle);
  }
  return handle;
}

absl::Status Close(const void* handle, Kind kind) {
  if (handle == nullptr) return absl::OkStatus();
  Slot* slot;
  Reference reference{};
  {
    HeldObject held;  // is it of this kind?
    PANDO_RETURN_IF_ERROR(held.Take(handle, kind));
    Decode(handle, &reference);
    slot = Table::Get().Find(reference);
    const uint64_t before = slot->state.fetch_and(~kOpen, std::memory_order_acq_rel);
    if ((before & kOpen) == 0) return ClosedError(kind);  // by somebody else, just now
  }
  uint64_t state;
  while (((state = slot->state.load(std::memory_order_acquire)) & kHolders) != 0) {
    slot->state.wait(state, std::memory_order_acquire);
  }
  const std::shared_ptr<Object> object = std::move(slot->object);
  slot->object = nullptr;
  object->CloseChildren();
  object->End();
  Table::Get().Remove(reference.index);
  if (object->parent_ != nullptr) {
    Object& parent = *object->parent_;
    std::lock_guard lock(parent.mutex_);
    std::erase(parent.children_, handle);
    parent.child_left_.notify_all();
  }
  return absl::OkStatus();
}

void Object::CloseChildren() {
  std::vector<void*> children;
  {
    std::lock_guard lock(mutex_);
    children = children_;
  }
  // Executors first: what they do for others takes longest, and uses trees.
  for (const Kind kind : {Kind::kExecutor, Kind::kCursor, Kind::kSession, Kind::kTree}) {
    for (void* child : children) (void)Close(child, kind);
  }
  // Those that somebody else closes at this moment.
  std::unique_lock lock(mutex_);
  child_left_.wait(lock, [this] { return children_.empty(); });
}

uint64_t OpenHandles() { return Table::Get().open(); }

}  // namespace pando::c
