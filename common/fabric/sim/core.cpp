#include "common/fabric/sim/core.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/check.h"

namespace pando::sim {
namespace {

constexpr uint64_t kBreakSeed = 0x627265616b, kTurnSeed = 0x7475726e, kClockSeed = 0x636c6f636b;

constexpr std::array<std::pair<DeliveryMode, std::string_view>, 4> kModeNames = {{
    {DeliveryMode::kLines, "lines"},
    {DeliveryMode::kWords, "words"},
    {DeliveryMode::kShmOrder, "shm"},
    {DeliveryMode::kWhole, "whole"},
}};

}  // namespace

std::string_view DeliveryModeName(DeliveryMode mode) {
  for (const auto& [known, name] : kModeNames) {
    if (known == mode) return name;
  }
  return "?";
}

bool ParseDeliveryMode(std::string_view name, DeliveryMode* mode) {
  for (const auto& [known, known_name] : kModeNames) {
    if (known_name == name) {
      *mode = known;
      return true;
    }
  }
  return false;
}

SparseMemory::SparseMemory(uint64_t bytes) : bytes_(bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PANDO_CHECK(mapped != MAP_FAILED)
      << "simulated memory of " << bytes << " bytes: " << strerror(errno);
  data_ = static_cast<std::byte*>(mapped);
}

SparseMemory::~SparseMemory() { munmap(data_, bytes_); }

Core::Core(const SimOptions& sim_options)
    : options(sim_options),
      random(sim_options.seed),
      break_random(DeriveSeed(sim_options.seed, kBreakSeed)),
      turn_random_(DeriveSeed(sim_options.seed, kTurnSeed)),
      clock_random_(DeriveSeed(sim_options.seed, kClockSeed)) {
  trace.Mix(options.seed);
}

int64_t Core::NetworkDelay() {
  int64_t delay_ns = options.delay_ns + Jitter(options.jitter_ns);
  if (options.long_delay_probability > 0 && random.Chance(options.long_delay_probability)) {
    ++stats.long_delays;
    delay_ns += Jitter(options.long_delay_ns);
  }
  return delay_ns;
}

int64_t OwnClock::NowNs() const { return FromWorld(core_->NowNs()); }

OwnClock Core::NewClock() {
  if (options.clock_drift_permille == 0) return {this, 1000};
  const auto width = static_cast<uint64_t>(2 * options.clock_drift_permille + 1);
  return {this,
          1000 - options.clock_drift_permille + static_cast<int64_t>(clock_random_.Uniform(width))};
}

int64_t Core::LookInTurn() const {
  PassTime();
  const int64_t seen_ns = now_ns;
  PassTime();
  return seen_ns;
}

void Core::PassTime() const {
  const int64_t before_ns = now_ns;
  const auto random_up_to = [this](int64_t limit_ns) {
    return static_cast<int64_t>(turn_random_.Uniform(static_cast<uint64_t>(limit_ns) + 1));
  };
  now_ns += random_up_to(options.turn_look_ns);
  if (options.turn_stall_ns > 0 && turn_random_.Chance(options.turn_stall_probability)) {
    ++stats.turn_stalls;
    now_ns += random_up_to(options.turn_stall_ns);
  }
  stats.turn_ns += static_cast<uint64_t>(now_ns - before_ns);
}

int Core::ServerIndex(ServerId id) const {
  for (size_t i = servers.size(); i-- > 0;) {
    if (servers[i].id == id) return static_cast<int>(i);
  }
  return -1;
}

uint32_t& Core::ChainsOf(uint32_t peer, uint32_t server) {
  if (peer >= kLaterPeers) return later_peers[peer - kLaterPeers].chains_in_network;
  std::vector<uint32_t>& counts = processes[peer]->chains_in_network;
  if (counts.size() <= server) counts.resize(server + 1, 0);
  return counts[server];
}

int64_t Core::DeathSeenNs(uint32_t process, uint32_t server) {
  std::vector<int64_t>& seen = processes[process]->death_seen_ns;
  if (seen.size() <= server) seen.resize(server + 1, 0);
  if (seen[server] == 0) seen[server] = now_ns + 1 + Jitter(options.death_seen_ns);
  return seen[server];
}

}  // namespace pando::sim
