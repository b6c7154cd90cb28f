// Numbers of logged changes. A member's first one has 1; there are no gaps, also over a new extent.
#pragma once

#include <cstdint>

namespace pando {

using Lsn = uint64_t;  // 1, 2, 3, ...; 0: none

inline constexpr Lsn kNoLsn = 0;

}  // namespace pando
