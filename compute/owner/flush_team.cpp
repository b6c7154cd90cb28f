#include "compute/owner/flush_team.h"

#include <atomic>
#include <utility>

#include "common/base/clock.h"
#include "common/base/quiet_thread.h"
#include "common/base/status.h"

namespace pando {

FlushTeam::FlushTeam(std::vector<std::unique_ptr<SessionContext>> sessions) {
  for (auto& session : sessions) lanes_.push_back({std::move(session), {}});
}

absl::Status FlushTeam::Start() {
  for (Lane& lane : lanes_) {
    PANDO_ASSIGN_OR_RETURN(
        lane.thread,
        StartQuietThread("pando-flush", [this, &scheduler = lane.session->scheduler()] {
          scheduler.RunUntil([this, &scheduler] {
            return stopping_.load(std::memory_order_acquire) && scheduler.idle();
          });
        }));
  }
  return absl::OkStatus();
}

FlushTeam::~FlushTeam() {
  stopping_.store(true, std::memory_order_release);
  for (Lane& lane : lanes_) {
    if (lane.thread.joinable()) {
      lane.session->endpoint().Wake();
      lane.thread.join();
    } else {
      lane.session->scheduler().Drain();
    }
  }
}

std::vector<const SessionContext*> FlushTeam::sessions() const {
  std::vector<const SessionContext*> sessions;
  for (const Lane& lane : lanes_) sessions.push_back(lane.session.get());
  return sessions;
}

struct FlushTeam::Run::State {
  explicit State(Scheduler* caller) : parking(caller) {}
  Parking parking;
  std::atomic<size_t> at_work{0}, sum{0};
};

FlushTeam::Run::Run(FlushTeam* team, Scheduler* caller, const Work& work)
    : state_(std::make_shared<State>(caller)) {
  for (Lane& lane : team->lanes_) {
    state_->at_work.fetch_add(1);
    const bool posted =
        lane.session->scheduler().Post([state = state_, session = lane.session.get(), work] {
          state->sum.fetch_add(work(session));
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
