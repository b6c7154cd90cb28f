#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/fabric/chain_list.h"
#include "common/fabric/server_index.h"
#include "common/fabric/sim/world_impl.h"
#include "common/fabric/verb_check.h"
#include "common/wire/control.h"

namespace pando::sim {
namespace {

constexpr size_t kBufferAlignment = 64;

absl::Status KilledError() { return absl::UnavailableError("killed: this compute server is dead"); }

}  // namespace

SimFabric::SimFabric(SimWorld::Impl* world, uint32_t process) : world_(world), process_(process) {
  for (const Server& server : world->core.servers) {
    const auto latest = static_cast<uint32_t>(world->core.ServerIndex(server.id));
    if (&world->core.servers[latest] == &server) known_.push_back({latest, process});
  }
  first_count_ = known_.size();
  const SimOptions& options = world->core.options;
  capabilities_.name = "sim";
  capabilities_.lines_atomic =
      options.mode == DeliveryMode::kLines || options.mode == DeliveryMode::kWhole;
  capabilities_.needs_crc = options.mode == DeliveryMode::kWords;
  capabilities_.write_unlock = options.write_unlock;
  capabilities_.on_chip_bytes = options.on_chip_bytes;
  capabilities_.packet_bytes = options.packet_bytes;
  capabilities_.cheap_messages = options.cheap_messages;
  // A line is not written again before its writer or the next lock holder has heard of the write.
  capabilities_.min_write_interval_ns =
      options.nic != nullptr ? static_cast<int64_t>(2 * (options.nic->link.propagation_ns +
                                                         options.nic->link.switch_ns))
                             : 2 * options.delay_ns;
  capabilities_.read_packet_bytes = options.nic != nullptr ? options.packet_bytes : 0;
  capabilities_.event_driven = true;
  ++world_->open_fabrics;
}

SimFabric::~SimFabric() { world_->CloseFabric(process_); }

std::vector<ServerId> SimFabric::servers() const {
  std::vector<ServerId> ids;
  for (const Known& known : known_) ids.push_back(world_->core.servers[known.server].id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

uint64_t SimFabric::SpaceBytes(ServerId server, MemorySpace space) const {
  const int index = Find(server);
  return index < 0 ? 0 : world_->core.servers[index].Space(space).size();
}

int SimFabric::Find(ServerId server) const {
  for (size_t i = known_.size(); i-- > 0;) {
    const uint32_t index = known_[i].server;
    if (world_->core.servers[index].id == server) return static_cast<int>(index);
  }
  return -1;
}

absl::StatusOr<uint32_t> SimFabric::AddServer(const ServerLocation& location,
                                              const std::function<void()>& about_to_add) {
  const int index = world_->core.ServerIndex(location.id);
  if (world_->core.processes[process_]->killed) return KilledError();
  const Core& core = world_->core;
  const auto server = static_cast<uint32_t>(index);
  if (index < 0 || core.servers[server].dead || core.servers[server].paused ||
      core.processes[process_]->IsLinkCut(server)) {
    return absl::UnavailableError(absl::StrCat("server ", location.id, ": nobody answers"));
  }
  const bool is_again = index == Find(location.id);
  if (is_again && !core.HasLeft(core.PeerOf(process_, server), server)) {
    return absl::UnavailableError(absl::StrCat("server ", location.id, " is connected"));
  }
  about_to_add();
  known_.push_back({server, is_again ? world_->ConnectAgain(process_, server) : process_});
  return static_cast<uint32_t>(known_.size() - first_count_);
}

bool SimFabric::IsConnected(ServerId server) const {
  const int index = Find(server);
  return index >= 0 && !world_->core.servers[index].dead &&
         !world_->core.processes[process_]->IsCut(static_cast<uint32_t>(index));
}

void SimFabric::Disconnect(ServerId server) {
  const int index = Find(server);
  if (index < 0 || world_->core.servers[index].dead) return;
  world_->Disconnect(process_, static_cast<uint32_t>(index));
}

absl::StatusOr<std::unique_ptr<Endpoint>> SimFabric::Connect(uint16_t /*compute_server*/,
                                                             uint32_t /*incarnation*/) {
  if (world_->core.processes[process_]->killed) return KilledError();
  return std::make_unique<SimEndpoint>(world_, this);
}

void SimEndpoint::FreeAligned::operator()(std::byte* data) const {
  ::operator delete (data, std::align_val_t{kBufferAlignment});
}

SimEndpoint::SimEndpoint(SimWorld::Impl* world, const SimFabric* fabric)
    : world_(world),
      fabric_(fabric),
      process_(fabric->process()),
      id_(static_cast<uint32_t>(world->endpoints.size())) {
  world_->endpoints.push_back(this);
  owner().endpoints.push_back(id_);
  LinkTo(fabric_->known().size());
}

void SimEndpoint::LinkTo(size_t count) {
  const auto added = fabric_->known().subspan(links_.size(), count - links_.size());
  for (const auto& [server, peer] : added) {
    const uint32_t queue_pair = world_->timed != nullptr
                                    ? world_->timed->AddQueuePair(process_, id_, server)
                                    : world_->network.AddQueuePair(process_, id_, server, peer);
    links_.push_back({world_->core.servers[server].id, server, peer, queue_pair});
  }
}

void SimEndpoint::AdoptServers(uint32_t added) {
  const size_t count = fabric_->first_count() + added;
  PANDO_CHECK_LE(count, fabric_->known().size()) << "servers that were not added";
  if (count > links_.size()) LinkTo(count);
}

const SimEndpoint::Link* SimEndpoint::FindLink(ServerId server) const {
  for (size_t i = links_.size(); i-- > 0;) {
    if (links_[i].id == server) return &links_[i];
  }
  return nullptr;
}

SimEndpoint::~SimEndpoint() {
  PANDO_CHECK_EQ(in_flight_, 0u) << "an endpoint is destroyed while something is in flight";
  if (world_->timed == nullptr) {
    for (const Link& link : links_) world_->network.CloseQueuePair(link.queue_pair);
  }
  world_->endpoints[id_] = nullptr;
  std::erase(owner().endpoints, id_);
}

absl::StatusOr<LocalBuffer> SimEndpoint::AllocateBuffer(size_t bytes) {
  constexpr size_t kBytesMax = size_t{1} << 30;
  if (bytes == 0 || bytes > kBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a buffer of ", bytes, " bytes"));
  }
  auto* data = static_cast<std::byte*>(::operator new (bytes, std::align_val_t{kBufferAlignment}));
  std::memset(data, 0, bytes);
  buffers_.emplace_back(data);
  return LocalBuffer{data, static_cast<uint32_t>(bytes), 0};
}

void SimEndpoint::DoPost(Chain* chain) {
  chain->MarkPosted(clock().NowNs());
  ++in_flight_;
  const Link* const link = FindLink(chain->server());
  if (owner().killed) {
    Finish(chain, KilledError());
  } else if (link == nullptr) {
    Finish(chain, UnknownServerError(*chain));
  } else if (world_->timed != nullptr) {
    PostTimed(link->queue_pair, chain);
  } else if (world_->network.IsBroken(link->queue_pair) ||
             world_->network.BreakIfLinkCut(link->queue_pair)) [[unlikely]] {
    if (!world_->network.PostToBroken(link->queue_pair, chain)) {
      Finish(chain, world_->network.BrokenError(link->queue_pair));
    }
  } else {
    world_->network.Post(link->queue_pair, chain);
    if (owner().break_probability > 0) [[unlikely]]
      world_->MaybeBreak(process_, link->queue_pair);
  }
}

void SimEndpoint::PostTimed(uint32_t queue_pair, Chain* chain) {
  const auto unrung_end = lists_.begin() + static_cast<ptrdiff_t>(unrung_);
  auto list = std::find_if(lists_.begin(), unrung_end,
                           [&](const List& one) { return one.queue_pair == queue_pair; });
  if (list == unrung_end) {
    if (!overlap()) return Ring(queue_pair, {&chain, 1});
    if (++unrung_ > lists_.size()) lists_.emplace_back();
    list = lists_.begin() + static_cast<ptrdiff_t>(unrung_) - 1;
    list->queue_pair = queue_pair;
  }
  list->chains.push_back(chain);
  list->verbs += static_cast<uint32_t>(chain->size());
  if (!overlap() || list->verbs >= kChainListVerbsMax) Ring(&*list);
}

void SimEndpoint::Ring(List* list) {
  Ring(list->queue_pair, list->chains);
  list->chains.clear();
  list->verbs = 0;
}

void SimEndpoint::Ring(uint32_t queue_pair, std::span<Chain* const> left) {
  Core& core = world_->core;
  while (!left.empty()) {
    const int64_t now_ns = core.NowNs();
    size_t chains = 0;
    uint32_t verbs = 0;
    do {
      left[chains]->MarkStarted(now_ns);
      verbs += static_cast<uint32_t>(left[chains++]->size());
    } while (chains < left.size() && verbs + left[chains]->size() <= kChainListVerbsMax);
    const bool alone = in_flight_ == 1 && world_->timed->RingsForEach(verbs);
    core.SpendCpu(alone ? verbs * world_->timed->PostNs(1) : world_->timed->PostNs(verbs));
    world_->timed->Post(queue_pair, left.first(chains), alone, core.NowNs());
    left = left.subspan(chains);
  }
}

void SimEndpoint::RingAll() {
  for (size_t i = 0; i < unrung_; ++i) Ring(&lists_[i]);
  unrung_ = 0;
}

void SimEndpoint::DoCall(PendingCall* call) {
  ++in_flight_;
  call->done = false;
  const Link* const link = FindLink(call->server);
  if (owner().killed) {
    Finish(call, KilledError(), "");
  } else if (link == nullptr) {
    Finish(call, UnknownServerError(call->server, "call"), "");
  } else if (world_->core.HasLeft(link->peer, link->server)) {
    Finish(call, CutOffError(link->id), "");
  } else if (call->request.size() > sizeof(ControlHeader) + kControlBodyBytesMax) {
    Finish(call,
           absl::InvalidArgumentError(absl::StrCat("server ", call->server, ": call of ",
                                                   call->request.size(), " bytes: too long")),
           "");
  } else {
    world_->StartCall(id_, link->peer, link->server, call);
  }
}

void SimEndpoint::Finish(Chain* chain, absl::Status status) {
  --in_flight_;
  chain->Complete(std::move(status), clock().NowNs());
}

void SimEndpoint::Finish(PendingCall* call, absl::Status status, std::string reply) {
  --in_flight_;
  call->status = std::move(status);
  call->reply = std::move(reply);
  call->done = true;
  if (call->on_done != nullptr) call->on_done(call, call->context);
}

void SimEndpoint::FailAbandoned() {
  // Completions may post again (and fail at once): take the lists first.
  for (Chain* chain : std::exchange(abandoned_, {})) Finish(chain, KilledError());
  for (PendingCall* call : std::exchange(abandoned_calls_, {})) Finish(call, KilledError(), "");
  next_run_ns_[kWoken] = next_run_ns_[kTimed] = kNeverNs;
  Wake();
}

void SimEndpoint::Wait(int64_t until_ns) {
  PANDO_CHECK(!world_->in_event) << "Wait() from inside an event";
  RingAll();
  if (owner().killed && !owner().draining) {
    world_->BeginDrain(process_);
    return;
  }
  Core& core = world_->core;
  until_ns = owner().clock.ToWorld(until_ns);
  if (core.events.empty() || core.events.top().time_ns > until_ns) {
    PANDO_CHECK(until_ns != kNeverNs)
        << "deadlock: the simulated world is quiet at " << core.now_ns << " ns (seed "
        << core.options.seed << ") and a session waits without a deadline";
    core.now_ns = std::max(core.now_ns, until_ns);
    return;
  }
  world_->Step();
}

void SimEndpoint::Wake() {
  if (next_run_ns_[kWoken] != kNeverNs) return;
  const int64_t delay_ns = world_->timed != nullptr
                               ? static_cast<int64_t>(world_->timed->profile().cpu.wake_ns)
                               : 1 + world_->core.Jitter(world_->core.options.wake_delay_ns);
  ScheduleRun(kWoken, world_->core.NowNs() + delay_ns);
}

void SimEndpoint::WakeAt(int64_t ns) {
  ScheduleRun(kTimed, std::max(owner().clock.ToWorld(ns), world_->core.NowNs()));
}

void SimEndpoint::ScheduleRun(RunCause cause, int64_t ns) {
  // A call that is due now may be under way already: it does not count for a later one. Nor does
  // one that comes while the thread still spends what it has spent: who asks now does not ask then.
  const bool asked = next_run_ns_[cause] <= ns && next_run_ns_[cause] > world_->core.NowNs();
  if (asked) return;
  next_run_ns_[cause] = ns;
  world_->core.ScheduleAt(ns, EventKind::kRun, id_, cause);
}

void SimEndpoint::OnRun(const Event& event) {
  if (next_run_ns_[event.verb] <= event.time_ns) next_run_ns_[event.verb] = kNeverNs;
  RunThread();
}

void SimEndpoint::OnTimedCompletion(Completion completion) {
  ScheduleRun(kPolled, std::max(busy_until_ns_, completion.ready_ns));
  completions_.push_back(std::move(completion));
}

void SimEndpoint::RunThread() {
  if (world_->timed == nullptr) return CallRunner();
  Core& core = world_->core;
  if (busy_until_ns_ > core.now_ns) return ScheduleRun(kPolled, busy_until_ns_);
  const NicProfile::Cpu& cpu = world_->timed->profile().cpu;
  core.in_runner = true;
  while (!completions_.empty() && completions_.front().ready_ns <= core.NowNs()) {
    Completion completion = std::move(completions_.front());
    completions_.pop_front();
    core.SpendCpu(cpu.completion_ns + world_->timed->SearchNs(*completion.chain));
    Finish(completion.chain, std::move(completion.status));
  }
  CallRunner();
  RingAll();
  busy_until_ns_ = core.NowNs();
  core.in_runner = false;
  spent_.all_ns += core.spent_cpu_ns;
  core.spent_cpu_ns = 0;
  if (!completions_.empty()) {
    ScheduleRun(kPolled, std::max(busy_until_ns_, completions_.front().ready_ns));
  }
}

void SimEndpoint::ChargeOperation() {
  world_->core.SpendCpu(world_->timed->profile().cpu.operation_ns);
}

void SimEndpoint::ChargeRecords(BusyPeriods* partition, size_t records) {
  Core& core = world_->core;
  if (!core.in_runner) return;
  const double ns = world_->timed->profile().cpu.record_ns * static_cast<double>(records);
  const auto length_ns = static_cast<int64_t>(std::llround(ns));
  if (partition == nullptr) return core.SpendCpu(ns);
  const int64_t begin_ns = partition->Take(core.NowNs(), length_ns, core.now_ns);
  spent_.waited_ns += static_cast<double>(begin_ns - core.NowNs());
  core.SpendCpu(static_cast<double>(begin_ns + length_ns - core.NowNs()));
}

void SimEndpoint::CallRunner() {
  if (!runner_) return;
  Core& core = world_->core;
  ++core.stats.runner_calls;
  core.in_turn = core.options.turn_look_ns > 0 && world_->timed == nullptr;
  runner_();
  core.in_turn = false;
}

uint64_t SimEndpoint::random_seed() { return DeriveSeed(world_->core.options.seed, 1 + id_); }

}  // namespace pando::sim
