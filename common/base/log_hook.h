// Where lines of PANDO_LOG and of failed PANDO_CHECKs go: to glog, or to the one hook that the
// process has set. The public form of it is pando/log.h.
#pragma once

#include <chrono>
#include <functional>
#include <string_view>

namespace pando {

// One line. The views hold during the call.
struct LogLine {
  int severity = 0;       // 0 info, 1 warning, 2 error, 3 fatal
  std::string_view file;  // without its directories
  int line = 0;
  std::chrono::system_clock::time_point time;
  std::string_view message;  // no line break at the end
};

using LogHook = std::function<void(const LogLine&)>;

// Thread-safe. The hook gets the lines in glog's place (fatal ones go to both), one at a time, on
// the threads that log. Once this returns, the hook before is not running and never called again.
// What a hook itself makes Pando log goes to glog; CHECK-fails when called by a hook. Empty: back
// to glog.
void SetLogHook(LogHook hook);

// What PANDO_LOG does in the end. False: there is no hook, or it is this thread that is in it.
bool GiveToLogHook(const LogLine& line);

}  // namespace pando
