// What a compute server asked for and was told, in files that a kill -9 leaves complete.
//
// Each line is one write(2): it is in the kernel when the call returns, so that a killed process
// loses nothing that it did afterwards. A write is called for only after its "called" line is
// there. A line that a kill cut short is the last one; it says nothing, and need not: the operation
// had not begun, or its outcome is unknown.
//
//   c NUMBER OPERATION                            a write was called; its outcome is unknown so far
//   r NUMBER CALL RETURN STATUS OPERATION or -    it returned; -: it says nothing (no effect)
//
// OPERATION is a line of the history format, which has no newlines.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/history/history.h"

namespace pando::chaos {

// One thread's log. Not thread-safe.
class OperationLog {
 public:
  static absl::StatusOr<std::unique_ptr<OperationLog>> Create(const std::string& file);
  ~OperationLog();
  OperationLog(const OperationLog&) = delete;
  OperationLog& operator=(const OperationLog&) = delete;

  // Before the operation. Reads leave no line: without an answer they say nothing.
  absl::Status Called(uint64_t number, const history::Operation& operation);
  // After it. Completes `operation` with its return time from what came of it.
  absl::Status Returned(uint64_t number, const absl::Status& status, int64_t return_ns,
                        history::Operation operation);

 private:
  OperationLog(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}
  absl::Status Write(const std::string& line);

  const std::string name_;
  const int fd_;
};

struct LoggedOperation {
  // Of the one that returned.
  int64_t call_ns = 0;
  int64_t return_ns = 0;
  bool returned = false;  // false: its process was killed before
  absl::StatusCode status = absl::StatusCode::kOk;
  std::string_view operation;  // a line of the history; empty: left out of it
};

// An answer, not an error: present or absent are results.
bool IsAnswer(absl::StatusCode status);

// Calls `take` for each operation of a log: those that returned in order, then those that did not.
// NotFound: no such file. DataLoss: no such log.
absl::Status ReadOperationLog(const std::string& file,
                              const std::function<void(const LoggedOperation&)>& take);

}  // namespace pando::chaos
