// Queue pairs that break between living ends, and are opened again (network.h, B1 to B6).
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/fabric/recoverable.h"
#include "common/fabric/sim/network.h"
#include "common/fabric/sim/world_impl.h"

namespace pando::sim {
namespace {

// How often a server looks whether what it destroyed is quiet.
constexpr int64_t kQuietAgainNs = 1 * kMicrosecondNs;
// What an atomic of a failed chain has found: nothing that is in any word.
constexpr uint64_t kNoResult = ~uint64_t{0};

}  // namespace

absl::Status Network::BrokenError(uint32_t queue_pair) const {
  const ServerId server = core_->servers[queue_pairs_[queue_pair].server].id;
  return MarkRecoverable(absl::UnavailableError(absl::StrCat(
      "server ", server,
      ": the queue pair broke; the server has not confirmed yet that nothing of it is in flight")));
}

void Network::BreakWithin(uint32_t queue_pair, int64_t limit_ns) {
  const auto delay_ns = core_->break_random.Uniform(static_cast<uint64_t>(limit_ns) + 1);
  core_->Schedule(static_cast<int64_t>(delay_ns), EventKind::kBreak, queue_pair);
}

void Network::BreakAll(uint32_t process, uint32_t server) {
  for (uint32_t i = 0; i < queue_pairs_.size(); ++i) {
    if (queue_pairs_[i].process == process && queue_pairs_[i].server == server) Break(i);
  }
}

void Network::Break(uint32_t queue_pair_index) {
  QueuePair& queue_pair = queue_pairs_[queue_pair_index];
  const Process& process = *core_->processes[queue_pair.process];
  const bool is_over = queue_pair.closed || process.killed || IsCut(queue_pair) ||
                       core_->servers[queue_pair.server].dead;
  if (is_over || queue_pair.broken) return;
  ++core_->stats.queue_pairs_broken;
  queue_pair.broken = true;
  queue_pair.break_seen = false;
  const auto notice_ns = static_cast<uint64_t>(std::max<int64_t>(core_->options.break_seen_ns, 1));
  queue_pair.break_seen_ns =
      core_->now_ns + 1 + static_cast<int64_t>(core_->break_random.Uniform(notice_ns));
  // B1: some breaks let nothing more out, as does a sender that has used up its packets.
  uint64_t sent = process.packets_spent || core_->break_random.Chance(0.25)
                      ? 0
                      : core_->break_random.Uniform(queue_pair.waiting_verbs + 1);
  const bool hides_results = core_->break_random.Chance(0.5);
  std::vector<Chain*> failed;
  for (const std::unique_ptr<Flight>& flight : flights_) {
    if (flight->chain == nullptr || flight->queue_pair != queue_pair_index) continue;
    failed.push_back(flight->chain);
    if (hides_results) HideResults(*flight);
    // What has ended and is on its way back is not heard of either.
    if (!flight->in_queue) flight->chain = nullptr;
  }
  CutQueue(queue_pair, sent);
  for (Chain* chain : failed) FailBroken(queue_pair_index, chain);
  core_->ScheduleAt(queue_pair.break_seen_ns, EventKind::kBreakSeen, queue_pair_index);
  if (core_->break_random.Chance(0.75))
    DelayRemains(queue_pair_index, core_->options.break_late_ns);
  Pump(queue_pair_index);
}

// A NIC reports what atomics found with the chain's completion, if at all.
void Network::HideResults(const Flight& flight) {
  for (uint8_t i = 0; i < flight.verb_count; ++i) {
    Verb& verb = flight.verbs[i];
    if (verb.is_atomic() && flight.runs[i].state == VerbState::kDone) verb.old_value = kNoResult;
  }
}

void Network::FailLater(uint32_t queue_pair, Chain* chain, int64_t seen_ns, absl::Status status) {
  const uint32_t index = TakeFlight();
  Flight& flight = *flights_[index];
  flight.chain = chain;
  flight.verbs = nullptr;
  flight.queue_pair = queue_pair;
  flight.verb_count = flight.unfinished = 0;
  flight.arrived = false;
  flight.status = std::move(status);
  core_->ScheduleAt(seen_ns, EventKind::kComplete, index);
}

// B3. A packet that is held up holds up those behind it, so one moment does for all.
void Network::DelayRemains(uint32_t queue_pair, int64_t late_max_ns) {
  const auto late_ns = static_cast<uint64_t>(late_max_ns);
  const int64_t until_ns =
      core_->now_ns + static_cast<int64_t>(core_->break_random.Uniform(late_ns + 1));
  for (uint32_t index = queue_pairs_[queue_pair].head; index != kNone;
       index = flights_[index]->next) {
    Flight& flight = *flights_[index];
    flight.arrived = false;
    flight.held_until_ns = until_ns;
    core_->ScheduleAt(until_ns, EventKind::kArrive, index);
  }
}

void Network::DropRemains(uint32_t queue_pair) {
  uint32_t next = kNone;
  for (uint32_t index = queue_pairs_[queue_pair].head; index != kNone; index = next) {
    next = flights_[index]->next;
    CutFlight(index);
  }
}

void Network::CountOrphan(const Flight& flight) {
  const QueuePair& queue_pair = queue_pairs_[flight.queue_pair];
  if (core_->processes[queue_pair.process]->killed) {
    ++core_->stats.verbs_after_kill;
  } else if (queue_pair.break_seen) {
    ++core_->stats.verbs_after_break;
  }
}

bool Network::PostToBroken(uint32_t queue_pair, Chain* chain) {
  if (queue_pairs_[queue_pair].break_seen) return false;
  FailBroken(queue_pair, chain);
  return true;
}

void Network::OnBreakSeen(uint32_t queue_pair) {
  queue_pairs_[queue_pair].break_seen = true;
  const auto reopen_ns = static_cast<uint64_t>(core_->options.reopen_ns);
  core_->Schedule(core_->options.call_delay_ns +
                      static_cast<int64_t>(core_->break_random.Uniform(reopen_ns + 1)),
                  EventKind::kReopen, queue_pair);
}

// B4, at the server.
void Network::OnReopen(uint32_t queue_pair_index) {
  QueuePair& queue_pair = queue_pairs_[queue_pair_index];
  const Process& process = *core_->processes[queue_pair.process];
  if (queue_pair.closed || process.killed) return;
  if (core_->servers[queue_pair.server].dead || IsCut(queue_pair)) {
    queue_pair.broken = false;  // posts find out why there is none
    return;
  }
  if (process.IsLinkCut(queue_pair.server)) {  // the server has not heard of it
    core_->Schedule(core_->options.call_delay_ns, EventKind::kReopen, queue_pair_index);
    return;
  }
  DropRemains(queue_pair_index);
  if (queue_pair.head != kNone) {
    core_->Schedule(kQuietAgainNs, EventKind::kReopen, queue_pair_index);
    return;
  }
  queue_pair.waiting_verbs = 0;  // fences that were dropped are still counted
  core_->Schedule(core_->options.call_delay_ns, EventKind::kReopened, queue_pair_index);
}

void Network::OnReopened(uint32_t queue_pair) {
  queue_pairs_[queue_pair].broken = false;
  ++core_->stats.queue_pairs_reopened;
}

void SimWorld::Impl::MaybeBreak(uint32_t process, uint32_t queue_pair) {
  if (!core.break_random.Chance(core.processes[process]->break_probability)) return;
  network.BreakWithin(queue_pair, core.options.break_within_ns);
}

void SimWorld::Impl::OnBreakSeen(const Event& event) {
  // A process that is stopped, or gone, notices nothing.
  if (Receiver(network.EndpointOfQueuePair(event.target), event) == nullptr) return;
  network.OnBreakSeen(event.target);
}

}  // namespace pando::sim
