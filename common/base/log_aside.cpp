#include "common/base/log_aside.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/quiet_thread.h"

namespace pando {

LogAside::~LogAside() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LogAside::Warn(std::string line) {
  {
    std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      absl::StatusOr<std::thread> thread = StartQuietThread("pando-log", [this] { Run(); });
      if (thread.ok()) thread_ = *std::move(thread);
    }
    if (thread_.joinable()) {
      if (lines_.size() >= kLinesMax) {
        ++left_out_;
      } else {
        lines_.push_back(std::move(line));
      }
      line.clear();
    }
  }
  if (!line.empty()) {
    PANDO_LOG(WARNING) << line;
    return;
  }
  changed_.notify_all();
}

void LogAside::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !lines_.empty(); });
    if (lines_.empty()) return;
    const std::string line = std::move(lines_.front());
    lines_.pop_front();
    const uint64_t left_out = lines_.empty() ? std::exchange(left_out_, 0) : 0;
    lock.unlock();
    PANDO_LOG(WARNING) << line;
    if (left_out > 0) PANDO_LOG(WARNING) << left_out << " more lines like it were left out";
    lock.lock();
  }
}

}  // namespace pando
