#include "pando/log.h"

#include <algorithm>
#include <utility>

#include "common/base/log_hook.h"

namespace pando {

const char* LogSeverityName(LogSeverity severity) {
  switch (severity) {
    case LogSeverity::kInfo:
      return "INFO";
    case LogSeverity::kWarning:
      return "WARNING";
    case LogSeverity::kError:
      return "ERROR";
    case LogSeverity::kFatal:
      return "FATAL";
  }
  return "UNKNOWN";
}

void SetLogSink(LogSink sink) {
  if (!sink) return SetLogHook(nullptr);
  SetLogHook([sink = std::move(sink)](const LogLine& line) {
    const int most = static_cast<int>(LogSeverity::kFatal);
    sink({.severity = static_cast<LogSeverity>(std::clamp(line.severity, 0, most)),
          .file = line.file,
          .line = line.line,
          .time = line.time,
          .message = line.message});
  });
}

}  // namespace pando
