#include "pando/log.h"

#include <chrono>

#include "compute/c/call.h"
#include "pando.h"

namespace pando::c {
namespace {

static_assert(PANDO_LOG_INFO == static_cast<int>(LogSeverity::kInfo));
static_assert(PANDO_LOG_WARNING == static_cast<int>(LogSeverity::kWarning));
static_assert(PANDO_LOG_ERROR == static_cast<int>(LogSeverity::kError));
static_assert(PANDO_LOG_FATAL == static_cast<int>(LogSeverity::kFatal));

void WriteLine(pando_log_sink sink, void* context, const LogRecord& record) {
  const auto since_1970 = record.time.time_since_epoch();
  const pando_log_record line{
      sizeof(line),
      static_cast<int64_t>(record.severity),
      record.line,
      std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count(),
      BytesOf(record.file),
      BytesOf(record.message)};
  const CallbackScope scope(Inside::kCallback);
  try {
    sink(context, &line);
  } catch (...) {
    // A line that is lost: there is nowhere else to say so.
  }
}

}  // namespace
}  // namespace pando::c

extern "C" {

pando_code pando_set_log_sink(pando_log_sink sink, void* context) {
  return pando::c::Call([&] {
    if (sink == nullptr) {
      pando::SetLogSink(nullptr);
    } else {
      pando::SetLogSink([sink, context](const pando::LogRecord& record) {
        pando::c::WriteLine(sink, context, record);
      });
    }
    return absl::OkStatus();
  });
}

}  // extern "C"
