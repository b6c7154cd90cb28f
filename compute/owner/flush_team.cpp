#include "compute/owner/flush_team.h"

#include <atomic>
#include <utility>

#include "common/base/clock.h"
#include "common/base/status.h"

namespace pando {

FlushTeam::FlushTeam(std::vector<std::unique_ptr<SessionContext>> sessions) {
  for (auto& session : sessions) sessions_.emplace_back(std::move(session));
}

absl::Status FlushTeam::Start() {
  for (SessionThread& session : sessions_) PANDO_RETURN_IF_ERROR(session.Start("pando-flush"));
  return absl::OkStatus();
}

std::vector<const SessionContext*> FlushTeam::sessions() const {
  std::vector<const SessionContext*> sessions;
  for (const SessionThread& session : sessions_) sessions.push_back(&session.session());
  return sessions;
}

struct FlushTeam::Run::State {
  explicit State(Scheduler* caller) : parking(caller) {}
  Parking parking;
  std::atomic<size_t> at_work{0}, sum{0};
};

FlushTeam::Run::Run(FlushTeam* team, Scheduler* caller, const Work& work)
    : state_(std::make_shared<State>(caller)) {
  for (SessionThread& session : team->sessions_) {
    state_->at_work.fetch_add(1);
    const bool posted = session.scheduler().Post([state = state_, at = &session.session(), work] {
      state->sum.fetch_add(work(at));
      state->at_work.fetch_sub(1);
      state->parking.Unpark();
    });
    if (!posted) state_->at_work.fetch_sub(1);
  }
}

size_t FlushTeam::Run::Join() {
  if (state_ == nullptr) return 0;
  while (state_->at_work.load() > 0) state_->parking.ParkUntil(kNeverNs);
  return std::exchange(state_, nullptr)->sum.load();
}

}  // namespace pando
