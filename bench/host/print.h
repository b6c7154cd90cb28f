// What a program is run for goes to standard output.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace pando::bench {

// Unavailable: it did not get there. A table that is lost is no success.
absl::Status Print(const std::string& text);

}  // namespace pando::bench
