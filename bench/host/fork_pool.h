// Jobs in forked children of this process: each starts from everything that the parent has loaded,
// at the price of the pages that it changes, and several run at once.
//
// For a process with one thread (a child has no other). A child answers with JSON over a pipe and
// ends at once, without destructors of what it inherited; it dies with its parent.
#pragma once

#include <cstddef>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pando::bench {

struct ForkJob {
  std::string name;  // for messages
  std::function<absl::StatusOr<nlohmann::json>()> run;
};

// At most `at_once` children at a time; answers in the order of `jobs`. `done` is called in the
// parent as each job ends well. The first that fails ends all others: its status with its name in
// front; Internal: its child died, or answered with something else.
absl::StatusOr<std::vector<nlohmann::json>> RunForked(
    const std::vector<ForkJob>& jobs, int at_once,
    const std::function<void(size_t job, const nlohmann::json& answer)>& done = nullptr);

}  // namespace pando::bench
