#include "bench/chaos/operation_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/history/history_io.h"
#include "common/base/status.h"

namespace pando::chaos {
namespace {

using history::OperationKind;

bool IsRead(OperationKind kind) {
  return kind == OperationKind::kGet || kind == OperationKind::kScan;
}

// Takes a number and the blank behind it off the front.
template <typename Number>
bool TakeNumber(std::string_view* text, Number* number) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *number);
  const auto used = static_cast<size_t>(end - text->data());
  if (error != std::errc() || used >= text->size() || (*text)[used] != ' ') return false;
  text->remove_prefix(used + 1);
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<OperationLog>> OperationLog::Create(const std::string& file) {
  const int fd = open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) {
    return absl::UnavailableError(absl::StrCat("cannot write ", file, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<OperationLog>(new OperationLog(file, fd));
}

OperationLog::~OperationLog() { close(fd_); }

absl::Status OperationLog::Write(const std::string& line) {
  if (write(fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size())) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("cannot write ", name_, ": ", std::strerror(errno)));
}

absl::Status OperationLog::Called(uint64_t number, const history::Operation& operation) {
  if (IsRead(operation.kind)) return absl::OkStatus();
  return Write(absl::StrCat("c ", number, " ", history::FormatOperation(operation), "\n"));
}

absl::Status OperationLog::Returned(uint64_t number, const absl::Status& status, int64_t return_ns,
                                    history::Operation operation) {
  const bool unknown = absl::IsUnknown(status) && !IsRead(operation.kind);
  // Refused because of what the key holds: an answer like any other.
  const absl::StatusCode code = IsConditionFailed(status) ? absl::StatusCode::kOk : status.code();
  operation.return_ns = unknown ? history::kNeverReturned : return_ns;
  const bool says_something = unknown || IsAnswer(code);
  return Write(absl::StrCat(
      "r ", number, " ", operation.call_ns, " ", return_ns, " ", static_cast<int>(code), " ",
      says_something ? history::FormatOperation(operation) : std::string("-"), "\n"));
}

bool IsAnswer(absl::StatusCode status) {
  return status == absl::StatusCode::kOk || status == absl::StatusCode::kNotFound ||
         status == absl::StatusCode::kAlreadyExists;
}

absl::Status ReadOperationLog(const std::string& file,
                              const std::function<void(const LoggedOperation&)>& take) {
  std::ifstream in(file, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat("cannot read ", file));
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::map<uint64_t, std::string_view> called;
  std::string_view left = text;
  for (int number = 1; !left.empty(); ++number) {
    const size_t end = left.find('\n');
    if (end == std::string_view::npos) break;  // cut short by a kill
    std::string_view line = left.substr(0, end);
    left.remove_prefix(end + 1);
    const absl::Status bad = absl::DataLossError(absl::StrCat(file, ":", number));
    const char kind = line.empty() ? '?' : line[0];
    uint64_t operation = 0;
    line.remove_prefix(std::min<size_t>(2, line.size()));
    if (!TakeNumber(&line, &operation)) return bad;
    if (kind == 'c') {
      called[operation] = line;
      continue;
    }
    LoggedOperation returned;
    returned.returned = true;
    int status = 0;
    if (kind != 'r' || !TakeNumber(&line, &returned.call_ns) ||
        !TakeNumber(&line, &returned.return_ns) || !TakeNumber(&line, &status)) {
      return bad;
    }
    returned.status = static_cast<absl::StatusCode>(status);
    if (line != "-") returned.operation = line;
    called.erase(operation);
    take(returned);
  }
  for (const auto& [number, line] : called) take({.operation = line});
  return absl::OkStatus();
}

}  // namespace pando::chaos
