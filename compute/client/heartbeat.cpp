#include "compute/client/heartbeat.h"

#include <utility>

#include "common/wire/control.h"

namespace pando {
namespace {

constexpr int kBeatsPerLease = 3;

}  // namespace

Heartbeat::Heartbeat(std::unique_ptr<SessionContext> session, ControlChannel* control,
                     const std::vector<Lease>& leases, bool event_driven)
    : session_(std::move(session)), control_(control) {
  Scheduler& scheduler = session_->scheduler();
  for (const Lease& lease : leases) {
    pulses_.push_back(std::make_unique<Pulse>(lease, &scheduler));
    scheduler.Spawn([this, pulse = pulses_.back().get()] { Beat(pulse); });
  }
  if (event_driven) return;
  thread_ = std::thread([&scheduler] { scheduler.Drain(); });
}

Heartbeat::~Heartbeat() {
  Stop();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    session_->scheduler().Drain();
  }
}

void Heartbeat::Stop() {
  stopping_.store(true, std::memory_order_relaxed);
  for (const auto& pulse : pulses_) pulse->parking.Unpark();
}

void Heartbeat::Beat(Pulse* pulse) {
  while (!stopping_.load(std::memory_order_relaxed)) {
    const int64_t next_ns = session_->NowNs() + pulse->lease.lease_ns / kBeatsPerLease;
    OperationContext context(session_.get(), next_ns);
    const absl::Status heard =
        control_->Call(context, pulse->lease.server, ControlOpcode::kPing, "").status();
    if (absl::IsFailedPrecondition(heard) || absl::IsPermissionDenied(heard)) {
      fenced_.store(true, std::memory_order_relaxed);
      return Stop();
    }
    while (session_->NowNs() < next_ns && !stopping_.load(std::memory_order_relaxed)) {
      pulse->parking.ParkUntil(next_ns);
    }
  }
}

}  // namespace pando
