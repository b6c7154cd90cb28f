// The clocks of a member's partitions go equally fast (rule T7): who comes to a full member makes
// room in his own partition, so without this one that nobody uses would keep what it has for ever,
// and one that is new would get nothing.
#pragma once

#include <cstddef>
#include <span>

#include "compute/owner/own_range.h"

namespace pando {

class Member;

// In the member's service, now and then. Each partition that its own clock has gone round more
// slowly since the last call than the fastest one's has catches up, until so many bytes are free
// together. Without them only the clocks' rounds are noted. Some milliseconds at most; takes the
// partitions' mutexes, for some microseconds each time.
void EvenClocks(Member* member, std::span<const OwnPlace> places, size_t bytes);

}  // namespace pando
