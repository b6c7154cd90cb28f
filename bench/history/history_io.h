// Histories and states as JSON lines.
//
//   {"client":1,"op":"put","key":"6b","value":"76","found":true,"call":10,"return":20}
//   {"client":1,"op":"scan","from":"61","limit":2,"rows":[["6b","76"]],"call":30,"return":50}
//   {"key":"6b","value":"76"} (a state)
//
// A scan may have "to":"62": it is one of keys below that.
//
// "return":null: the outcome is unknown. The writers write keys and values as hex, which keeps
// their order, so that any bytes can be tested; the readers take strings as they are (a checker
// only compares them).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/history/history.h"

namespace pando::history {

std::string ToHex(std::string_view bytes);

// One line, without the line feed.
std::string FormatOperation(const Operation& operation);

absl::Status WriteHistory(const std::vector<Operation>& operations, const std::string& path);
absl::Status WriteState(const State& state, const std::string& path);

// InvalidArgument names file and line; an empty history is InvalidArgument too. Blank lines and
// unknown fields are ignored.
absl::StatusOr<std::vector<Operation>> ReadHistory(const std::string& path);
absl::StatusOr<State> ReadState(const std::string& path);

}  // namespace pando::history
