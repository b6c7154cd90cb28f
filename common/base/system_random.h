// A number that differs from run to run: for seeds and first sequence numbers, not for secrets.
#pragma once

#include <cstdint>

namespace pando {

// From the kernel's generator; from the time where that is not ready yet. Never blocks.
// Thread-safe.
uint64_t SystemRandom();

}  // namespace pando
