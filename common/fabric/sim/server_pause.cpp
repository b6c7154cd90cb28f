// Memory servers whose process is stopped, and goes on; and single threads of clients.
#include <utility>

#include "common/base/check.h"
#include "common/fabric/sim/world_impl.h"

namespace pando::sim {

void SimWorld::PauseServer(ServerId id) {
  impl_->CheckUntimed();
  const int index = impl_->core.ServerIndex(id);
  PANDO_CHECK_GE(index, 0) << "no server " << id;
  Server& server = impl_->core.servers[index];
  server.paused = !server.dead;
}

void SimWorld::ResumeServer(ServerId id) {
  const int index = impl_->core.ServerIndex(id);
  PANDO_CHECK_GE(index, 0) << "no server " << id;
  impl_->ResumeServer(static_cast<uint32_t>(index));
}

bool SimWorld::Impl::IsHeld(uint32_t server_index, const Event& event) {
  Server& server = core.servers[server_index];
  if (!server.paused) return false;
  ++core.stats.events_held;
  server.held.push_back(event);
  return true;
}

// All at once: what comes from now on comes after them, as in a socket.
void SimWorld::Impl::ResumeServer(uint32_t server_index) {
  Server& server = core.servers[server_index];
  server.paused = false;
  for (Event event : std::exchange(server.held, {})) {
    event.time_ns = core.now_ns;
    // Of the timers only the one that counts was held.
    if (event.kind == EventKind::kServerTimer) server.timer_ns = core.now_ns;
    core.events.Push(event);
  }
}

uint32_t SimWorld::PauseEndpoint(const Endpoint& endpoint) {
  impl_->CheckUntimed();
  const uint32_t thread = static_cast<const SimEndpoint&>(endpoint).id();
  if (!impl_->core.processes[impl_->endpoints[thread]->process()]->killed) {
    impl_->endpoints[thread]->Pause();
  }
  return thread;
}

void SimWorld::ResumeEndpoint(uint32_t thread) {
  SimEndpoint* const endpoint = impl_->endpoints[thread];
  if (endpoint == nullptr) return;
  for (Event event : endpoint->Resume()) {
    event.time_ns = impl_->core.now_ns + impl_->core.Jitter(impl_->core.options.wake_delay_ns);
    impl_->core.events.Push(event);
  }
}

}  // namespace pando::sim
