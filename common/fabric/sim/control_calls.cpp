// Control calls of the simulated fabric: delayed, sometimes lost, and answered late.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/fabric/sim/world_impl.h"

namespace pando::sim {
namespace {

absl::Status ServerGoneError(ServerId id) {
  return absl::UnavailableError(absl::StrCat("server ", id, ": call: nobody answers there"));
}

}  // namespace

int64_t SimWorld::Impl::CallDelay() {
  if (timed != nullptr) return static_cast<int64_t>(timed->profile().calls.one_way_ns);
  return core.options.call_delay_ns + core.Jitter(core.options.call_delay_ns);
}

void SimWorld::Impl::StartCall(uint32_t endpoint, uint32_t peer, uint32_t server_index,
                               PendingCall* call) {
  const uint32_t process = core.ProcessOf(peer);
  ++core.stats.calls;
  const uint32_t id = next_call++;
  CallInFlight& flight = calls[id];
  flight.call = call;
  flight.endpoint = endpoint;
  flight.process = process;
  flight.peer = peer;
  flight.server = static_cast<int>(server_index);
  flight.request = call->request;
  flight.events_left = 1;
  core.ScheduleAt(std::min(core.processes[process]->clock.ToWorld(call->deadline_ns),
                           core.now_ns + core.options.call_timeout_ns),
                  EventKind::kCallDeadline, id);
  const Server& server = core.servers[flight.server];
  const bool cut = core.processes[process]->IsLinkCut(static_cast<uint32_t>(flight.server));
  if ((cut || !server.dead) &&
      (cut || server.calls_paused || core.LosesCall(core.options.call_request_loss))) {
    ++core.stats.lost_requests;
    return;
  }
  ++flight.events_left;
  core.Schedule(CallDelay(), EventKind::kCallRequest, id);
}

void SimWorld::Impl::OnCallRequest(const Event& event) {
  CallInFlight& flight = calls.at(event.target);
  Server& server = core.servers[flight.server];
  if (!flight.arrived &&
      core.processes[flight.process]->IsLinkCut(static_cast<uint32_t>(flight.server))) {
    ++core.stats.lost_requests;
    DropCallEvent(event.target);
    return;
  }
  if (core.HasEnded(flight.peer, static_cast<uint32_t>(flight.server))) {
    ++core.stats.lost_requests;
    DropCallEvent(event.target);
    return;
  }
  flight.arrived = true;
  if (IsHeld(static_cast<uint32_t>(flight.server), event)) return;
  int64_t reply_ns = core.now_ns + CallDelay();
  if (server.dead || server.handler == nullptr) {
    flight.status = ServerGoneError(server.id);
    if (server.dead) {
      reply_ns = std::max(reply_ns,
                          core.DeathSeenNs(flight.process, static_cast<uint32_t>(flight.server)));
    }
  } else {
    core.trace.MixBytes(event.target, reinterpret_cast<const std::byte*>(flight.request.data()),
                        flight.request.size());
    if (flight.call == nullptr) ++core.stats.calls_too_late;
    flight.reply = server.handler->Handle(flight.peer + 1, flight.request);
    RunServerTimer(static_cast<uint32_t>(flight.server));
    core.trace.MixBytes(event.target, reinterpret_cast<const std::byte*>(flight.reply.data()),
                        flight.reply.size());
    if (timed != nullptr) reply_ns += timed->ServeCall(static_cast<uint32_t>(flight.server));
    if (core.LosesCall(core.options.call_reply_loss)) {
      ++core.stats.lost_replies;
      DropCallEvent(event.target);
      return;
    }
  }
  // The request's place on the agenda goes to the reply.
  core.ScheduleAt(reply_ns, EventKind::kCallReply, event.target);
}

// The reply, or the end of the caller's patience, whichever comes first.
void SimWorld::Impl::OnCallEnd(const Event& event) {
  CallInFlight& flight = calls.at(event.target);
  const auto server_index = static_cast<uint32_t>(flight.server);
  // Over a connection that is given up nothing comes any more, which its caller is told.
  const bool left = core.HasLeft(flight.peer, server_index);
  const bool lost = event.kind == EventKind::kCallReply && !left &&
                    core.processes[flight.process]->IsLinkCut(server_index);
  if (lost) ++core.stats.lost_replies;
  if (flight.call != nullptr && !lost) {
    SimEndpoint* endpoint = Receiver(flight.endpoint, event);
    if (endpoint == nullptr) return;  // paused: the event comes again
    PendingCall* call = std::exchange(flight.call, nullptr);
    if (event.kind == EventKind::kCallDeadline) {
      endpoint->Finish(call,
                       absl::DeadlineExceededError(absl::StrCat(
                           "server ", core.servers[flight.server].id, ": no answer to a call")),
                       "");
    } else {
      absl::Status gone = ServerGoneError(core.servers[server_index].id);
      endpoint->Finish(call, left ? std::move(gone) : std::move(flight.status),
                       left ? "" : std::move(flight.reply));
    }
    DropCallEvent(event.target);
    endpoint->RunThread();
    return;
  }
  DropCallEvent(event.target);
}

void SimWorld::Impl::FailCalls(uint32_t server_index) {
  for (auto& [id, flight] : calls) {
    if (flight.server != static_cast<int>(server_index) || flight.call == nullptr) continue;
    flight.status = ServerGoneError(core.servers[server_index].id);
    flight.reply.clear();
    ++flight.events_left;
    core.ScheduleAt(core.DeathSeenNs(flight.process, server_index), EventKind::kCallReply, id);
  }
}

void SimWorld::Impl::FailCallsOver(uint32_t peer, uint32_t server_index) {
  for (auto& [id, flight] : calls) {
    const bool waits = flight.peer == peer && flight.server == static_cast<int>(server_index) &&
                       flight.call != nullptr;
    if (!waits) continue;
    ++flight.events_left;
    core.Schedule(0, EventKind::kCallReply, id);
  }
}

void SimWorld::Impl::DropCallEvent(uint32_t id) {
  if (--calls.at(id).events_left == 0) calls.erase(id);
}

}  // namespace pando::sim
