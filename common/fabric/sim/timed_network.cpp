#include "common/fabric/sim/timed_network.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/fabric/sim/network.h"

namespace pando::sim {
namespace {

constexpr uint32_t kReadBytes = 0;        // of a request besides its headers
constexpr uint32_t kAtomicBytes = 16;     // the operands
constexpr uint32_t kWordBytes = 8;        // an atomic's response
constexpr uint32_t kSearchedBytes = 128;  // shorter READs are words and headers, not nodes

// What is due so soon happens now (its times stay exact): an event costs more than that is worth.
constexpr Picoseconds kSoon = 16'000;

uint64_t RequestBytes(const Verb& verb) {
  if (verb.is_atomic()) return kAtomicBytes;
  return verb.kind == VerbKind::kRead ? kReadBytes : verb.bytes;
}

}  // namespace

TimedNetwork::TimedNetwork(Core* core, const NicProfile& profile)
    : core_(core), profile_(profile), times_(profile) {}

uint32_t TimedNetwork::AddHost() {
  hosts_.push_back(std::make_unique<Nic>(times_));
  return static_cast<uint32_t>(hosts_.size() - 1);
}

void TimedNetwork::AddServer() {
  server_hosts_.push_back(AddHost());
  server_threads_.emplace_back();
}

void TimedNetwork::AddProcess(int server_index) {
  process_hosts_.push_back(server_index < 0 ? AddHost()
                                            : server_hosts_[static_cast<size_t>(server_index)]);
}

uint32_t TimedNetwork::AddQueuePair(uint32_t process, uint32_t endpoint, uint32_t server) {
  QueuePair& queue_pair = queue_pairs_.emplace_back();
  queue_pair.endpoint = endpoint;
  queue_pair.server = server;
  queue_pair.local_host = process_hosts_[process];
  queue_pair.remote_host = server_hosts_[server];
  return static_cast<uint32_t>(queue_pairs_.size() - 1);
}

uint32_t TimedNetwork::TakeFlight() {
  if (free_flights_.empty()) {
    flights_.emplace_back();
    return static_cast<uint32_t>(flights_.size() - 1);
  }
  const uint32_t index = free_flights_.back();
  free_flights_.pop_back();
  return index;
}

uint32_t TimedNetwork::StartFlight(uint32_t queue_pair, Chain* chain) {
  ++core_->stats.chains;
  core_->stats.verbs += chain->size();
  const uint32_t index = TakeFlight();
  Flight& flight = flights_[index];
  flight.chain = chain;
  flight.queue_pair = queue_pair;
  flight.next = kNone;
  flight.to_send = static_cast<uint8_t>(chain->size());
  flight.sent = flight.unanswered = 0;
  flight.answered = flight.fetched = 0;
  flight.at_fence = false;
  flight.with_place = 0;
  flight.bytes_back = 0;
  flight.status = absl::OkStatus();
  const Server& server = core_->servers[queue_pairs_[queue_pair].server];
  for (uint8_t i = 0; i < flight.to_send && flight.status.ok(); ++i) {
    flight.status = ValidateVerb(server, chain->verb(i), core_->options.packet_bytes);
    if (!flight.status.ok()) flight.to_send = i;
  }
  flight.payload = 0;
  for (uint8_t i = 0; i < flight.to_send; ++i) {
    const Verb& verb = chain->verb(i);
    const bool fetched = verb.kind == VerbKind::kWrite && verb.bytes > times_.inline_bytes;
    flight.payload += fetched ? verb.bytes : 0;
  }
  return index;
}

void TimedNetwork::Post(uint32_t queue_pair, std::span<Chain* const> list, bool alone,
                        int64_t time_ns) {
  core_->stats.doorbells += alone ? list[0]->size() : 1;
  // mlx5 copies a work request into the doorbell only where it is posted by itself.
  const bool is_read = !alone && (list.size() > 1 || list[0]->size() > 1);
  const Picoseconds known = time_ns * 1000 + times_.doorbell + (is_read ? times_.fetch_chain : 0);
  Picoseconds& last_known = queue_pairs_[queue_pair].known;
  last_known = std::max(last_known, known);
  for (Chain* chain : list) {
    ScheduleAt(last_known, EventKind::kPost, StartFlight(queue_pair, chain));
  }
}

void TimedNetwork::OnPost(uint32_t index) {
  Flight& flight = flights_[index];
  if (flight.payload > 0) {
    Nic& nic = *hosts_[queue_pairs_[flight.queue_pair].local_host];
    const Picoseconds transfer = times_.OverPcie(std::exchange(flight.payload, 0));
    flight.fetched = nic.pcie.Take(Now(), transfer) + transfer + times_.fetch_payload;
  }
  Send(index);
}

void TimedNetwork::Send(uint32_t index) {
  QueuePair& queue_pair = queue_pairs_[flights_[index].queue_pair];
  if (queue_pair.blocked_head != kNone && queue_pair.blocked_head != index) {
    flights_[queue_pair.blocked_tail].next = index;
    queue_pair.blocked_tail = index;
    return;
  }
  while (SendVerbs(index)) {
    if (queue_pair.blocked_head != index) return;
    queue_pair.blocked_head = index = flights_[index].next;
    if (index == kNone) return;
  }
  if (queue_pair.blocked_head == kNone) queue_pair.blocked_head = queue_pair.blocked_tail = index;
}

bool TimedNetwork::SendVerbs(uint32_t index) {
  Flight& flight = flights_[index];
  QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  Nic& nic = *hosts_[queue_pair.local_host];
  if (flight.fetched > Now()) {
    ScheduleAt(flight.fetched, EventKind::kPost, index);
    return false;
  }
  if (flight.to_send == 0) {
    ScheduleAt(Now() + 2 * Wire(queue_pair), EventKind::kComplete, index);
    return true;
  }
  for (; flight.sent < flight.to_send; ++flight.sent) {
    const Verb& verb = flight.chain->verb(flight.sent);
    flight.at_fence = verb.fence && queue_pair.unanswered > 0;
    if (flight.at_fence) return false;
    const Picoseconds turn = queue_pair.send.Take(Now(), times_.queue_pair);
    const Picoseconds start = nic.send_engine.Take(turn, times_.send);
    const Picoseconds wire = times_.Serialise(RequestBytes(verb));
    const Picoseconds sent = nic.link_out.Take(start, wire) + wire;
    ++flight.unanswered;
    ++queue_pair.unanswered;
    ScheduleAt(sent + Wire(queue_pair), EventKind::kArrive, index, flight.sent);
  }
  return true;
}

void TimedNetwork::OnArrive(uint32_t index, uint8_t verb_index) {
  Flight& flight = flights_[index];
  QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  const Verb& verb = flight.chain->verb(verb_index);
  Nic& nic = *hosts_[queue_pair.remote_host];
  const Picoseconds came = nic.link_in.TakeUntil(Now(), times_.Serialise(RequestBytes(verb)));
  const bool place = nic.waiting_atomics < times_.waiting_max || !NeedsPlace(index, verb_index);
  if (place && nic.held_up.empty()) {
    Receive(index, verb_index, came, &nic);
  } else {
    nic.held_up.Push({index, verb_index});
  }
}

bool TimedNetwork::NeedsPlace(uint32_t index, uint8_t verb) const {
  const Flight& flight = flights_[index];
  return flight.chain->verb(verb).is_atomic() && queue_pairs_[flight.queue_pair].executed <= Now();
}

void TimedNetwork::Receive(uint32_t index, uint8_t verb, Picoseconds came, Nic* nic) {
  if (NeedsPlace(index, verb)) TakePlace(index, verb, nic);
  WaitForTurn(index, verb, nic->receive_engine.Take(came, times_.receive));
}

void TimedNetwork::TakePlace(uint32_t index, uint8_t verb, Nic* nic) {
  uint32_t& with_place = flights_[index].with_place;
  const uint32_t bit = uint32_t{1} << verb;
  nic->waiting_atomics += (with_place & bit) == 0 ? 1 : 0;
  with_place |= bit;
}

void TimedNetwork::LeavePlace(Nic* nic) {
  --nic->waiting_atomics;
  // One of them may leave its place at once: then this loop goes on, not one inside of it.
  if (std::exchange(nic->letting_in, true)) return;
  while (!nic->held_up.empty()) {
    const HeldUp::Arrival next = nic->held_up.front();
    const bool full = nic->waiting_atomics >= times_.waiting_max;
    if (full && NeedsPlace(next.flight, next.verb)) break;
    nic->held_up.Pop();
    Receive(next.flight, next.verb, Now(), nic);
  }
  nic->letting_in = false;
}

void TimedNetwork::WaitForTurn(uint32_t index, uint8_t verb, Picoseconds received) {
  const QueuePair& queue_pair = queue_pairs_[flights_[index].queue_pair];
  const Picoseconds turn = std::max(received, queue_pair.executed);
  if (turn > Now() + kSoon) {
    ScheduleAt(turn, EventKind::kTurn, index, verb);
  } else {
    Begin(index, verb, std::max(turn, Now()));
  }
}

void TimedNetwork::Begin(uint32_t index, uint8_t verb_index, Picoseconds at) {
  const Flight& flight = flights_[index];
  QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  const Verb& verb = flight.chain->verb(verb_index);
  Nic& nic = *hosts_[queue_pair.remote_host];
  const bool on_chip = IsOnChip(verb);
  Picoseconds effect = at;
  if (verb.is_atomic()) {
    const uint64_t bucket = (verb.offset / kWordBytes) & times_.bucket_mask;
    effect = nic.atomic_engines[on_chip].Take(effect, times_.engine[on_chip]);
    effect = nic.buckets[on_chip][bucket].Take(effect, times_.hold[on_chip]);
    queue_pair.executed = effect + times_.hold[on_chip];
    TakePlace(index, verb_index, &nic);
  } else if (verb.kind == VerbKind::kRead && on_chip) {
    effect += times_.on_chip_read;
  } else if (verb.kind == VerbKind::kRead) {
    const Picoseconds transfer = times_.OverPcie(verb.bytes);
    effect = nic.pcie.Take(effect, transfer) + transfer + times_.pcie_read;
  }
  if (effect > Now() + kSoon) {
    ScheduleAt(effect, EventKind::kUnit, index, verb_index);
  } else {
    Execute(index, verb_index, std::max(effect, Now()));
  }
}

void TimedNetwork::Execute(uint32_t index, uint8_t verb_index, Picoseconds at) {
  Flight& flight = flights_[index];
  const QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  Verb& verb = flight.chain->verb(verb_index);
  std::byte* const memory = core_->servers[queue_pair.server].Space(verb.space).data();
  Picoseconds leaves = at;
  if (verb.is_atomic()) {
    ExecuteAtomic(memory + verb.offset, &verb);
    LeavePlace(hosts_[queue_pair.remote_host].get());
    leaves += times_.atomic_latency[IsOnChip(verb)] + times_.Serialise(kWordBytes);
  } else {
    MoveBytes(verb, memory, 0, verb.bytes);
    if (verb.kind == VerbKind::kRead) {
      const Picoseconds wire = times_.Serialise(verb.bytes);
      leaves = hosts_[queue_pair.remote_host]->link_out.Take(leaves, wire) + wire;
      flight.bytes_back += verb.bytes;
    }
  }
  core_->trace.Mix(verb.offset + (uint64_t{static_cast<uint8_t>(verb.kind)} << 56));
  Answer(index, leaves + Wire(queue_pair));
}

void TimedNetwork::Answer(uint32_t index, Picoseconds at) {
  Flight& flight = flights_[index];
  QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  flight.answered = std::max(flight.answered, at);
  --flight.unanswered;
  --queue_pair.unanswered;
  if (flight.unanswered == 0 && flight.sent == flight.to_send) {
    ScheduleAt(flight.answered, EventKind::kComplete, index);
  }
  if (queue_pair.unanswered == 0 && queue_pair.blocked_head != kNone &&
      flights_[queue_pair.blocked_head].at_fence) {
    ScheduleAt(flight.answered, EventKind::kPost, queue_pair.blocked_head);
  }
}

Chain* TimedNetwork::OnComplete(uint32_t index, absl::Status* status, int64_t* ready_ns) {
  Flight& flight = flights_[index];
  QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  Picoseconds at = Now();
  if (flight.bytes_back > 0) {
    at = hosts_[queue_pair.local_host]->link_in.TakeUntil(at, times_.Serialise(flight.bytes_back));
  }
  queue_pair.completed = std::max(queue_pair.completed, at + times_.completion);
  *ready_ns = (queue_pair.completed + 999) / 1000;
  *status = std::move(flight.status);
  free_flights_.push_back(index);
  return std::exchange(flight.chain, nullptr);
}

Picoseconds TimedNetwork::MessageShare() const {
  const Picoseconds way =
      ToPs(profile_.calls.one_way_ns) - times_.wire - times_.Serialise(kWordBytes);
  return std::max<Picoseconds>(way, 0) / 2;
}

int64_t TimedNetwork::PostMessage(uint32_t from, uint64_t bytes) {
  ++core_->stats.doorbells;
  Picoseconds known = core_->NowNs() * 1000;
  if (bytes > times_.inline_bytes) {
    const Picoseconds transfer = times_.OverPcie(bytes);
    Nic& nic = *hosts_[process_hosts_[from]];
    known = nic.pcie.Take(known, transfer) + transfer + times_.fetch_payload;
  }
  return (known + MessageShare() + 999) / 1000;
}

int64_t TimedNetwork::SendMessage(uint32_t from, uint32_t to, uint64_t bytes) {
  Nic& nic = *hosts_[process_hosts_[from]];
  const Picoseconds start = nic.send_engine.Take(Now(), times_.send);
  const Picoseconds wire = times_.Serialise(bytes);
  const Picoseconds sent = nic.link_out.Take(start, wire) + wire;
  return (sent + Wire(process_hosts_[from], process_hosts_[to]) + 999) / 1000;
}

int64_t TimedNetwork::ReceiveMessage(uint32_t to, uint64_t bytes) {
  Nic& nic = *hosts_[process_hosts_[to]];
  const Picoseconds came = nic.link_in.TakeUntil(Now(), times_.Serialise(bytes));
  const Picoseconds received = nic.receive_engine.Take(came, times_.receive);
  return (received + MessageShare() + 999) / 1000;
}

int64_t TimedNetwork::ServeCall(uint32_t server) {
  const Picoseconds service = ToPs(profile_.calls.server_cpu_ns);
  const Picoseconds end = server_threads_[server].Take(Now(), service) + service;
  return (end - Now() + 999) / 1000;
}

std::vector<NicUse> TimedNetwork::ServersUse() const {
  const auto ns = [](const BusyUntil& part) { return part.busy() / 1000; };
  std::vector<NicUse> all;
  for (const uint32_t host : server_hosts_) {
    const Nic& nic = *hosts_[host];
    NicUse& use = all.emplace_back();
    use = {.link_out_ns = ns(nic.link_out),
           .link_in_ns = ns(nic.link_in),
           .send_ns = ns(nic.send_engine),
           .receive_ns = ns(nic.receive_engine),
           .pcie_ns = ns(nic.pcie),
           .atomics_ns = std::max(ns(nic.atomic_engines[0]), ns(nic.atomic_engines[1]))};
    for (const std::vector<BusyUntil>& buckets : nic.buckets) {
      for (const BusyUntil& lock : buckets) use.lock_ns = std::max(use.lock_ns, ns(lock));
    }
  }
  return all;
}

double TimedNetwork::SearchNs(const Chain& chain) const {
  double ns = 0;
  for (const Verb& verb : chain.verbs()) {
    const bool node = verb.kind == VerbKind::kRead && verb.bytes >= kSearchedBytes;
    ns += node ? profile_.cpu.search_node_ns : 0;
  }
  return ns;
}

}  // namespace pando::sim
