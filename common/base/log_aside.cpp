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

void LogAside::Line::Say() const {
  LogStatement(file, line, google::GLOG_WARNING).stream() << text;
}

void LogAside::Warn(const char* file, int line, std::string text) {
  Line said = {file, line, std::move(text)};
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
        lines_.push_back(std::move(said));
      }
      changed_.notify_all();
      return;
    }
  }
  said.Say();
}

void LogAside::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !lines_.empty(); });
    if (lines_.empty()) return;
    const Line line = std::move(lines_.front());
    lines_.pop_front();
    const uint64_t left_out = lines_.empty() ? std::exchange(left_out_, 0) : 0;
    lock.unlock();
    line.Say();
    if (left_out > 0) PANDO_LOG(WARNING) << left_out << " more lines like it were left out";
    lock.lock();
  }
}

}  // namespace pando
