#include "bench/host/stop_signals.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

#include "common/base/check.h"

namespace pando::bench {
namespace {

std::atomic<int> caught{0};
int event_fd = -1;

void OnSignal(int signal) {
  int expected = 0;
  if (!caught.compare_exchange_strong(expected, signal)) _exit(128 + signal);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_fd, &one, sizeof(one));
}

}  // namespace

int CatchStopSignals() {
  event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  PANDO_CHECK_GE(event_fd, 0);
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
  return event_fd;
}

int StopSignal() { return caught.load(); }

}  // namespace pando::bench
