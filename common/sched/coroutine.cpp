// This file is compiled without sanitizers (see CMakeLists.txt): instrumented code between an
// annotation and the jump it announces would be booked on the wrong stack. Keep out of it whatever
// deserves their eye.
#include "common/sched/coroutine.h"

#include <boost/coroutine2/coroutine.hpp>
#include <boost/coroutine2/protected_fixedsize_stack.hpp>
#include <new>
#include <optional>
#include <utility>

#include "common/base/check.h"

#ifdef PANDO_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef PANDO_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace pando::sched {
namespace {

using BoostCoroutine = boost::coroutines2::coroutine<void>;
using BoostStack = boost::coroutines2::protected_fixedsize_stack;

#if defined(PANDO_ADDRESS_SANITIZER) || defined(PANDO_THREAD_SANITIZER)
constexpr size_t kStackFactor = 2;  // instrumented frames are larger
#else
constexpr size_t kStackFactor = 1;
#endif

}  // namespace

// What the sanitizers have to be told at a switch. Empty functions in other builds.
class SwitchAnnotations {
 public:
  void SetStack(void* bottom, size_t bytes) {
    stack_bottom_ = bottom;
    stack_bytes_ = bytes;
#ifdef PANDO_ADDRESS_SANITIZER
    ASAN_UNPOISON_MEMORY_REGION(bottom, bytes);  // may have been another stack before
#endif
  }

#ifdef PANDO_THREAD_SANITIZER
  SwitchAnnotations() : fiber_(__tsan_create_fiber(0)) {}
  ~SwitchAnnotations() { __tsan_destroy_fiber(fiber_); }
#else
  SwitchAnnotations() = default;
  ~SwitchAnnotations() = default;
#endif
  SwitchAnnotations(const SwitchAnnotations&) = delete;
  SwitchAnnotations& operator=(const SwitchAnnotations&) = delete;

  void BeforeResume() {
#ifdef PANDO_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(&caller_fake_stack_, stack_bottom_, stack_bytes_);
#endif
#ifdef PANDO_THREAD_SANITIZER
    caller_fiber_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber_, 0);
#endif
  }
  void AfterResume() {
#ifdef PANDO_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(caller_fake_stack_, nullptr, nullptr);
#endif
  }
  void OnEntered() {
#ifdef PANDO_ADDRESS_SANITIZER
    __sanitizer_finish_switch_fiber(fake_stack_, &caller_bottom_, &caller_bytes_);
#endif
  }
  void BeforeLeaving([[maybe_unused]] bool for_ever) {
#ifdef PANDO_ADDRESS_SANITIZER
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &fake_stack_, caller_bottom_,
                                   caller_bytes_);
#endif
#ifdef PANDO_THREAD_SANITIZER
    __tsan_switch_to_fiber(caller_fiber_, 0);
#endif
  }
  // Boost ends even a finished coroutine by throwing on its stack. ASan has to know that stack
  // meanwhile.
  template <typename Destroy>
  void AroundDestruction(Destroy destroy) {
#ifdef PANDO_ADDRESS_SANITIZER
    void* fake_stack = nullptr;
    const void* bottom = nullptr;
    size_t bytes = 0;
    __sanitizer_start_switch_fiber(&fake_stack, stack_bottom_, stack_bytes_);
    destroy();
    __sanitizer_finish_switch_fiber(fake_stack, &bottom, &bytes);
    __sanitizer_start_switch_fiber(&fake_stack, bottom, bytes);
    __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#else
    destroy();
#endif
  }

 private:
  void* stack_bottom_ = nullptr;
  size_t stack_bytes_ = 0;
#ifdef PANDO_ADDRESS_SANITIZER
  void* fake_stack_ = nullptr;
  void* caller_fake_stack_ = nullptr;
  const void* caller_bottom_ = nullptr;
  size_t caller_bytes_ = 0;
#endif
#ifdef PANDO_THREAD_SANITIZER
  void* fiber_;
  void* caller_fiber_ = nullptr;
#endif
};

namespace {

// Boost's guarded stack, remembered so that the sanitizers can be told its bounds.
class NotingStack {
 public:
  NotingStack(size_t bytes, SwitchAnnotations* annotations)
      : stack_(bytes), annotations_(annotations) {}

  boost::context::stack_context allocate() {
    boost::context::stack_context context = stack_.allocate();
    const size_t guard_bytes = BoostStack::traits_type::page_size();
    const size_t bytes = context.size - guard_bytes;
    annotations_->SetStack(static_cast<char*>(context.sp) - bytes, bytes);
    return context;
  }
  void deallocate(boost::context::stack_context& context) noexcept { stack_.deallocate(context); }

 private:
  BoostStack stack_;
  SwitchAnnotations* annotations_;
};

}  // namespace

struct Coroutine::State {
  Entry entry = nullptr;
  void* argument = nullptr;
  SwitchAnnotations annotations;
  std::optional<BoostCoroutine::push_type> resume;
  BoostCoroutine::pull_type* suspend = nullptr;  // valid once entered
  bool entered = false;
  bool done = false;

  void Run(BoostCoroutine::pull_type& source) {
    suspend = &source;
    entered = true;
    annotations.OnEntered();
    entry(argument);
    done = true;
    annotations.BeforeLeaving(/*for_ever=*/true);
  }
};

std::unique_ptr<Coroutine> Coroutine::Create(size_t stack_bytes, Entry entry, void* argument) {
  auto state = std::make_unique<State>();
  State* const raw = state.get();
  raw->entry = entry;
  raw->argument = argument;
  try {
    raw->resume.emplace(NotingStack(stack_bytes * kStackFactor, &raw->annotations),
                        [raw](BoostCoroutine::pull_type& source) { raw->Run(source); });
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
  return std::unique_ptr<Coroutine>(new Coroutine(std::move(state)));
}

Coroutine::Coroutine(std::unique_ptr<State> state) : state_(std::move(state)) {}

Coroutine::~Coroutine() {
  PANDO_CHECK(state_->done || !state_->entered) << "an unfinished coroutine is destroyed";
  state_->annotations.AroundDestruction([this] { state_->resume.reset(); });
}

void Coroutine::Resume() {
  PANDO_DCHECK(!state_->done);
  state_->annotations.BeforeResume();
  (*state_->resume)();
  state_->annotations.AfterResume();
}

void Coroutine::Suspend() {
  state_->annotations.BeforeLeaving(/*for_ever=*/false);
  (*state_->suspend)();
  state_->annotations.OnEntered();
}

bool Coroutine::done() const { return state_->done; }

}  // namespace pando::sched
