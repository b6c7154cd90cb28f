// JSON in files: results, and plans on their way to the processes of a run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando::bench {

// Texts in JSON are; paths and names of a command line need not be.
bool IsUtf8(const std::string& text);

// Writes a line, or with `indent` lines; what is not UTF-8 is replaced. Unavailable says why.
absl::Status WriteJsonFile(const std::string& file, const nlohmann::json& json, int indent = -1);

// DataLoss: it cannot be read, or holds something else.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& file);

}  // namespace pando::bench
