// Lines in the log that somebody else can cause: so many a second for one cause, and the next line
// says how many were left out. A stranger that sends garbage all day fills no disk.
//
//   RateLimitedLog refused_log_;   // one for each cause
//   PANDO_LOG_LIMITED(refused_log_, WARNING) << "client refused: " << status;
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/check.h"
#include "common/base/clock.h"

namespace pando {

class RateLimitedLog {
 public:
  // `lines` in each second, at least 1. `clock` outlives this.
  explicit RateLimitedLog(uint32_t lines = 3, const Clock* clock = &RealClock())
      : lines_max_(lines), clock_(clock) {}
  RateLimitedLog(const RateLimitedLog&) = delete;
  RateLimitedLog& operator=(const RateLimitedLog&) = delete;

  // What the line begins with: "", or how many like it were left out before it. nullopt: leave it
  // out.
  std::optional<std::string> Admit();
  // Left out so far, all together.
  uint64_t left_out() const;

 private:
  const uint32_t lines_max_;
  const Clock* const clock_;
  mutable std::mutex mutex_;
  int64_t second_began_ns_ = INT64_MIN;
  uint32_t lines_ = 0;         // in this second
  uint64_t left_out_now_ = 0;  // since the last line
  uint64_t left_out_ = 0;
};

}  // namespace pando

#define PANDO_LOG_LIMITED(limit, severity)                                                        \
  for (std::optional<std::string> pando_admitted_ = (limit).Admit(); pando_admitted_.has_value(); \
       pando_admitted_.reset())                                                                   \
  PANDO_LOG(severity) << *pando_admitted_
