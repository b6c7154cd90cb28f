#include "common/base/quiet_thread.h"

#include <pthread.h>
#include <signal.h>

#include <utility>

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

}  // namespace

std::thread StartQuietThread(const char* name, std::function<void()> run) {
  sigset_t blocked;
  sigfillset(&blocked);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT, SIGPROF}) {
    sigdelset(&blocked, signal);
  }
  // A new thread has its maker's mask: so no signal can come in between.
  const ScopedSignalMask mask(blocked);
  std::thread thread(std::move(run));
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace pando
