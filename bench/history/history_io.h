// Histories and states as JSON lines.
//
//   {"client":1,"op":"put","key":"6b","value":"76","found":true,"call":10,"return":20}
//   {"client":1,"op":"scan","from":"61","limit":2,"rows":[["6b","76"]],"call":30,"return":50}
//   {"op":"replace","key":"6b","value":"77","found":true,"expected":"76","actual":null,...}
//   {"op":"erase_if","key":"6b","value":null,"found":false,"expected":"76","actual":"78",...}
//   {"op":"upsert","key":"6b","value":"7778","found":true,"function":"append","operand":"78",
//    "actual":null,...}
//   {"key":"6b","value":"76"} (a state)
//
// A scan may have "to":"62": it is one of keys below that.
// The last three operations were done ("found":true) or refused; then "actual" is what the key
// held, null: it was absent. An upsert's "function" is "add" (numbers of 8 bytes, little-endian,
// modulo 2^64) or "append"; an absent key gets the operand; "value" is the result, null if there is
// none.
//
// A clear (the key was absent at some moment, whatever was there before) is two lines: a delete of
// unknown outcome and a get that found nothing, both with "clear":true. Who does not know that
// field checks a little less: the delete may then happen at any time.
//
// "return":null: the outcome is unknown. With "latest":90 it took effect by then or never; who does
// not know that field checks a little less. The writers write keys and values as hex, which keeps
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

// One line, without the line feed. `as_read`: keys and values are of a file, and written as they
// are.
std::string FormatOperation(const Operation& operation, bool as_read = false);

// A clear in the terms of files.
std::vector<Operation> AsDeleteAndGet(const Operation& clear);

absl::Status WriteHistory(const std::vector<Operation>& operations, const std::string& path,
                          bool as_read = false);
absl::Status WriteState(const State& state, const std::string& path);

// InvalidArgument names file and line; an empty history is InvalidArgument too. Blank lines and
// unknown fields are ignored.
absl::StatusOr<std::vector<Operation>> ReadHistory(const std::string& path);
absl::StatusOr<State> ReadState(const std::string& path);

}  // namespace pando::history
