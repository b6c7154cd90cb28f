// What frames of all backends begin with. Magic and version stand first in every version, so that
// two versions can tell each other apart.
#pragma once

#include <cstdint>
#include <type_traits>

#include "absl/status/status.h"

namespace pando {

// The frames of one backend.
struct FrameFormat {
  const char* name;
  uint32_t magic;
  uint16_t version;
  uint16_t last_type;  // types are 1 to this
  uint32_t body_bytes_max;
};

struct FrameStart {
  uint32_t magic = 0;
  uint16_t version = 0;
  uint16_t type = 0;
  uint32_t sequence = 0;  // replies repeat their request's; never 0 after the hello
  uint32_t length = 0;    // of the body
};
static_assert(std::is_trivially_copyable_v<FrameStart> && sizeof(FrameStart) == 16);
// FailedPrecondition: another version (says both). DataLoss: anything else that is no frame.
absl::Status CheckFrameStart(const FrameStart& start, const FrameFormat& format);

}  // namespace pando
