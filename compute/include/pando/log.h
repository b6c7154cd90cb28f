// The library's log, for applications that want it in their own.
//
//   pando::SetLogSink([](const pando::LogRecord& record) {
//     my_logger.Write(pando::LogSeverityName(record.severity), record.message);
//   });
//
// Without a sink the library logs through glog, which it never initialises: to standard error,
// unless the application has set glog up. Nothing is ever written to standard output. There is
// little to log: what an operator wants to know (a memory server is gone) and bugs of Pando's own.
// What went wrong with an operation is said by its status, not by the log.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

namespace pando {

enum class LogSeverity : uint8_t { kInfo, kWarning, kError, kFatal };

// "INFO", "WARNING", "ERROR", "FATAL".
const char* LogSeverityName(LogSeverity severity);

// One line. The views hold during the call of the sink.
struct LogRecord {
  LogSeverity severity = LogSeverity::kInfo;
  std::string_view file;  // of Pando's source, without its directories
  int line = 0;
  std::chrono::system_clock::time_point time;
  std::string_view message;  // no line break at the end
};

using LogSink = std::function<void(const LogRecord&)>;

// Sends the library's lines, of all clients of this process, to `sink` instead of to glog. An empty
// sink: back to glog. Thread-safe, at any time, also while other threads log; once it returns, the
// sink before is not running, is never called again and has been destroyed. Only a sink itself may
// not call it (the process ends).
//
// What a sink may rely on and has to keep:
//   1. It is called for one line at a time, on the thread that has something to say: one that uses
//      a session (on a coroutine's stack of 128 KiB), or a thread of the library's own, which is
//      held up meanwhile. So it has to be quick, and must not throw.
//   2. It must not call Pando: the thread that it runs on may be inside of a Session or Client.
//   3. kFatal: a bug of Pando's own was found. The line goes to glog, too, and the process ends
//      (SIGABRT) when the sink returns.
void SetLogSink(LogSink sink);

}  // namespace pando
