// The library's log, for programs that want it in their own. Part of pando.h.
#pragma once

#include "pando_c/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PANDO_LOG_INFO = 0, PANDO_LOG_WARNING = 1, PANDO_LOG_ERROR = 2, PANDO_LOG_FATAL = 3 };

// One line, valid during the callback only.
typedef struct pando_log_record {
  size_t size;       // the library's sizeof: later fields exist if it covers them
  int64_t severity;  // PANDO_LOG_...
  int64_t line;
  int64_t time_us;  // since 1970, UTC
  pando_bytes file, message;
} pando_log_record;

// Called for one line at a time, on the thread that logs it. PANDO_LOG_FATAL: a bug of Pando
// itself; the process ends when the callback returns.
typedef void (*pando_log_sink)(void* context, const pando_log_record* record);

// Sends the library's lines to `sink` instead of glog (standard error). NULL: back to glog. When it
// returns, the previous sink is not running and is never called again.
pando_code pando_set_log_sink(pando_log_sink sink, void* context);

#ifdef __cplusplus
}  // extern "C"
#endif
