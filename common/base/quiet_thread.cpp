#include "common/base/quiet_thread.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pando {
namespace {

// The calling thread's mask while this lives.
class ScopedSignalMask {
 public:
  explicit ScopedSignalMask(const sigset_t& mask) { pthread_sigmask(SIG_SETMASK, &mask, &before_); }
  ~ScopedSignalMask() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  ScopedSignalMask(const ScopedSignalMask&) = delete;
  ScopedSignalMask& operator=(const ScopedSignalMask&) = delete;

 private:
  sigset_t before_;
};

std::atomic<int> threads_left{-1};

// Whether one may be started.
bool TakeThread() {
  int left = threads_left.load(std::memory_order_relaxed);
  while (left > 0 && !threads_left.compare_exchange_weak(left, left - 1)) continue;
  return left != 0;
}

}  // namespace

void LimitQuietThreads(int more) { threads_left.store(more); }

absl::StatusOr<std::thread> StartQuietThread(const char* name, std::function<void()> run) {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}) {
    sigdelset(&blocked, signal);
  }
  // A new thread has its maker's mask: so no signal can come in between.
  const ScopedSignalMask mask(blocked);
  try {
    if (!TakeThread()) throw std::system_error(EAGAIN, std::generic_category());
    std::thread thread(std::move(run));
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no thread for ", name, ": ", error.what(),
                     ": is there a limit of processes (ulimit -u, or of the container)?"));
  }
}

}  // namespace pando
