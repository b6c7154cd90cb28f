#include "compute/core/session_thread.h"

#include "common/base/quiet_thread.h"
#include "common/base/status.h"

namespace pando {

absl::Status SessionThread::Start(const char* name) {
  PANDO_ASSIGN_OR_RETURN(thread_, StartQuietThread(name, [this] {
                           scheduler().RunUntil([this] {
                             return ending_.load(std::memory_order_acquire) && scheduler().idle();
                           });
                         }));
  return absl::OkStatus();
}

void SessionThread::End() {
  if (ending_.exchange(true, std::memory_order_acq_rel)) return;
  if (thread_.joinable()) {
    session_->endpoint().Wake();
    thread_.join();
  } else {
    scheduler().Drain();
  }
}

}  // namespace pando
