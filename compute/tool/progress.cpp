#include "compute/tool/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/units.h"

namespace pando::tool {
namespace {

std::string DurationText(double seconds) {
  if (seconds < 120) return absl::StrCat(static_cast<uint64_t>(seconds + 0.5), " s");
  if (seconds < 7200) return absl::StrCat(static_cast<uint64_t>(seconds / 60 + 0.5), " min");
  return absl::StrCat(static_cast<uint64_t>(seconds / 3600 + 0.5), " h");
}

}  // namespace

std::string ProgressText(const std::string& verb, uint64_t keys, uint64_t part, uint64_t total,
                         double seconds) {
  std::string text = absl::StrCat(verb, " ", keys, " keys");
  // An estimated total may be too small.
  const double done =
      total == 0 ? 0 : std::min(1.0, static_cast<double>(part) / static_cast<double>(total));
  if (total > 0) absl::StrAppend(&text, " (", static_cast<int>(done * 100), " %)");
  if (seconds > 0) {
    absl::StrAppend(&text, ", ", FormatCount(static_cast<double>(keys) / seconds), " a second");
  }
  if (done > 0 && done < 1) {
    absl::StrAppend(&text, ", ", DurationText(seconds * (1 - done) / done), " left");
  }
  return text;
}

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
    fprintf(stderr, "%s\n", Text().c_str());
  }
}

double Progress::Seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

std::string Progress::Text() const {
  return ProgressText(verb_, keys(), part_.load(std::memory_order_relaxed), total_, Seconds());
}

void Progress::Run() {
  const std::chrono::milliseconds pause(terminal_ ? 500 : 1000);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, pause, [this] { return stopped_; })) {
    fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n", Text().c_str());
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
