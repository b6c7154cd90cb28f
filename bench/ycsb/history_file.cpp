#include "bench/ycsb/history_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "bench/history/history_io.h"
#include "bench/workload/values.h"
#include "common/base/status.h"

namespace pando::bench {
namespace {

absl::Status CannotWrite(const std::string& file) {
  return absl::UnavailableError(absl::StrCat("cannot write ", file, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<HistoryFile>> HistoryFile::Open(const std::string& file) {
  std::FILE* const stream = std::fopen(file.c_str(), "ae");
  if (stream == nullptr) return CannotWrite(file);
  return std::unique_ptr<HistoryFile>(new HistoryFile(file, stream));
}

HistoryFile::~HistoryFile() {
  if (stream_ != nullptr) std::fclose(stream_);
}

void HistoryFile::Add(const history::Operation& operation) {
  const std::string line = history::FormatOperation(operation);
  std::fwrite(line.data(), 1, line.size(), stream_);
  std::fputc('\n', stream_);  // an error stays with the stream until Close()
}

absl::Status HistoryFile::Close() {
  const bool failed = std::ferror(stream_) != 0;
  const bool closed = std::fclose(std::exchange(stream_, nullptr)) == 0;
  return failed || !closed ? CannotWrite(name_) : absl::OkStatus();
}

absl::StatusOr<uint64_t> ValuesUsed(const std::string& state_file, uint32_t value_bytes) {
  PANDO_ASSIGN_OR_RETURN(const history::State state, history::ReadState(state_file));
  uint64_t used = 0;
  for (const auto& [key, hex] : state) {
    const std::string value = absl::HexStringToBytes(hex);
    if (value.size() != value_bytes) continue;
    const std::optional<uint64_t> number = Values::NumberOf(value);
    if (number.has_value()) used = std::max(used, std::max(*number, *number + 1));
  }
  return used;
}

absl::Status JoinFiles(const std::vector<std::string>& parts, const std::string& file) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  if (!out) return CannotWrite(file);
  for (const std::string& part : parts) {
    std::ifstream in(part, std::ios::binary);
    if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", part));
    if (in.peek() != std::ifstream::traits_type::eof()) out << in.rdbuf();
  }
  out.close();
  return out ? absl::OkStatus() : CannotWrite(file);
}

}  // namespace pando::bench
