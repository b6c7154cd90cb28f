#include "common/fabric/sim/network.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/fabric/verb_check.h"

namespace pando::sim {
namespace {

uint64_t Load64(const std::byte* from) {
  uint64_t value;
  std::memcpy(&value, from, 8);
  return value;
}

void Store64(std::byte* to, uint64_t value) { std::memcpy(to, &value, 8); }

// What an atomic leaves in its word, given what it found.
uint64_t AtomicResult(const Verb& verb) {
  if (verb.kind == VerbKind::kFetchAdd) return verb.old_value + verb.swap_or_add;
  return verb.swapped() ? verb.swap_or_add : verb.old_value;
}

}  // namespace

absl::Status CutOffError(ServerId server) {
  return absl::UnavailableError(absl::StrCat("server ", server, ": the queue pair is gone"));
}

absl::Status ValidateVerb(const Server& server, const Verb& verb, uint32_t packet_bytes) {
  const uint64_t space_bytes = server.Space(verb.space).size();
  const auto bad = [&](absl::string_view why) { return VerbError(server.id, verb, why); };
  if (verb.bytes > space_bytes || verb.offset > space_bytes - verb.bytes)
    return bad("out of bounds");
  if (verb.is_atomic()) {
    if (verb.bytes != 8 || verb.offset % 8 != 0) return bad("atomics are 8 aligned bytes");
    return absl::OkStatus();
  }
  if (verb.bytes == 0) return bad("empty");
  // As on shm, whose smallest unit is a word.
  if ((verb.offset | verb.bytes) % 8 != 0) return bad("not a run of aligned 8-byte words");
  if (verb.kind == VerbKind::kWrite && verb.bytes > packet_bytes) {
    return bad(absl::StrCat("more than a packet (", packet_bytes, ")"));
  }
  uint64_t sum = 0;
  for (int i = 0; i < verb.piece_count; ++i) sum += verb.pieces[i].bytes;
  if (sum != verb.bytes) return bad("its pieces have another size");
  return absl::OkStatus();
}

void ExecuteAtomic(std::byte* word, Verb* verb) {
  verb->old_value = Load64(word);
  Store64(word, AtomicResult(*verb));
}

uint32_t Network::AddQueuePair(uint32_t process, uint32_t endpoint, uint32_t server,
                               uint32_t peer) {
  QueuePair& queue_pair = queue_pairs_.emplace_back();
  queue_pair.process = process;
  queue_pair.endpoint = endpoint;
  queue_pair.server = server;
  queue_pair.peer = peer;
  queue_pair.replaced = peer != core_->PeerOf(process, server);
  return static_cast<uint32_t>(queue_pairs_.size() - 1);
}

uint32_t Network::TakeFlight() {
  if (free_flights_.empty()) {
    flights_.push_back(std::make_unique<Flight>());
    return static_cast<uint32_t>(flights_.size() - 1);
  }
  const uint32_t index = free_flights_.back();
  free_flights_.pop_back();
  return index;
}

void Network::Post(uint32_t queue_pair_index, Chain* chain) {
  QueuePair& queue_pair = queue_pairs_[queue_pair_index];
  PANDO_CHECK(!queue_pair.closed);
  ++core_->stats.chains;
  core_->stats.verbs += chain->size();
  const uint32_t index = TakeFlight();
  Flight& flight = *flights_[index];
  flight.chain = chain;
  flight.verbs = chain->verbs().data();
  flight.queue_pair = queue_pair_index;
  flight.verb_count = flight.unfinished = static_cast<uint8_t>(chain->size());
  flight.arrived = false;
  flight.status = absl::OkStatus();
  std::fill_n(flight.runs.begin(), flight.verb_count, VerbRun{});
  if (core_->servers[queue_pair.server].dead) {
    flight.status = absl::UnavailableError(absl::StrCat(
        "server ", core_->servers[queue_pair.server].id, ": ",
        chain->size() == 0 ? "nothing" : VerbName(chain->verb(0).kind), ": it is dead"));
    const int64_t seen_ns = core_->DeathSeenNs(queue_pair.process, queue_pair.server);
    core_->ScheduleAt(std::max(seen_ns, core_->now_ns + core_->options.delay_ns),
                      EventKind::kComplete, index);
    return;
  }
  if (IsCut(queue_pair)) {
    flight.status = CutOffError(core_->servers[queue_pair.server].id);
    core_->Schedule(core_->options.cut_seen_ns, EventKind::kComplete, index);
    return;
  }
  Append(index);
  queue_pair.last_arrival_ns =
      std::max(queue_pair.last_arrival_ns, core_->now_ns + core_->NetworkDelay());
  core_->ScheduleAt(queue_pair.last_arrival_ns, EventKind::kArrive, index);
}

void Network::Append(uint32_t index) {
  Flight& flight = *flights_[index];
  QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  flight.previous = queue_pair.tail;
  flight.next = kNone;
  (queue_pair.tail == kNone ? queue_pair.head : flights_[queue_pair.tail]->next) = index;
  queue_pair.tail = index;
  flight.in_queue = true;
  queue_pair.waiting_verbs += flight.verb_count;
  ++core_->ChainsOf(queue_pair.peer, queue_pair.server);
}

void Network::Unlink(uint32_t index) {
  Flight& flight = *flights_[index];
  QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  (flight.previous == kNone ? queue_pair.head : flights_[flight.previous]->next) = flight.next;
  (flight.next == kNone ? queue_pair.tail : flights_[flight.next]->previous) = flight.previous;
  flight.in_queue = false;
  const Process& process = *core_->processes[queue_pair.process];
  const uint32_t left = --core_->ChainsOf(queue_pair.peer, queue_pair.server);
  const bool may_be_over = process.killed || process.closed || IsCut(queue_pair);
  if (left == 0 && may_be_over && RuleHolds(Rule::kC2) &&
      core_->LastPacketTells(queue_pair.peer, queue_pair.server)) {
    core_->Schedule(core_->NetworkDelay(), EventKind::kPeerGone, queue_pair.peer,
                    static_cast<uint8_t>(queue_pair.server));
  }
}

void Network::OnArrive(uint32_t index) {
  Flight& flight = *flights_[index];
  if (!flight.in_queue || core_->now_ns < flight.held_until_ns) return;  // died, or is held up
  flight.arrived = true;
  core_->trace.Mix(index);
  for (uint8_t i = 0; i < flight.verb_count; ++i) {
    absl::Status status = ValidateVerb(core_->servers[queue_pairs_[flight.queue_pair].server],
                                       flight.verbs[i], core_->options.packet_bytes);
    if (!status.ok()) {
      DropFrom(index, i, status);
      break;
    }
  }
  if (flight.unfinished == 0) {
    FinishFlight(index);
  }
  Pump(flight.queue_pair);
}

void Network::DropFrom(uint32_t index, uint8_t first, const absl::Status& status) {
  Flight& flight = *flights_[index];
  flight.status = status;
  for (uint8_t i = first; i < flight.verb_count; ++i) {
    if (flight.runs[i].state != VerbState::kWaiting) continue;
    flight.runs[i].state = VerbState::kDropped;
    --flight.unfinished;
    --queue_pairs_[flight.queue_pair].waiting_verbs;
  }
}

void Network::Pump(uint32_t queue_pair_index) {
  bool reads = false, writes = false, atomics = false;  // unfinished before the verb at hand
  uint32_t next = kNone;
  for (uint32_t index = queue_pairs_[queue_pair_index].head; index != kNone; index = next) {
    if (queue_pairs_[queue_pair_index].waiting_verbs == 0) return;
    Flight& flight = *flights_[index];
    if (!flight.arrived) return;
    next = flight.next;
    for (uint8_t i = 0; i < flight.verb_count; ++i) {
      VerbRun& run = flight.runs[i];
      const Verb& verb = flight.verbs[i];
      if (run.state == VerbState::kDone || run.state == VerbState::kDropped) continue;
      if (run.state == VerbState::kFencing) return;
      if (run.state == VerbState::kWaiting) {
        if (verb.fence && !run.fence_passed) {
          if (reads || writes || atomics) return;
          run.state = VerbState::kFencing;
          core_->Schedule(core_->NetworkDelay() + core_->NetworkDelay(), EventKind::kFencePassed,
                          index, i);
          return;
        }
        if (!writes && !(verb.kind == VerbKind::kRead && atomics)) {
          if (!TakePacket(queue_pairs_[queue_pair_index].process, verb)) return;
          StartVerb(index, i);
        }
        if (run.state == VerbState::kDone) continue;
      }
      (verb.kind == VerbKind::kRead ? reads : verb.is_atomic() ? atomics : writes) = true;
    }
    if (flight.unfinished == 0 && flight.in_queue) FinishFlight(index);
  }
}

bool Network::TakePacket(uint32_t process_index, const Verb& verb) {
  Process& process = *core_->processes[process_index];
  if (process.packets_left == Process::kUnlimited) return true;
  if (process.packets_spent) return false;
  if (verb.kind == VerbKind::kRead) return true;
  process.packets_spent = process.packets_left == 0;
  if (process.packets_spent) {
    ++core_->stats.packets_held;
    return false;
  }
  --process.packets_left;
  return true;
}

void Network::OnFencePassed(uint32_t index, uint8_t verb) {
  Flight& flight = *flights_[index];
  VerbRun& run = flight.runs[verb];
  if (run.state != VerbState::kFencing) return;
  run.state = VerbState::kWaiting;
  run.fence_passed = true;
  Pump(flight.queue_pair);
}

void Network::StartVerb(uint32_t index, uint8_t verb) {
  Flight& flight = *flights_[index];
  VerbRun& run = flight.runs[verb];
  --queue_pairs_[flight.queue_pair].waiting_verbs;
  run.state = VerbState::kRunning;
  const SimOptions& options = core_->options;
  const Verb& what = flight.verbs[verb];
  if (!what.is_atomic()) {
    run.delivery = deliveries_.Take();
    deliveries_[run.delivery].Start(options.mode, what.kind, what.offset, what.bytes,
                                    &core_->random);
    if (options.stall_probability > 0 && core_->random.Chance(options.stall_probability)) {
      run.units_to_stall =
          1 + static_cast<uint32_t>(core_->random.Uniform(deliveries_[run.delivery].units()));
    }
    const int64_t read_stall_ns =
        core_->processes[queue_pairs_[flight.queue_pair].process]->read_stall_ns;
    if (read_stall_ns > 0 && what.kind == VerbKind::kRead) {
      run.units_to_stall = deliveries_[run.delivery].units() / 2;
      run.stall_ns = read_stall_ns;
    }
  }
  if (options.mode == DeliveryMode::kWhole) {
    if (what.is_atomic()) {
      ExecuteAtomic(flight, verb);
    } else {
      MoveUnits(flight, verb, 1);
    }
    FinishVerb(index, verb, VerbState::kDone);
    return;
  }
  core_->Schedule(core_->Jitter(options.start_jitter_ns), EventKind::kUnit, index, verb);
}

void Network::OnUnit(uint32_t index, uint8_t verb) {
  Flight& flight = *flights_[index];
  VerbRun& run = flight.runs[verb];
  if (run.state != VerbState::kRunning) return;  // its sender or server died
  const SimOptions& options = core_->options;
  if (flight.verbs[verb].is_atomic()) {
    if (!StepAtomic(index, verb)) return;
  } else {
    Delivery& delivery = deliveries_[run.delivery];
    const uint64_t burst = 1 + core_->random.Uniform(static_cast<uint64_t>(options.burst_units));
    const bool stalls = run.units_to_stall > 0 && run.units_to_stall <= burst;
    const uint64_t units = stalls ? run.units_to_stall : burst;
    MoveUnits(flight, verb, units);
    run.units_to_stall -= run.units_to_stall > 0 ? units : 0;
    if (!delivery.finished()) {
      if (!run.split) ++core_->stats.split_verbs;
      run.split = true;
      core_->stats.stalled_verbs += stalls ? 1 : 0;
      const bool stalls_long = stalls && run.stall_ns > 0;
      core_->Schedule(stalls_long ? run.stall_ns
                                  : core_->Jitter(stalls ? options.stall_ns : options.unit_gap_ns),
                      EventKind::kUnit, index, verb);
      return;
    }
  }
  CountOvertakes(index, verb);
  FinishVerb(index, verb, VerbState::kDone);
  if (IsCut(queue_pairs_[flight.queue_pair])) ++core_->stats.verbs_after_cut;
  const uint32_t queue_pair = flight.queue_pair;
  if (flight.unfinished == 0) FinishFlight(index);
  Pump(queue_pair);
}

void Network::MoveUnits(const Flight& flight, uint8_t verb, uint64_t count) {
  const Verb& what = flight.verbs[verb];
  Delivery& delivery = deliveries_[flight.runs[verb].delivery];
  std::byte* const memory = Space(queue_pairs_[flight.queue_pair], what.space).data();
  for (; count > 0 && !delivery.finished(); --count) {
    uint32_t begin = 0, end = 0;
    delivery.Next(&begin, &end);
    MoveUnit(what, memory, begin, end);
    const uint64_t where = what.offset + begin;
    core_->trace.MixBytes(where + (uint64_t{static_cast<uint8_t>(what.kind)} << 56), memory + where,
                          end - begin);
  }
}

void Network::ExecuteAtomic(Flight& flight, uint8_t verb) {
  Verb& what = flight.verbs[verb];
  sim::ExecuteAtomic(Space(queue_pairs_[flight.queue_pair], what.space).data() + what.offset,
                     &what);
  core_->trace.Mix(what.offset + (uint64_t{static_cast<uint8_t>(what.kind)} << 56), what.old_value);
}

std::vector<Network::HeldWord>::iterator Network::FindHeld(const QueuePair& queue_pair,
                                                           const Verb& verb) {
  return std::find_if(held_words_.begin(), held_words_.end(), [&](const HeldWord& held) {
    return held.server == queue_pair.server && held.space == verb.space &&
           held.offset == verb.offset;
  });
}

// Where a WRITE may not release a lock, an atomic takes two events; atomics wait for each other,
// WRITEs do not.
bool Network::StepAtomic(uint32_t index, uint8_t verb) {
  Flight& flight = *flights_[index];
  if (core_->options.write_unlock) {
    ExecuteAtomic(flight, verb);
    return true;
  }
  const QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  Verb& what = flight.verbs[verb];
  VerbRun& run = flight.runs[verb];
  std::byte* word = Space(queue_pair, what.space).data() + what.offset;
  const auto held = FindHeld(queue_pair, what);
  if (run.holds_word) {
    const uint64_t result = AtomicResult(what);
    if (result != what.old_value) {
      if (Load64(word) != held->value) ++core_->stats.lost_unlocks;
      Store64(word, result);
    }
    held_words_.erase(held);
    core_->trace.Mix(what.offset, what.old_value);
    return true;
  }
  if (held == held_words_.end()) {
    what.old_value = Load64(word);
    held_words_.push_back({queue_pair.server, what.space, what.offset, what.old_value});
    run.holds_word = true;
  }
  core_->Schedule(1 + core_->Jitter(core_->options.unit_gap_ns), EventKind::kUnit, index, verb);
  return false;
}

void Network::CountOvertakes(uint32_t index, uint8_t verb) {
  const Flight& flight = *flights_[index];
  if (flight.verbs[verb].kind == VerbKind::kRead) return;
  for (uint8_t i = 0; i < verb; ++i) {
    const VerbState state = flight.runs[i].state;
    if (state == VerbState::kWaiting || state == VerbState::kRunning) {
      ++core_->stats.overtakes;
      return;
    }
  }
}

void Network::FinishVerb(uint32_t index, uint8_t verb, VerbState state) {
  Flight& flight = *flights_[index];
  VerbRun& run = flight.runs[verb];
  run.state = state;
  --flight.unfinished;
  if (run.delivery != kNone) {
    deliveries_.Return(run.delivery);
    run.delivery = kNone;
  }
  if (flight.chain == nullptr && state == VerbState::kDone) CountOrphan(flight);
}

void Network::FinishFlight(uint32_t index) {
  Flight& flight = *flights_[index];
  Unlink(index);
  // The flight of a chain that is gone is not used again: events of its dropped verbs may still be
  // on the agenda.
  if (flight.chain == nullptr) {
    flight.remains.reset();
    return;
  }
  core_->Schedule(core_->NetworkDelay(), EventKind::kComplete, index);
}

Chain* Network::OnComplete(uint32_t index, absl::Status* status) {
  Flight& flight = *flights_[index];
  Chain* chain = flight.chain;
  *status = std::move(flight.status);
  flight.chain = nullptr;
  flight.verbs = nullptr;
  if (chain != nullptr && !flight.retired) free_flights_.push_back(index);
  return chain;
}

}  // namespace pando::sim
