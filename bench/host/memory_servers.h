// Memory servers that a program has started for itself.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/host/process.h"

namespace pando::bench {

// Unavailable, with the end of its log, if one of them has ended.
absl::Status CheckMemoryServers(std::vector<Process>* servers);

// Waits until all of them are announced in their registry. Unavailable: one has ended, which is
// noticed at once, or they are not there after 20 seconds; Cancelled: `stop_fd` became readable.
absl::Status AwaitMemoryServers(std::vector<Process>* servers, const std::string& registry,
                                int stop_fd);

}  // namespace pando::bench
