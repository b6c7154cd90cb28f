// Deaths: what becomes of the packets of a killed process, and of chains to a killed server.
#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/fabric/sim/network.h"
#include "common/fabric/verb_check.h"

namespace pando::sim {

void Network::KillProcess(uint32_t process, std::vector<Abandoned>* abandoned) {
  for (const std::unique_ptr<Flight>& flight : flights_) {
    if (flight->chain == nullptr || queue_pairs_[flight->queue_pair].process != process) continue;
    abandoned->push_back({flight->chain, queue_pairs_[flight->queue_pair].endpoint});
    // In a queue pair: KillQueuePair() needs the chain's verbs once more.
    if (!flight->in_queue) flight->chain = nullptr;
  }
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    if (queue_pairs_[i].process == process) KillQueuePair(i);
  }
}

bool Network::IsUnderWay(uint32_t process) const {
  return std::any_of(flights_.begin(), flights_.end(), [&](const auto& flight) {
    return flight->unfinished > 0 && queue_pairs_[flight->queue_pair].process == process;
  });
}

void Network::KillQueuePair(uint32_t queue_pair_index) {
  QueuePair& queue_pair = queue_pairs_[queue_pair_index];
  // Of the verbs that have not started, so many had left the sender.
  const bool nothing_more = core_->processes[queue_pair.process]->packets_spent;
  uint64_t sent = nothing_more || core_->random.Chance(0.5)
                      ? 0
                      : core_->random.Uniform(queue_pair.waiting_verbs + 1);
  CutQueue(queue_pair, sent);
  if (core_->options.kill_late_ns > 0 && !queue_pair.broken) {
    DelayRemains(queue_pair_index, core_->options.kill_late_ns);
  }
  Pump(queue_pair_index);
}

void Network::CutQueue(const QueuePair& queue_pair, uint64_t sent) {
  uint32_t next = kNone;
  for (uint32_t index = queue_pair.head; index != kNone; index = next) {
    next = flights_[index]->next;
    CutVerbs(index, &sent);
    Orphan(*flights_[index]);
    if (flights_[index]->unfinished == 0) FinishFlight(index);
  }
}

void Network::CutVerbs(uint32_t index, uint64_t* sent) {
  Flight& flight = *flights_[index];
  QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  for (uint8_t i = 0; i < flight.verb_count; ++i) {
    VerbRun& run = flight.runs[i];
    const bool is_read = flight.verbs[i].kind == VerbKind::kRead;
    switch (run.state) {
      case VerbState::kDone:
      case VerbState::kDropped:
        break;
      case VerbState::kRunning:  // at the server: a WRITE or atomic goes on, nobody is there for a
                                 // READ
        if (is_read) FinishVerb(index, i, VerbState::kDropped);
        break;
      case VerbState::kFencing:
      case VerbState::kWaiting:
        // A fence is the sender's: what is behind it was never sent.
        if (run.state == VerbState::kFencing || (flight.verbs[i].fence && !run.fence_passed))
          *sent = 0;
        if (run.state == VerbState::kWaiting && *sent > 0 && !is_read) {
          --*sent;
          break;
        }
        if (*sent > 0) --*sent;
        if (run.state == VerbState::kWaiting) --queue_pair.waiting_verbs;
        if (!is_read) ++core_->stats.verbs_cut;
        FinishVerb(index, i, VerbState::kDropped);
        break;
    }
  }
}

void Network::Orphan(Flight& flight) {
  if (flight.unfinished > 0) {
    auto remains = std::make_unique<Remains>();
    size_t bytes = 0;
    for (uint8_t i = 0; i < flight.verb_count; ++i) bytes += flight.verbs[i].bytes;
    remains->data.resize(bytes);
    size_t at = 0;
    for (uint8_t i = 0; i < flight.verb_count; ++i) {
      Verb& verb = remains->verbs[i] = flight.verbs[i];
      if (verb.kind != VerbKind::kWrite || flight.runs[i].state == VerbState::kDone ||
          flight.runs[i].state == VerbState::kDropped) {
        continue;
      }
      for (int piece = 0; piece < verb.piece_count; ++piece) {
        LocalBuffer& buffer = verb.pieces[piece];
        std::memcpy(remains->data.data() + at, buffer.data, buffer.bytes);
        buffer.data = remains->data.data() + at;
        at += buffer.bytes;
      }
    }
    flight.remains = std::move(remains);
    flight.verbs = flight.remains->verbs.data();
  }
  flight.chain = nullptr;
}

void Network::CutOff(uint32_t peer, uint32_t server) {
  for (const QueuePair& queue_pair : queue_pairs_) {
    if (queue_pair.peer != peer || queue_pair.server != server) continue;
    uint32_t next = kNone;
    for (uint32_t index = queue_pair.head; index != kNone; index = next) {
      next = flights_[index]->next;
      CutFlight(index);
    }
  }
}

void Network::CutFlight(uint32_t index) {
  Flight& flight = *flights_[index];
  QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  for (uint8_t i = 0; i < flight.verb_count; ++i) {
    const VerbState state = flight.runs[i].state;
    if (state != VerbState::kWaiting && state != VerbState::kFencing) continue;
    if (state == VerbState::kWaiting) --queue_pair.waiting_verbs;
    if (flight.verbs[i].kind != VerbKind::kRead) ++core_->stats.verbs_cut;
    FinishVerb(index, i, VerbState::kDropped);
  }
  flight.status = CutOffError(core_->servers[queue_pair.server].id);
  flight.retired = true;
  if (flight.unfinished == 0) FinishFlight(index);
}

void Network::KillServer(uint32_t server) {
  for (QueuePair& queue_pair : queue_pairs_) {
    if (queue_pair.server != server) continue;
    uint32_t next = kNone;
    for (uint32_t index = queue_pair.head; index != kNone; index = next) {
      Flight& flight = *flights_[index];
      next = flight.next;
      absl::string_view failed = "nothing";
      for (uint8_t i = flight.verb_count; i-- > 0;) {
        const VerbState state = flight.runs[i].state;
        if (state == VerbState::kDone || state == VerbState::kDropped) continue;
        failed = VerbName(flight.verbs[i].kind);
        if (state == VerbState::kWaiting) --queue_pair.waiting_verbs;
        FinishVerb(index, i, VerbState::kDropped);
      }
      flight.status = absl::UnavailableError(
          absl::StrCat("server ", core_->servers[server].id, ": ", failed, ": it died"));
      Unlink(index);
      if (flight.chain == nullptr) {
        flight.remains.reset();
        continue;
      }
      flight.retired = true;
      core_->ScheduleAt(core_->DeathSeenNs(queue_pair.process, server), EventKind::kComplete,
                        index);
    }
  }
  std::erase_if(held_words_, [&](const HeldWord& held) { return held.server == server; });
}

}  // namespace pando::sim
