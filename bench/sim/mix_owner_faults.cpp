// Presets of owned trees: what is done to their owners, derived from the seed.
#include <array>

#include "absl/strings/str_cat.h"
#include "bench/sim/owner_faults.h"
#include "bench/sim/sim_run.h"
#include "common/base/random.h"

namespace pando {
namespace {

// Such that none of the seeds that are kept has any of it: they go on as they did.
constexpr uint64_t kMixPeerCutsSeed = 0x6d697863757b, kMixLogDeathsSeed = 0x6d69786c6f10,
                   kMixReplaceSeed = 0x6d6978727084, kMixMemberCutsSeed = 0x6d6978637597;

template <size_t n>
int64_t Pick(Random* random, const std::array<int64_t, n>& choices) {
  return choices[random->Uniform(n)];
}

// From shorter than it takes to notice to longer than a member's look at the others.
void MixPeerCuts(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixPeerCutsSeed));
  if (options->compute_servers < 2 || !random.Chance(0.4)) return;
  OwnerFaults& faults = options->owner_faults;
  faults.peer_cuts = 1 + static_cast<int>(random.Uniform(6));
  faults.peer_cut_max_ns = Pick<4>(&random, {200 * kMicrosecondNs, 3 * kMillisecondNs,
                                             50 * kMillisecondNs, 1'500 * kMillisecondNs});
  options->sim.peer_silent_ns =
      Pick<3>(&random, {20 * kMicrosecondNs, 2 * kMillisecondNs, 200 * kMillisecondNs});
}

// Instead of the death of a memory server alone. Nobody else ends, and no value lies in a cell.
void MixLogDeaths(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixLogDeathsSeed));
  const bool others_end = options->crashes > 0 || options->lease_ns > 0 ||
                          options->break_probability > 0 || options->drops > 0;
  const bool cells =
      options->tree.inline_value_bytes_max > 0 || options->tree.value_bytes_max > 255;
  if (others_end || cells || options->memory_servers < 2 || options->compute_servers < 2) return;
  if (!random.Chance(0.5)) return;
  options->owner_faults.log_deaths = 1;
  options->operations += 1500;  // some of them once the loss is accepted
  options->server_deaths = 0;
}

// A log's server that has died takes what its owner has acknowledged with it, if that is cut off as
// well: not in one run.
void MixMemberCuts(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixMemberCutsSeed));
  const bool server_dies = options->server_deaths > 0 || options->owner_faults.log_deaths > 0;
  if (server_dies || !random.Chance(0.4)) return;
  options->owner_faults.member_cuts = 1 + static_cast<int>(random.Uniform(4));
  const int64_t lease_ns =
      Pick<3>(&random, {4 * kMillisecondNs, 20 * kMillisecondNs, 100 * kMillisecondNs});
  if (options->lease_ns == 0) options->lease_ns = lease_ns;
}

// Those who have come may be killed as well.
void MixReplacements(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixReplaceSeed));
  if (options->crashes == 0 || !random.Chance(0.6)) return;
  options->owner_faults.replace_killed = true;
  options->owner_faults.replace_max_ns =
      Pick<3>(&random, {200 * kMicrosecondNs, options->sim.death_seen_ns, 2 * kSecondNs});
  options->crashes += static_cast<int>(random.Uniform(4));
}

}  // namespace

void MixOwnerFaults(uint64_t seed, const MixOptions& mix, SimRunOptions* options) {
  if (!mix.owned) return;
  MixPeerCuts(seed, options);
  if (mix.log_deaths) MixLogDeaths(seed, options);
  MixMemberCuts(seed, options);
  MixReplacements(seed, options);
}

std::string DescribeOwnerFaults(const SimRunOptions& options) {
  const OwnerFaults& faults = options.owner_faults;
  std::string text;
  if (faults.peer_cuts > 0) {
    absl::StrAppend(&text, ", peers cut ", faults.peer_cuts, " times up to ",
                    faults.peer_cut_max_ns / kMicrosecondNs, " us, unnoticed up to ",
                    options.sim.peer_silent_ns / kMicrosecondNs, " us");
  }
  if (faults.member_cuts > 0) {
    absl::StrAppend(&text, ", members cut off from a memory server ", faults.member_cuts, " times");
  }
  if (faults.replace_killed) {
    absl::StrAppend(&text, ", replaced within ", faults.replace_max_ns / kMicrosecondNs, " us");
  }
  if (faults.log_deaths > 0) absl::StrAppend(&text, ", an owner dies with its log");
  return text;
}

}  // namespace pando
