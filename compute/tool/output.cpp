#include "compute/tool/output.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iomanip>
#include <sstream>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace pando::tool {
namespace {

constexpr char kReaderGone[] = "pando.tool/reader_gone";

absl::Status WriteError(int error) {
  if (error != EPIPE)
    return absl::DataLossError(absl::StrCat("writing the output: ", strerror(error)));
  absl::Status status = absl::CancelledError("the reader of the output is gone");
  status.SetPayload(kReaderGone, absl::Cord());
  return status;
}

}  // namespace

absl::Status Print(std::string_view bytes) {
  if (fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size()) return absl::OkStatus();
  return WriteError(errno);
}

absl::Status FlushOutput() { return fflush(stdout) == 0 ? absl::OkStatus() : WriteError(errno); }

bool IsReaderGone(const absl::Status& status) { return status.GetPayload(kReaderGone).has_value(); }

std::string Column(std::string_view text, size_t width) {
  std::string column(text);
  column.resize(std::max(width, column.size() + 1), ' ');
  return column;
}

std::string SizeText(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto size = static_cast<double>(bytes);
  size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  std::ostringstream text;
  text << std::fixed << std::setprecision(unit == 0 ? 0 : 1) << size << " " << kUnits[unit];
  return text.str();
}

}  // namespace pando::tool
