// A clock that a test sets.
#pragma once

#include <cstdint>

#include "common/base/clock.h"

namespace pando {

class SetClock final : public Clock {
 public:
  int64_t NowNs() const override { return now_ns; }
  int64_t now_ns = 5 * kSecondNs;
};

}  // namespace pando
