#include "bench/sim/mixed_interruptions.h"

#include <algorithm>
#include <array>

#include "common/base/random.h"

namespace pando {
namespace {

// Each has a random stream of its own: the other choices stay what they were.
constexpr uint64_t kMixServerPauseSeed = 0x6d69787370, kMixLateSeed = 0x6d69786c61,
                   kMixTurnsSeed = 0x6d697874, kMixClocksSeed = 0x6d6978636c,
                   kMixThreadsSeed = 0x6d69787468, kMixDeadlinesSeed = 0x6d69786465,
                   kMixRestartsSeed = 0x6d69787265;

// Memory servers that are stopped, for about as long as calls, or clients, wait for them.
void MixServerPauses(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixServerPauseSeed));
  if (!random.Chance(0.3)) return;
  options->server_pauses = 1 + static_cast<int>(random.Uniform(8));
  const TimeConstants& times = options->times;
  const std::array<int64_t, 3> longest_ns = {2 * kMillisecondNs, 3 * times.call_attempt_ns,
                                             std::max(2 * options->lease_ns, times.ping_max_ns)};
  options->server_pause_max_ns = longest_ns[random.Uniform(longest_ns.size())];
  // A queue pair is there again, and its locks with it, before who waits for that gives up.
  if (options->break_probability > 0 && options->lease_ns == 0) {
    options->server_pause_max_ns =
        std::min(options->server_pause_max_ns, times.lock_recovery_ns / 4);
  }
}

// Few packets of the living, and what tells of them, that come milliseconds late, as what was lost
// and is sent again. Many sessions may wait for each.
void MixLatePackets(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixLateSeed));
  if (!random.Chance(0.3)) return;
  sim::SimOptions& sim = options->sim;
  const bool very_late = random.Chance(0.5);
  sim.long_delay_ns = (very_late ? 50 : 2) * kMillisecondNs;
  sim.long_delay_probability = very_late ? 0.0003 : 0.003;
  // Nobody else frees the lock of who gives up too early.
  options->times.lock_recovery_ns += 10 * sim.long_delay_ns;
}

// Time passes inside turns: a thread that has looked at the clock acts later, or is stopped before
// it does. A look takes no longer than a real one: with 100 ns, those who poll while one of them
// asks for nodes left all others, NICs included, too little of the one processor that there is.
void MixTurns(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixTurnsSeed));
  if (!random.Chance(0.3)) return;
  sim::SimOptions& sim = options->sim;
  const std::array<int64_t, 3> looks_ns = {1, 4, 16};
  sim.turn_look_ns = looks_ns[random.Uniform(looks_ns.size())];
  const bool long_ones = random.Chance(0.5);
  // With leases as short as that a thread would hardly ever look while it holds one.
  const bool short_leases = options->lease_ns > 0 && options->lease_ns < 20 * kMillisecondNs;
  if (short_leases) return;
  sim.turn_stall_ns = long_ones ? 2 * kMillisecondNs : 20 * kMicrosecondNs;
  sim.turn_stall_probability = long_ones ? 0.00002 : 0.0005;
}

// A little less than what rules O5 and O15 allow.
void MixClocks(uint64_t seed, SimRunOptions* options) {
  if (Random(DeriveSeed(seed, kMixClocksSeed)).Chance(0.3)) options->sim.clock_drift_permille = 43;
}

// A thread whose processor is taken away, for a moment or for longer than others are patient, while
// its client is heard of.
void MixThreadPauses(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixThreadsSeed));
  if (!random.Chance(0.3)) return;
  options->thread_pauses = 1 + static_cast<int>(random.Uniform(8));
  const std::array<int64_t, 4> longest_ns = {200 * kMicrosecondNs, 2 * kMillisecondNs,
                                             20 * kMillisecondNs, 2 * options->lease_ns};
  options->thread_pause_max_ns =
      std::max(longest_ns[0], longest_ns[random.Uniform(longest_ns.size())]);
  // Nobody else frees the lock of who gives up too early.
  options->times.lock_recovery_ns += 2 * options->thread_pause_max_ns;
}

// Operations that may end between any two of their steps, as some call for less time than they
// take.
void MixDeadlines(uint64_t seed, SimRunOptions* options) {
  // Dozens of unknown outcomes at one key are more than any checker can decide.
  if (options->keys < 16) return;
  Random random(DeriveSeed(seed, kMixDeadlinesSeed));
  if (random.Chance(0.3)) options->short_deadlines = random.Chance(0.5) ? 0.01 : 0.1;
}

}  // namespace

void MixInterruptions(uint64_t seed, const MixOptions& mix, SimRunOptions* options) {
  if (mix.server_pauses) MixServerPauses(seed, options);
  if (mix.turns) MixTurns(seed, options);
  if (mix.clocks) MixClocks(seed, options);
  if (mix.late_packets) MixLatePackets(seed, options);
  if (mix.threads) MixThreadPauses(seed, options);
  if (mix.deadlines) MixDeadlines(seed, options);
}

// Before anybody has noticed, about when they do, or long after that; taken up at once, or by some
// much later than by others.
void MixRestarts(uint64_t seed, SimRunOptions* options) {
  if (options->server_deaths == 0 && options->owner_faults.log_deaths == 0) return;
  Random random(DeriveSeed(seed, kMixRestartsSeed));
  if (!random.Chance(0.7)) return;
  options->server_restarts = 0.9;
  if (options->server_deaths > 0) options->server_deaths += static_cast<int>(random.Uniform(3));
  if (random.Chance(0.5)) options->bulk_loads = true;
  const int64_t seen_ns = options->sim.death_seen_ns;
  const std::array<int64_t, 4> longest_ns = {20 * kMicrosecondNs, seen_ns / 10, 2 * seen_ns,
                                             4 * seen_ns};
  options->server_restart_max_ns = longest_ns[random.Uniform(longest_ns.size())];
  const std::array<int64_t, 4> take_up_ns = {1, 50 * kMicrosecondNs, seen_ns / 2, 2 * seen_ns};
  options->take_up_max_ns = take_up_ns[random.Uniform(take_up_ns.size())];
}

}  // namespace pando
