// Checks for our own bugs, and the log. glog underneath, unless the process has set a hook
// (log_hook.h): this is the only file that includes its header, and it is never installed. The
// library never initialises glog; a program's main() does.
//
//   PANDO_CHECK(count > 0) << "no servers";   PANDO_CHECK_EQ(a, b);
//   PANDO_LOG(INFO) << "listening";
#pragma once

#include <glog/logging.h>

#include <iosfwd>
#include <memory>
#include <sstream>
#include <string>

namespace pando {

// One line while it is put together; given away by the destructor.
class LogStatement {
 public:
  LogStatement(const char* file, int line, int severity);
  ~LogStatement();
  LogStatement(const LogStatement&) = delete;
  LogStatement& operator=(const LogStatement&) = delete;

  std::ostream& stream();

 private:
  friend class FatalStatement;
  bool GiveToHook(const std::string& text) const;

  const char* const file_;
  const int line_;
  const int severity_;
  // Not a member by value: it would lie in the frame of each caller, on a coroutine's stack.
  const std::unique_ptr<std::ostringstream> text_;
};

// The line of a failed check: the hook gets it, then glog, which ends the process.
class FatalStatement {
 public:
  FatalStatement(const char* file, int line);
  template <typename CheckOpString>
  FatalStatement(const char* file, int line, const CheckOpString& failed)
      : FatalStatement(file, line) {
    stream() << "Check failed: " << *failed.str_ << " ";
  }
  [[noreturn]] ~FatalStatement();
  FatalStatement(const FatalStatement&) = delete;
  FatalStatement& operator=(const FatalStatement&) = delete;

  std::ostream& stream();

 private:
  LogStatement* const statement_;  // never destroyed
};

}  // namespace pando

#define PANDO_LOG(severity) \
  pando::LogStatement(__FILE__, __LINE__, google::GLOG_##severity).stream()
#define PANDO_FATAL_ pando::FatalStatement(__FILE__, __LINE__).stream()

#define PANDO_CHECK(condition)       \
  __builtin_expect(!!(condition), 1) \
      ? static_cast<void>(0)         \
      : google::LogMessageVoidify() & PANDO_FATAL_ << "Check failed: " #condition " "
#define PANDO_CHECK_EQ(a, b) CHECK_OP_LOG(_EQ, ==, a, b, pando::FatalStatement)
#define PANDO_CHECK_NE(a, b) CHECK_OP_LOG(_NE, !=, a, b, pando::FatalStatement)
#define PANDO_CHECK_LT(a, b) CHECK_OP_LOG(_LT, <, a, b, pando::FatalStatement)
#define PANDO_CHECK_LE(a, b) CHECK_OP_LOG(_LE, <=, a, b, pando::FatalStatement)
#define PANDO_CHECK_GT(a, b) CHECK_OP_LOG(_GT, >, a, b, pando::FatalStatement)
#define PANDO_CHECK_GE(a, b) CHECK_OP_LOG(_GE, >=, a, b, pando::FatalStatement)
// For an absl::Status that only a bug of ours can make an error.
#define PANDO_CHECK_OK(expression)                                                         \
  for (const absl::Status& pando_check_status_ = (expression); !pando_check_status_.ok();) \
  PANDO_FATAL_ << "Check failed: " #expression " is " << pando_check_status_ << " "

// Not in release builds: for conditions on the hot path.
#define PANDO_DCHECK(condition) DCHECK(condition)
#define PANDO_DCHECK_EQ(a, b) DCHECK_EQ(a, b)
#define PANDO_DCHECK_LT(a, b) DCHECK_LT(a, b)
#define PANDO_DCHECK_LE(a, b) DCHECK_LE(a, b)
