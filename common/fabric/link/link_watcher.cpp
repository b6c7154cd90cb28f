#include "common/fabric/link/link_watcher.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "common/base/check.h"
#include "common/base/quiet_thread.h"
#include "common/base/status.h"

namespace pando {

absl::Status LinkWatcher::Start(const char* name, Owner* owner) {
  nudge_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!nudge_) return absl::ErrnoToStatus(errno, "eventfd");
  PANDO_ASSIGN_OR_RETURN(thread_, StartQuietThread(name, [this, owner] { Run(owner); }));
  return absl::OkStatus();
}

void LinkWatcher::Stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  Nudge();
  thread_.join();
}

void LinkWatcher::Nudge() {
  const uint64_t one = 1;
  // Can only fail where the counter is full, and then the watcher wakes anyway.
  [[maybe_unused]] const ssize_t ignored = write(nudge_.get(), &one, sizeof(one));
}

void LinkWatcher::Run(Owner* owner) {
  std::vector<pollfd> polled;
  while (!stop_.load(std::memory_order_acquire)) {
    polled.assign(1, {nudge_.get(), POLLIN, 0});
    owner->AppendWatched(&polled);
    if (poll(polled.data(), polled.size(), -1) < 0) {
      PANDO_CHECK(errno == EINTR || errno == ENOMEM) << "poll: " << errno;
      continue;
    }
    if (polled[0].revents != 0) {
      uint64_t count;
      [[maybe_unused]] const ssize_t ignored = read(nudge_.get(), &count, sizeof(count));
    }
    owner->OnPolled(polled, 1);
  }
}

}  // namespace pando
