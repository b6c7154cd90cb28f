// The library's log, for applications that want it in their own.
//
//   pando::SetLogSink([](const pando::LogRecord& record) {
//     my_logger.Write(pando::LogSeverityName(record.severity), record.message);
//   });
//
// Without a sink the library logs through glog, which it never initialises: to standard error,
// unless the application has set glog up. It never writes to standard output. It logs little: what
// an operator wants to know (a memory server is gone), and bugs of Pando itself. An operation's
// error is in its status, not in the log.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

namespace pando {

enum class LogSeverity : uint8_t { kInfo, kWarning, kError, kFatal };

// "INFO", "WARNING", "ERROR", "FATAL".
const char* LogSeverityName(LogSeverity severity);

// One line. The views are valid during the call of the sink.
struct LogRecord {
  LogSeverity severity = LogSeverity::kInfo;
  std::string_view file;  // of Pando's source, without its directories
  int line = 0;
  std::chrono::system_clock::time_point time;
  std::string_view message;  // no line break at the end
};

using LogSink = std::function<void(const LogRecord&)>;

// Sends the library's lines, of all clients of this process, to `sink` instead of glog. An empty
// sink: back to glog. Thread-safe at any time, also while other threads log. Once it returns, the
// previous sink is not running, is never called again and has been destroyed. A sink must not call
// it (the process ends).
//
// The rules for a sink:
//   1. The library calls it for one line at a time, on the thread that logs: one that uses a
//      session (on a coroutine's stack of 128 KiB), or one of the library's own. That thread waits
//      meanwhile, so a sink has to be quick, and must not throw.
//   2. It must not call Pando: the thread that it runs on may be inside a Session or Client.
//   3. kFatal: Pando has found a bug of its own. The line goes to glog as well, and the process
//      ends (SIGABRT) when the sink returns.
void SetLogSink(LogSink sink);

}  // namespace pando
