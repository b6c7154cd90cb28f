// What commands print: results to standard output, in text for people.
// Thread safety: none; one thread prints.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace pando::tool {

// Writes to standard output. IsReaderGone() once its reader is gone: then there is nothing more to
// do, and nothing is wrong. DataLoss: it could not be written (the disk is full).
absl::Status Print(std::string_view bytes);
absl::Status FlushOutput();
bool IsReaderGone(const absl::Status& status);

// Pads to a column.
std::string Column(std::string_view text, size_t width);
// Sizes for people: "1.5 GiB".
std::string SizeText(uint64_t bytes);

}  // namespace pando::tool
