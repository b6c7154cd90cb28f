#include "common/base/rate_limited_log.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace pando {

std::optional<std::string> RateLimitedLog::Admit() {
  std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_->NowNs();
  if (second_began_ns_ == INT64_MIN || now_ns - second_began_ns_ >= kSecondNs) {
    second_began_ns_ = now_ns;
    lines_ = 0;
  }
  if (lines_ >= lines_max_) {
    ++left_out_now_;
    ++left_out_;
    return std::nullopt;
  }
  ++lines_;
  if (left_out_now_ == 0) return std::string();
  return absl::StrCat("[", std::exchange(left_out_now_, 0), " lines like this left out] ");
}

uint64_t RateLimitedLog::left_out() const {
  std::lock_guard lock(mutex_);
  return left_out_;
}

}  // namespace pando
