#include "compute/client/heartbeat.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/status.h"
#include "common/wire/control.h"

namespace pando {
namespace {

constexpr int kBeatsPerLease = 4;
constexpr int64_t kAskPauseNsMax = 60 * kSecondNs;

bool IsRunning(const std::future<void>& job) {
  return job.valid() && job.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
}

}  // namespace

Heartbeat::Heartbeat(std::unique_ptr<SessionContext> session, ControlChannel* control,
                     bool event_driven, AskAnew ask_anew, int64_t ping_max_ns)
    : session_(std::move(session)),
      control_(control),
      ask_anew_(std::move(ask_anew)),
      event_driven_(event_driven),
      ping_max_ns_(ping_max_ns) {}

absl::Status Heartbeat::Start() {
  if (event_driven_) return absl::OkStatus();
  return session_.Start("pando-heartbeat");
}

Heartbeat::~Heartbeat() {
  Stop();
  session_.End();
  for (const auto& pulse : pulses_) {
    if (IsRunning(pulse->asking)) pulse->asking.wait();
  }
}

void Heartbeat::Add(const Lease& lease) {
  auto pulse = std::make_shared<Pulse>(lease, &session_.scheduler());
  {
    std::lock_guard lock(pulses_mutex_);
    for (const auto& before : pulses_) {
      if (before->server != lease.server) continue;
      before->lease_ns.store(lease.lease_ns, std::memory_order_relaxed);
      before->life.fetch_add(1, std::memory_order_relaxed);
      before->parking.Unpark();  // its lease may be shorter
      return;
    }
    pulses_.push_back(pulse);
  }
  session_.scheduler().Post([this, pulse = std::move(pulse)] { Beat(pulse); });
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

void Heartbeat::Ask(Pulse* pulse) {
  const int64_t now_ns = session_.session().NowNs();
  const uint32_t life = pulse->life.load(std::memory_order_relaxed);
  if (ask_anew_ == nullptr || pulse->answered == life || now_ns < pulse->ask_again_ns) return;
  if (IsRunning(pulse->asking)) return;
  const int64_t beat_ns = pulse->lease_ns.load(std::memory_order_relaxed) / kBeatsPerLease;
  pulse->ask_pause_ns =
      std::clamp(2 * pulse->ask_pause_ns, beat_ns, std::max(beat_ns, kAskPauseNsMax));
  pulse->ask_again_ns = now_ns + pulse->ask_pause_ns;
  // Where no thread can be had it is deferred, and nobody is asked this time.
  pulse->asking = std::async(std::launch::async | std::launch::deferred, [this, pulse, life] {
    const absl::StatusOr<ClientLiveness> state = ask_anew_(pulse->server);
    // Nobody answers, or lock words are still being cleared there: later once more.
    if (!state.ok() || *state == ClientLiveness::kJoined) return;
    pulse->answered = life;
    // Unknown to another life of the server, which cannot say what the one before did.
    if (*state != ClientLiveness::kDead) return;
    PANDO_LOG(WARNING) << "memory server " << pulse->server
                       << " lost the connection and took this compute server for dead: it leaves";
    GiveUp();
  });
}

void Heartbeat::Beat(const std::shared_ptr<Pulse>& pulse) {
  while (!stopping_.load(std::memory_order_relaxed)) {
    const uint32_t life = pulse->life.load(std::memory_order_relaxed);
    const int64_t lease_ns = pulse->lease_ns.load(std::memory_order_relaxed);
    const int64_t next_ns = session_.session().NowNs() + lease_ns / kBeatsPerLease;
    OperationContext context(&session_.session(),
                             std::min(next_ns, session_.session().NowNs() + ping_max_ns_));
    const absl::Status heard =
        control_->Call(context, pulse->server, ControlOpcode::kPing, "").status();
    if (absl::IsFailedPrecondition(heard) || absl::IsPermissionDenied(heard)) {
      return GiveUp();
    }
    if (absl::IsUnavailable(heard)) Ask(pulse.get());
    while (session_.session().NowNs() < next_ns &&
           pulse->life.load(std::memory_order_relaxed) == life &&
           !stopping_.load(std::memory_order_relaxed)) {
      pulse->parking.ParkUntil(next_ns);
    }
  }
}

}  // namespace pando
