#include "common/base/log_hook.h"

#include <mutex>
#include <sstream>
#include <string>
#include <utility>

#include "common/base/check.h"

namespace pando {
namespace {

struct HookState {
  std::mutex mutex;  // held while the hook runs
  LogHook hook;
};

// Never destroyed: destructors of other globals may log.
HookState& State() {
  static HookState& state = *new HookState;
  return state;
}

thread_local bool in_hook = false;

std::string_view WithoutDirectories(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
}

}  // namespace

void SetLogHook(LogHook hook) {
  PANDO_CHECK(!in_hook) << "a log sink may not set the log sink";
  HookState& state = State();
  {
    std::lock_guard lock(state.mutex);
    std::swap(state.hook, hook);
  }
  // The one before goes here, outside the lock: its destructor may log.
}

bool GiveToLogHook(const LogLine& line) {
  if (in_hook) return false;
  HookState& state = State();
  std::lock_guard lock(state.mutex);
  if (!state.hook) return false;
  in_hook = true;
  state.hook(line);
  in_hook = false;
  return true;
}

LogStatement::LogStatement(const char* file, int line, int severity)
    : file_(file), line_(line), severity_(severity), text_(new std::ostringstream) {}

std::ostream& LogStatement::stream() { return *text_; }

bool LogStatement::GiveToHook(const std::string& text) const {
  return GiveToLogHook({.severity = severity_,
                        .file = WithoutDirectories(file_),
                        .line = line_,
                        .time = std::chrono::system_clock::now(),
                        .message = text});
}

LogStatement::~LogStatement() {
  const std::string text = text_->str();
  if (!GiveToHook(text)) google::LogMessage(file_, line_, severity_).stream() << text;
}

FatalStatement::FatalStatement(const char* file, int line)
    : statement_(new LogStatement(file, line, google::GLOG_FATAL)) {}

std::ostream& FatalStatement::stream() { return statement_->stream(); }

FatalStatement::~FatalStatement() {
  const std::string text = statement_->text_->str();
  (void)statement_->GiveToHook(text);
  google::LogMessageFatal(statement_->file_, statement_->line_).stream() << text;
  __builtin_unreachable();
}

}  // namespace pando
