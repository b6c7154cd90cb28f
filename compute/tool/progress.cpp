#include "compute/tool/progress.h"

#include <unistd.h>

#include <cstdio>
#include <new>
#include <utility>

#include "common/base/progress_text.h"

namespace pando::tool {

Progress::Progress(std::string verb, uint64_t total, ShowProgress show)
    : verb_(std::move(verb)),
      total_(total),
      terminal_(isatty(STDERR_FILENO) != 0),
      shown_(show == ShowProgress::kAlways || (show == ShowProgress::kOnTerminal && terminal_)) {
  if (shown_) thread_ = std::thread([this] { Run(); });
}

Progress::~Progress() {
  if (!shown_) return;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_one();
  thread_.join();
  if (terminal_) {
    fprintf(stderr, "\r\033[K");
  } else {
    Show();
  }
}

double Progress::Seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::string Progress::Text() const {
  return ProgressText(verb_, keys(), part_.load(std::memory_order_relaxed), total_, Seconds());
}

void Progress::Show() const {
  try {
    fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", Text().c_str());
  } catch (const std::bad_alloc&) {
    // The command says so itself.
  }
}

void Progress::Run() {
  const std::chrono::milliseconds pause(terminal_ ? 500 : 1000);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [this] { return stopped_; })) {
    Show();
  }
}

void Throttle::Spend(uint64_t bytes) {
  if (rate_ == 0) return;
  spent_ += bytes;
  const std::chrono::duration<double> due(static_cast<double>(spent_) / static_cast<double>(rate_));
  std::this_thread::sleep_until(
      start_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(due));
}

}  // namespace pando::tool
