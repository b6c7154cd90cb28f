#include "compute/client/heartbeat.h"

#include <algorithm>
#include <utility>

#include "common/wire/control.h"

namespace pando {
namespace {

constexpr int kBeatsPerLease = 4;
// A server that does not answer at all must not hold the end of this up.
constexpr int64_t kPingNsMax = kSecondNs;

}  // namespace

Heartbeat::Heartbeat(std::unique_ptr<SessionContext> session, ControlChannel* control,
                     bool event_driven)
    : session_(std::move(session)), control_(control) {
  if (event_driven) return;
  thread_ = std::thread([this] {
    Scheduler& scheduler = session_->scheduler();
    scheduler.RunUntil([this, &scheduler] {
      return stopping_.load(std::memory_order_relaxed) && scheduler.idle();
    });
  });
}

Heartbeat::~Heartbeat() {
  Stop();
  if (thread_.joinable()) {
    session_->scheduler().endpoint().Wake();
    thread_.join();
  } else {
    session_->scheduler().Drain();
  }
}

void Heartbeat::Add(const Lease& lease) {
  auto pulse = std::make_shared<Pulse>(lease, &session_->scheduler());
  {
    std::lock_guard lock(pulses_mutex_);
    pulses_.push_back(pulse);
  }
  session_->scheduler().Post([this, pulse = std::move(pulse)] { Beat(pulse); });
}

void Heartbeat::Stop() {
  stopping_.store(true, std::memory_order_relaxed);
  std::lock_guard lock(pulses_mutex_);
  for (const auto& pulse : pulses_) pulse->parking.Unpark();
}

void Heartbeat::GiveUp() {
  fenced_.store(true, std::memory_order_relaxed);
  Stop();
}

void Heartbeat::Beat(const std::shared_ptr<Pulse>& pulse) {
  while (!stopping_.load(std::memory_order_relaxed)) {
    const int64_t next_ns = session_->NowNs() + pulse->lease.lease_ns / kBeatsPerLease;
    OperationContext context(session_.get(), std::min(next_ns, session_->NowNs() + kPingNsMax));
    const absl::Status heard =
        control_->Call(context, pulse->lease.server, ControlOpcode::kPing, "").status();
    if (absl::IsFailedPrecondition(heard) || absl::IsPermissionDenied(heard)) {
      return GiveUp();
    }
    while (session_->NowNs() < next_ns && !stopping_.load(std::memory_order_relaxed)) {
      pulse->parking.ParkUntil(next_ns);
    }
  }
}

}  // namespace pando
