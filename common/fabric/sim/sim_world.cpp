#include "common/fabric/sim/sim_world.h"

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/fabric/sim/world_impl.h"

namespace pando::sim {
namespace {

const SimFabric& AsSim(const Fabric& fabric) {
  // Harnesses ask after every event; a dynamic_cast was 4 % of their runs.
  PANDO_CHECK(typeid(fabric) == typeid(SimFabric)) << "not a simulated fabric";
  return static_cast<const SimFabric&>(fabric);
}

}  // namespace

SimWorld::SimWorld(const SimOptions& options) : impl_(std::make_unique<Impl>(options)) {
  if (options.nic == nullptr) return;
  PANDO_CHECK(options.mode == DeliveryMode::kWhole) << "the timing model delivers verbs whole";
  PANDO_CHECK_EQ(options.clock_drift_permille, 0) << "the timing model has one clock";
  impl_->timed = std::make_unique<TimedNetwork>(&impl_->core, *options.nic);
  impl_->peers.set_timed(impl_->timed.get());
}

SimWorld::~SimWorld() { PANDO_CHECK_EQ(impl_->open_fabrics, 0u) << "fabrics outlive their world"; }

ServerMemory SimWorld::AddServer(ServerId id, uint64_t main_bytes, uint64_t lock_bytes) {
  const int before = impl_->core.ServerIndex(id);
  PANDO_CHECK(before < 0 || impl_->core.servers[before].dead) << "server " << id << " twice";
  PANDO_CHECK_LT(impl_->core.servers.size(), 255u);
  if (impl_->timed != nullptr) impl_->timed->AddServer();
  Server& server = impl_->core.servers.emplace_back();
  server.id = id;
  server.clock = std::make_unique<OwnClock>(impl_->core.NewClock());
  server.main = std::make_unique<SparseMemory>(main_bytes);
  server.locks = std::make_unique<SparseMemory>(lock_bytes);
  return Memory(id);
}

void SimWorld::SetHandler(ServerId id, ControlHandler* handler) {
  impl_->core.servers[impl_->core.ServerIndex(id)].handler = handler;
}

ServerMemory SimWorld::Memory(ServerId id) const {
  const int index = impl_->core.ServerIndex(id);
  PANDO_CHECK_GE(index, 0) << "no server " << id;
  const Server& server = impl_->core.servers[index];
  return {server.main->span(), server.locks->span()};
}

const Clock& SimWorld::ServerClock(ServerId id) const {
  const int index = impl_->core.ServerIndex(id);
  PANDO_CHECK_GE(index, 0) << "no server " << id;
  return *impl_->core.servers[index].clock;
}

PeerFence* SimWorld::Fence(ServerId id) {
  const int index = impl_->core.ServerIndex(id);
  PANDO_CHECK_GE(index, 0) << "no server " << id;
  std::unique_ptr<SimFence>& fence = impl_->fences[static_cast<uint32_t>(index)];
  if (fence == nullptr) {
    fence = std::make_unique<SimFence>(impl_.get(), static_cast<uint32_t>(index));
  }
  return fence.get();
}

std::shared_ptr<Fabric> SimWorld::NewFabric() { return impl_->NewFabric(/*server_index=*/-1); }

std::shared_ptr<Fabric> SimWorld::NewFabricOnHostOf(ServerId id) {
  const int index = impl_->core.ServerIndex(id);
  PANDO_CHECK_GE(index, 0) << "no server " << id;
  return impl_->NewFabric(index);
}

std::shared_ptr<Fabric> SimWorld::Impl::NewFabric(int server_index) {
  const auto process = static_cast<uint32_t>(core.processes.size());
  core.processes.push_back(std::make_unique<Process>(core.NewClock()));
  if (timed != nullptr) timed->AddProcess(server_index);
  return std::make_shared<SimFabric>(this, process);
}

void SimWorld::KillFabric(const Fabric& fabric) { impl_->Kill(AsSim(fabric).process()); }

void SimWorld::LimitPackets(const Fabric& fabric, uint64_t packets) {
  Process& process = *impl_->core.processes[AsSim(fabric).process()];
  process.packets_left = packets;
  process.packets_spent = false;
}

bool SimWorld::PacketsSpent(const Fabric& fabric) const {
  return impl_->core.processes[AsSim(fabric).process()]->packets_spent;
}

bool SimWorld::IsKilled(const Fabric& fabric) const {
  return impl_->core.processes[AsSim(fabric).process()]->killed;
}

bool SimWorld::HasPacketsUnderWay(const Fabric& fabric) const {
  return impl_->network.IsUnderWay(AsSim(fabric).process());
}

void SimWorld::StallReads(const Fabric& fabric, int64_t stall_ns) {
  impl_->core.processes[AsSim(fabric).process()]->read_stall_ns = stall_ns;
}

void SimWorld::PauseFabric(const Fabric& fabric) {
  impl_->CheckUntimed();
  impl_->core.processes[AsSim(fabric).process()]->paused = true;
}

void SimWorld::ResumeFabric(const Fabric& fabric) {
  Process& process = *impl_->core.processes[AsSim(fabric).process()];
  process.paused = false;
  for (Event event : std::exchange(process.held, {})) {
    event.time_ns = impl_->core.now_ns + impl_->core.Jitter(impl_->core.options.wake_delay_ns);
    impl_->core.events.Push(event);
  }
}

void SimWorld::KillServer(ServerId id) {
  impl_->CheckUntimed();
  const int index = impl_->core.ServerIndex(id);
  PANDO_CHECK_GE(index, 0) << "no server " << id;
  impl_->core.servers[index].dead = true;
  impl_->ResumeServer(static_cast<uint32_t>(index));  // what it held finds nobody
  impl_->network.KillServer(static_cast<uint32_t>(index));
  impl_->FailCalls(static_cast<uint32_t>(index));
}

void SimWorld::BreakQueuePairs(const Fabric& fabric, ServerId id) {
  impl_->CheckUntimed();
  const int index = impl_->core.ServerIndex(id);
  PANDO_CHECK_GE(index, 0) << "no server " << id;
  impl_->network.BreakAll(AsSim(fabric).process(), static_cast<uint32_t>(index));
}

void SimWorld::CutLink(const Fabric& fabric, ServerId id, bool cut) {
  impl_->CheckUntimed();
  const int index = impl_->core.ServerIndex(id);
  PANDO_CHECK_GE(index, 0) << "no server " << id;
  Process& process = *impl_->core.processes[AsSim(fabric).process()];
  process.link_cut.resize(impl_->core.servers.size());
  process.link_cut[index] = cut;
  if (!cut) return;
  ++impl_->core.stats.links_cut;
  impl_->network.BreakAll(AsSim(fabric).process(), static_cast<uint32_t>(index));
}

void SimWorld::SetBreakProbability(const Fabric& fabric, double probability) {
  impl_->core.processes[AsSim(fabric).process()]->break_probability = probability;
}

void SimWorld::LoseNoMoreCalls() { impl_->core.calls_are_lost = false; }

void SimWorld::BreakPeerLinks(const Fabric& fabric) {
  impl_->CheckUntimed();
  impl_->peers.BreakAll(AsSim(fabric).process());
}

void SimWorld::SetPeerBreakProbability(const Fabric& fabric, double probability) {
  impl_->CheckUntimed();
  impl_->core.processes[AsSim(fabric).process()]->peer_break_probability = probability;
}

void SimWorld::CutPeers(const Fabric& one, const Fabric& other, bool cut) {
  impl_->CheckUntimed();
  impl_->peers.Cut(AsSim(one).process(), AsSim(other).process(), cut);
}

void SimWorld::CutPeersOneWay(const Fabric& from, const Fabric& to, bool cut) {
  impl_->CheckUntimed();
  impl_->peers.CutOneWay(AsSim(from).process(), AsSim(to).process(), cut);
}

void SimWorld::SeedBreaks(uint64_t seed) { impl_->core.break_random = Random(seed); }

void SimWorld::PauseCalls(ServerId id, bool paused) {
  impl_->core.servers[impl_->core.ServerIndex(id)].calls_paused = paused;
}

void SimWorld::SpendCpu(double ns) { impl_->core.SpendCpu(ns); }
void SimWorld::SetLocksOnChip(bool on_chip) { impl_->core.locks_on_chip = on_chip; }

void SimWorld::At(int64_t time_ns, std::function<void()> callback) {
  const uint32_t id = impl_->next_callback++;
  impl_->callbacks.emplace(id, std::move(callback));
  impl_->core.ScheduleAt(time_ns, EventKind::kCallback, id);
}

bool SimWorld::Step() { return impl_->Step(); }

void SimWorld::RunUntil(int64_t time_ns) {
  Core& core = impl_->core;
  while (!core.events.empty() && core.events.top().time_ns <= time_ns) impl_->Step();
  core.now_ns = std::max(core.now_ns, time_ns);
}

const Clock& SimWorld::clock() const { return impl_->core; }
uint64_t SimWorld::trace_hash() const { return impl_->core.trace.value(); }
const SimStats& SimWorld::stats() const { return impl_->core.stats; }
std::vector<NicUse> SimWorld::nic_use() const {
  return impl_->timed == nullptr ? std::vector<NicUse>() : impl_->timed->ServersUse();
}
const SimOptions& SimWorld::options() const { return impl_->core.options; }

bool SimWorld::Impl::Step() {
  PANDO_CHECK(!in_event) << "the world is driven from inside one of its events";
  if (core.events.empty()) return false;
  const Event event = core.events.Pop();
  core.now_ns = std::max(core.now_ns, event.time_ns);
  ++core.stats.events;
  core.trace.Mix(static_cast<uint64_t>(event.time_ns), uint64_t{event.target} << 16 |
                                                           uint64_t{event.verb} << 8 |
                                                           static_cast<uint64_t>(event.kind));
  in_event = true;
  Dispatch(event);
  in_event = false;
  return true;
}

void SimWorld::Impl::CheckUntimed() const {
  PANDO_CHECK(timed == nullptr) << "the timing model knows no deaths and no pauses";
}

void SimWorld::Impl::Dispatch(const Event& event) {
  switch (event.kind) {
    case EventKind::kPost:
      return timed->OnPost(event.target);
    case EventKind::kTurn:
      return timed->OnTurn(event.target, event.verb);
    case EventKind::kArrive:
      if (timed != nullptr) return timed->OnArrive(event.target, event.verb);
      return network.OnArrive(event.target);
    case EventKind::kFencePassed:
      return network.OnFencePassed(event.target, event.verb);
    case EventKind::kUnit:
      if (timed != nullptr) return timed->OnExecute(event.target, event.verb);
      return network.OnUnit(event.target, event.verb);
    case EventKind::kComplete:
      return OnComplete(event);
    case EventKind::kBreak:
      return network.Break(event.target);
    case EventKind::kBreakSeen:
      return OnBreakSeen(event);
    case EventKind::kReopen:
      if (IsHeld(network.ServerOfQueuePair(event.target), event)) return;
      return network.OnReopen(event.target);
    case EventKind::kReopened:
      return network.OnReopened(event.target);
    case EventKind::kRun:
      if (SimEndpoint* endpoint = Receiver(event.target, event)) endpoint->OnRun(event);
      return;
    case EventKind::kCallRequest:
      return OnCallRequest(event);
    case EventKind::kCallReply:
    case EventKind::kCallDeadline:
      return OnCallEnd(event);
    case EventKind::kPeerGone: {
      Server& server = core.servers[event.verb];
      if (server.handler == nullptr || server.dead || IsHeld(event.verb, event)) return;
      server.handler->OnPeerGone(event.target + 1);
      return RunServerTimer(event.verb);
    }
    case EventKind::kPeerLeft:
      return OnPeerLeft(event);
    case EventKind::kServerTimer:
      return OnServerTimer(event);
    case EventKind::kPeerDue:
    case EventKind::kPeerCredit:
    case EventKind::kPeerDeadline:
      return OnPeerEvent(event);
    case EventKind::kPeerBreak:
      return peers.OnBreak(event.target);
    case EventKind::kPeerPosted:
      return peers.OnPosted(event.target);
    case EventKind::kPeerArrived:
      return peers.OnArrived(event.target);
    case EventKind::kCallback: {
      auto node = callbacks.extract(event.target);
      // The harness may kill, pause and schedule; it is no event as far as the world is concerned.
      in_event = false;
      node.mapped()();
      return;
    }
  }
}

SimEndpoint* SimWorld::Impl::Receiver(uint32_t endpoint_id, const Event& event) {
  SimEndpoint* endpoint = endpoints[endpoint_id];
  if (endpoint == nullptr) return nullptr;
  return MayRun(endpoint->process(), event) && !endpoint->Holds(event) ? endpoint : nullptr;
}

bool SimWorld::Impl::MayRun(uint32_t process_index, const Event& event) {
  Process& process = *core.processes[process_index];
  if (process.killed && !process.draining) return false;
  if (process.paused && !process.killed) {
    process.held.push_back(event);
    return false;
  }
  return true;
}

void SimWorld::Impl::OnPeerEvent(const Event& event) {
  if (!MayRun(peers.ProcessOf(event.target), event)) return;
  if (event.kind == EventKind::kPeerDue) return peers.OnDue(event.target);
  if (event.kind == EventKind::kPeerCredit) return peers.OnCredit(event.target, event.verb);
  peers.OnDeadline(event.target);
}

void SimWorld::Impl::OnComplete(const Event& event) {
  absl::Status status;
  if (timed != nullptr) {
    SimEndpoint* endpoint = endpoints[timed->EndpointOf(event.target)];
    int64_t ready_ns = 0;
    Chain* chain = timed->OnComplete(event.target, &status, &ready_ns);
    PANDO_CHECK(endpoint != nullptr);  // it would not have gone with something in flight
    return endpoint->OnTimedCompletion({chain, std::move(status), ready_ns});
  }
  if (network.IsAbandoned(event.target)) {
    network.OnComplete(event.target, &status);
    return;
  }
  SimEndpoint* endpoint = Receiver(network.EndpointOf(event.target), event);
  if (endpoint == nullptr) return;
  Chain* chain = network.OnComplete(event.target, &status);
  endpoint->Finish(chain, std::move(status));
  endpoint->RunThread();
}

void SimWorld::Impl::RunServerTimer(uint32_t server_index) {
  Server& server = core.servers[server_index];
  const int64_t next_ns = server.clock->ToWorld(server.handler->OnTimer(server.clock->NowNs()));
  if (next_ns >= server.timer_ns) return;  // an event before that asks again
  // Not now: a handler that is never content must not stop time.
  server.timer_ns = std::max(next_ns, core.now_ns + 1);
  core.ScheduleAt(server.timer_ns, EventKind::kServerTimer, server_index);
}

void SimWorld::Impl::OnServerTimer(const Event& event) {
  Server& server = core.servers[event.target];
  if (event.time_ns != server.timer_ns) return;  // another one was set meanwhile
  if (IsHeld(event.target, event)) return;
  server.timer_ns = kNeverNs;
  if (server.handler != nullptr && !server.dead) RunServerTimer(event.target);
}

void SimWorld::Impl::Kill(uint32_t process_index) {
  CheckUntimed();
  PANDO_CHECK(!in_event) << "a process is killed from inside an event";
  Process& process = *core.processes[process_index];
  if (process.killed) return;
  std::vector<Network::Abandoned> abandoned;
  network.KillProcess(process_index, &abandoned);
  process.killed = true;
  process.paused = false;
  process.held.clear();
  for (const uint32_t endpoint : process.endpoints) endpoints[endpoint]->Resume();
  for (const auto& [chain, endpoint] : abandoned) endpoints[endpoint]->Abandon(chain);
  for (auto& [id, call] : calls) {
    if (call.process != process_index || call.call == nullptr) continue;
    endpoints[call.endpoint]->Abandon(std::exchange(call.call, nullptr));
  }
  SchedulePeerGone(process_index);
  peers.KillProcess(process_index);
}

void SimWorld::Impl::BeginDrain(uint32_t process_index) {
  Process& process = *core.processes[process_index];
  process.draining = true;
  for (uint32_t endpoint : process.endpoints) endpoints[endpoint]->FailAbandoned();
  peers.DrainProcess(process_index);
}

void SimWorld::Impl::CloseFabric(uint32_t process_index) {
  Process& process = *core.processes[process_index];
  PANDO_CHECK(process.endpoints.empty()) << "endpoints outlive their fabric";
  PANDO_CHECK_EQ(process.peer_ports, 0u) << "ports outlive their fabric";
  process.closed = true;
  --open_fabrics;
  if (!process.killed) SchedulePeerGone(process_index);
}

}  // namespace pando::sim
