// What commands read and write beside their output: files, standard input, and words of the command
// line that stand for bytes.
// Thread safety: pure but for what they read and write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pando::tool {

// For messages: "standard input" for "-".
std::string NameOfInput(const std::string& path);

// All of a file, or of standard input if `path` is "-"; also of what has no size, as pipes and
// files of /proc have none. InvalidArgument: it cannot be opened, is a directory, or has more than
// `bytes_max`. DataLoss: it cannot be read.
absl::StatusOr<std::string> ReadInput(const std::string& path, size_t bytes_max = SIZE_MAX);

// Reads from a file descriptor, which stays open, on and on: 1 to `size` bytes, 0 at the end.
// DataLoss: it cannot be read.
std::function<absl::StatusOr<size_t>(char* bytes, size_t size)> SourceOfFile(int fd,
                                                                             std::string name);
// DataLoss: not all could be written.
absl::Status WriteFully(int fd, std::string_view bytes, const std::string& name);

// A key, or a bound of keys, on the command line: its bytes, or hexadecimal digits.
absl::StatusOr<std::string> KeyOf(const std::string& word, bool hex);
// A value on the command line. As a key; or "@FILE" and "@-": what the file or standard input
// holds, as it is; without `hex`, "@@..." is a value that begins with one @.
absl::StatusOr<std::string> ValueOf(const std::string& word, bool hex);

}  // namespace pando::tool
