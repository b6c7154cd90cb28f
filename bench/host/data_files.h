// The data files that come with the programs: workloads, NIC profiles.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace pando::bench {

// `name` is a file (with a slash or ".json"), or the name of one of the files that come with Pando,
// looked for in `folder` beside the program and in share/pando/`folder` of its prefix. NotFound
// lists what there is; `what` is the word for such a file: "workload".
absl::StatusOr<std::filesystem::path> FindDataFile(std::string_view what, std::string_view folder,
                                                   std::string_view name);

}  // namespace pando::bench
