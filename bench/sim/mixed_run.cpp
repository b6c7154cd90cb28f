// The mixed preset: every choice of a run derived from its seed.
#include <algorithm>
#include <array>

#include "bench/sim/mixed_interruptions.h"
#include "bench/sim/sim_run.h"
#include "common/base/random.h"

namespace pando {
namespace {

constexpr uint64_t kMixSeed = 0x6d6978, kMixBreaksSeed = 0x6d697862, kMixCruelSeed = 0x6d697863;
constexpr uint64_t kMixWalkSeed = 0x6d697877, kMixRunsSeed = 0x6d697872;
constexpr uint64_t kMixOwnedSeed = 0x6d69786f, kMixNarrowSeed = 0x6d69786e;
constexpr uint64_t kMixErasesSeed = 0x6d697865, kMixCellsSeed = 0x6d697863656c;
constexpr uint64_t kMixFlushSeed = 0x6d697866, kMixLeasesSeed = 0x6d69786c,
                   kMixMessagesSeed = 0x6d69786d, kMixLendSeed = 0x6d69786c64,
                   kMixStretchSeed = 0x6d697873, kMixShapesSeed = 0x6d69787368;
constexpr uint64_t kConditionsSeed = 0x636f6e646974;

struct Shape {
  uint32_t key_bytes_max, value_bytes_max, node_bytes, prefix_bytes;
};
// Small nodes, so that a few hundred keys make a deep tree.
constexpr std::array<Shape, 7> kShapes = {{
    {8, 8, 1024, 0},    // slots share lines
    {8, 8, 2048, 0},    // more than one packet
    {60, 8, 1024, 44},  // a slot owns two lines; long separators
    {60, 8, 1024, 0},
    {60, 8, 2048, 50},
    {255, 255, 3328, 200},  // four slots of ten lines; fences continue in header lines
    {20, 30, 1024, 8},      // one slot a line
}};

template <typename T, size_t n>
T Pick(Random* random, const std::array<T, n>& choices) {
  return choices[random->Uniform(n)];
}

void MixNetwork(Random* random, SimRunOptions* options) {
  sim::SimOptions& sim = options->sim;
  sim.mode = Pick<sim::DeliveryMode>(
      random,
      std::array{sim::DeliveryMode::kLines, sim::DeliveryMode::kLines, sim::DeliveryMode::kLines,
                 sim::DeliveryMode::kShmOrder, sim::DeliveryMode::kShmOrder,
                 sim::DeliveryMode::kWords, sim::DeliveryMode::kWords, sim::DeliveryMode::kWhole});
  sim.jitter_ns = Pick<int64_t>(random, std::array<int64_t, 4>{100, 1'000, 3'000, 10'000});
  sim.long_delay_probability = Pick<double>(random, std::array{0.0, 0.005, 0.03});
  sim.stall_probability = Pick<double>(random, std::array{0.0, 0.03, 0.1});
  sim.unit_gap_ns = Pick<int64_t>(random, std::array<int64_t, 3>{50, 400, 1'500});
  sim.write_unlock = random->Chance(0.8);
  if (random->Chance(0.2)) sim.call_request_loss = sim.call_reply_loss = 0.1;
}

void MixTechniques(Random* random, Techniques* techniques) {
  const uint64_t choice = random->Uniform(10);
  if (choice < 6) return;  // everything
  if (choice == 6) {
    *techniques = Techniques::Sherman();
  } else if (choice == 7) {
    *techniques = Techniques::FgPlus();
  } else {
    for (bool* technique :
         {&techniques->command_combining, &techniques->on_chip_locks, &techniques->local_locks,
          &techniques->wait_queue, &techniques->handover, &techniques->operation_combining,
          &techniques->lock_and_read, &techniques->handover_image,
          &techniques->two_level_versions}) {
      *technique = random->Chance(0.6);
    }
    techniques->wait_queue &= techniques->local_locks;
    techniques->handover &= techniques->wait_queue;
    techniques->operation_combining &= techniques->wait_queue;
    techniques->handover_image &= techniques->handover;
  }
}

void MixWorkload(Random* random, SimRunOptions* options) {
  options->operations = 2000 + random->Uniform(500);
  options->keys = Pick<uint64_t>(random, std::array<uint64_t, 5>{1, 4, 16, 48, 64});
  if (random->Chance(0.4)) {
    options->grow = 0.9;
    options->insert = 0.4;
    options->remove = random->Chance(0.5) ? 0.02 : 0.15;
    options->ascending_growth = random->Chance(0.3);
    options->operations += 1500;
  }
  options->hot_share = Pick<double>(random, std::array{0.0, 0.0, 0.5, 0.9});
  options->scan = Pick<double>(random, std::array{0.0, 0.05, 0.2});
  options->scan_limit_max = Pick<uint64_t>(random, std::array<uint64_t, 3>{3, 20, 100});
}

// At least eight in all.
int SessionsEach(int compute_servers) { return (8 + compute_servers - 1) / compute_servers; }

// Trees that shrink again, and compute servers that stop or die.
void MixDeaths(Random* random, SimRunOptions* options) {
  if (random->Chance(0.3)) options->remove = 0.4;
  if (random->Chance(0.3)) {
    options->pauses = 1 + static_cast<int>(random->Uniform(4));
    options->lease_ns =
        Pick<int64_t>(random, std::array<int64_t, 4>{0, 1'000'000, 4'000'000, 10'000'000});
    // A fenced client leaves all its operations without an outcome: dozens of those at one key
    // are more than any checker can decide.
    options->keys = std::max<uint64_t>(options->keys, 16);
    options->hot_share = std::min(options->hot_share, 0.5);
  }
  if (!random->Chance(0.4)) return;
  options->crashes = 1 + static_cast<int>(random->Uniform(4));
  options->compute_servers = std::max(options->compute_servers, 1 + options->crashes);
  options->threads = SessionsEach(options->compute_servers);
  options->fence_words_per_step = Pick<uint32_t>(random, std::array<uint32_t, 3>{0, 64, 1024});
}

// Queue pairs that break. From a random stream of its own: the other choices stay what they were.
void MixBreaks(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixBreaksSeed));
  if (!random.Chance(0.3)) return;
  sim::SimOptions& sim = options->sim;
  options->break_probability = Pick<double>(&random, std::array{0.0005, 0.002, 0.01});
  sim.break_within_ns = Pick<int64_t>(&random, std::array<int64_t, 3>{1'000, 3'000, 10'000});
  sim.break_seen_ns = Pick<int64_t>(&random, std::array<int64_t, 3>{1, 1'000, 20'000});
  sim.break_late_ns = Pick<int64_t>(&random, std::array<int64_t, 3>{0, 20'000, 200'000});
  sim.reopen_ns = Pick<int64_t>(&random, std::array<int64_t, 3>{0, 100'000, 2'000'000});
  // Unknown outcomes, as of those who are fenced.
  options->keys = std::max<uint64_t>(options->keys, 16);
  options->hot_share = std::min(options->hot_share, 0.5);
  // A word that another session may have taken is freed by fencing alone (rule L5).
  if (!options->client.techniques.local_locks) {
    options->lease_ns = std::max<int64_t>(options->lease_ns, 4'000'000);
  }
}

// Scans with a cursor. From a random stream of its own, too.
void MixWalks(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixWalkSeed));
  if (!random.Chance(0.6)) return;
  options->cursor = 0.7;
  options->scan = std::max(options->scan, 0.05);
}

// Trees with owners, which are asked over links, end, and are followed. A memory server with their
// logs may die (rule W6), where nobody else can: who ends after that may not have both lost.
void MixOwned(uint64_t seed, const MixOptions& mix, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixOwnedSeed));
  options->tree.mode = TreeOptions::Mode::kOwned;
  options->tree.key_bytes_max = std::min<uint32_t>(options->tree.key_bytes_max, 240);
  ClientOptions& client = options->client;
  client.owner = random.Chance(0.3);
  client.hot_bytes = Pick<size_t>(&random, std::array<size_t, 3>{64 << 10, 128 << 10, 64 << 20});
  client.log_bytes =
      Pick<uint64_t>(&random, std::array<uint64_t, 3>{64 << 10, 128 << 10, 256 << 10});
  // From a random stream of its own, too.
  Random flushers(DeriveSeed(seed, kMixFlushSeed));
  client.flush_threads = 1 + static_cast<int>(flushers.Uniform(3));
  client.lend_after_ms = Random(DeriveSeed(seed, kMixLendSeed)).Chance(0.5) ? 0 : 250;
  options->sim.cheap_messages = Random(DeriveSeed(seed, kMixMessagesSeed)).Chance(0.5);
  options->peer_break_probability = Pick<double>(&random, std::array{0.0, 0.0, 0.001, 0.01});
  options->moves = Pick<double>(&random, std::array{0.002, 0.01, 0.05});
  options->flushes = Pick<double>(&random, std::array{0.0, 0.002, 0.02});
  options->server_deaths = options->partitions = 0;
  if (!random.Chance(0.5) || !mix.cruel_moves) options->drops = 0;
  if (mix.cruel_moves && options->pauses > 0) options->move_pauses = 0.1;
  options->many = 1;  // runs of leaves are the shared tree's
  options->main_bytes = std::max<uint64_t>(options->main_bytes, 64 << 20);
  // A client that asks an owner that ends does not know what it has done.
  options->keys = std::max<uint64_t>(options->keys, 16);
  options->hot_share = std::min(options->hot_share, 0.5);
  // Without local locks a chain of unknown end is a reason to leave, and who comes back as an owner
  // has more to do than a broken chain in a thousand leaves time for.
  if (!client.techniques.local_locks)
    options->break_probability = std::min(options->break_probability, 0.0002);
  const bool all_live = options->crashes == 0 && options->lease_ns == 0 &&
                        options->break_probability == 0 && options->drops == 0;
  if (all_live && options->memory_servers > 1 && random.Chance(0.6)) options->server_deaths = 1;
  // There may be leases where nobody is silent for as long as one, and all else is short, too.
  Random leases(DeriveSeed(seed, kMixLeasesSeed));
  const bool all_heard = options->pauses == 0 && options->sim.call_request_loss == 0 &&
                         options->times.lock_recovery_ns < kSecondNs;
  if (options->server_deaths > 0 && all_heard && leases.Chance(0.5)) {
    options->lease_ns = Pick<int64_t>(&leases, std::array<int64_t, 2>{20'000'000, 100'000'000});
  }
}

// Many writes at once. From a random stream of its own, too.
void MixRuns(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixRunsSeed));
  // Dozens at once at one key are more than any checker can decide.
  if (options->keys >= 16 && random.Chance(0.6))
    options->runs = Pick<double>(&random, std::array{0.02, 0.1, 0.4});
  options->many = Pick<double>(&random, std::array{0.0, 0.5, 1.0});
}

// Hundreds of neighbours in one call, some calls at once: parents that split twice in one. From a
// random stream of its own, too.
void MixStretches(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixStretchSeed));
  // Dozens that want a lock at once, and ask for it all the time, take minutes.
  if (!options->client.techniques.local_locks) return;
  if (options->runs == 0 || !random.Chance(0.3)) return;
  options->stretches = Pick<double>(&random, std::array{0.05, 0.2});
  options->keys = Pick<uint64_t>(&random, std::array<uint64_t, 3>{300, 800, 2000});
  if (options->main_bytes < SimRunOptions::kLittleBytes) options->keys = 300;
  options->operations += 4000;
}

// Narrow gets (rules N). From a random stream of its own, too.
void MixNarrow(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixNarrowSeed));
  options->tree.narrow_reads = random.Chance(0.5);
  // A client that does not read so writes by the same rules.
  if (random.Chance(0.2)) options->client.techniques.narrow_reads = false;
  options->client.techniques.narrow_writes = random.Chance(0.5);
  // Near groups first, also where most keys are elsewhere.
  options->client.techniques.narrow_anywhere = random.Chance(0.3);
}

// Values that lie in cells (rules K): all but the shortest, or few. From a random stream of its
// own, too.
void MixCells(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixCellsSeed));
  if (!random.Chance(0.4)) return;
  TreeOptions& tree = options->tree;
  if (random.Chance(0.5)) tree.value_bytes_max = std::max<uint32_t>(400, tree.node_bytes / 2);
  tree.inline_value_bytes_max =
      random.Chance(0.5) ? 4 : std::min<uint32_t>(tree.value_bytes_max / 2, 100);
  options->many = 1;  // runs of leaves are those of trees whose values are all in slots
  // Rule K5: not at all, five places, some, or all.
  options->client.value_places_bytes =
      Pick<size_t>(&random, std::array<size_t, 4>{0, 128, 1024, 64 << 10});
  // Of two sizes, so that a client comes to the end of those that nobody has had.
  if (random.Chance(0.4)) {
    UseCellsAtOnce(options);
    // Where calls are lost each may take an attempt's time, and a range of keys has many cells:
    // these are told of together.
    if (options->sim.call_request_loss > 0) {
      options->times.free_flush_ns = TimeConstants().free_flush_ns;
    }
    if (options->key_prefix_bytes == 0) tree.value_bytes_max = 60;
    tree.inline_value_bytes_max = 4;
    // Little memory that is used again at once is enough for as many, not for more.
    if (options->main_bytes >= SimRunOptions::kLittleBytes) {
      options->operations += options->operations / 2;
    } else {
      options->main_bytes *= 2;
    }
  }
}

// Ranges that are erased. From a random stream of its own, too.
void MixErases(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixErasesSeed));
  options->erases = Pick<double>(&random, std::array{0.0, 0.003, 0.01, 0.03});
}

// Everything that can be done to a run under load, with all constants so short that the run passes
// them again and again. From a random stream of its own, too.
void MixCruelty(uint64_t seed, const MixOptions& mix, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixCruelSeed));
  if (!random.Chance(mix.cruel_share)) return;
  sim::SimOptions& sim = options->sim;
  options->operations = 1500 + random.Uniform(700);
  const bool phases = random.Chance(0.7);
  if (phases) {
    options->keys = Pick<uint64_t>(&random, std::array<uint64_t, 3>{32, 48, 96});
    options->grow = 0;
  }
  // Outcomes will be unknown.
  options->keys = std::max<uint64_t>(options->keys, 16);
  options->hot_share = std::min(options->hot_share, 0.5);
  options->trees = Pick<int>(&random, std::array{1, 1, 2, 3});
  if (phases) options->phase = options->keys * 2 * static_cast<uint64_t>(options->trees);
  if (options->pauses > 0 && random.Chance(0.3)) options->pause_max_ns = 60 * kMillisecondNs;
  if (options->crashes > 0 && random.Chance(0.5)) sim.kill_late_ns = 3 * kMillisecondNs;
  if (options->break_probability > 0 && random.Chance(0.5)) {
    sim.break_late_ns = 5 * kMillisecondNs;
    sim.reopen_ns = Pick<int64_t>(&random, std::array<int64_t, 2>{2'000'000, 8'000'000});
  }
  if (sim.stall_probability > 0 && random.Chance(0.3)) {
    sim.stall_probability = 0.003;
    sim.stall_ns = 2 * kMillisecondNs;
  }
  // Few nodes at a time for each client, so that what was freed is used again: large ones.
  if (sim.mode != sim::DeliveryMode::kWords && random.Chance(0.75)) {
    options->tree = {255, 255, 8192};
    options->key_prefix_bytes = 200;
    // Little memory: what was freed is given back at once, and waited for.
    if (options->trees == 1 && random.Chance(0.5)) options->main_bytes = 1 << 20;
    sim.unit_gap_ns = std::min<int64_t>(sim.unit_gap_ns, 400);  // else rule F2 refuses its READs
  }
  if (random.Chance(0.6)) options->sweeps = 1 + static_cast<int>(random.Uniform(4));
  if (random.Chance(0.5)) options->reopens = 1 + static_cast<int>(random.Uniform(8));
  if (options->break_probability > 0 && random.Chance(0.6)) options->reopen_refused = 0.3;
  if (random.Chance(0.3)) {
    options->drops = 1 + static_cast<int>(random.Uniform(4));
    options->bulk_loads = random.Chance(0.5);
  }
  if (options->memory_servers > 1 && random.Chance(0.25)) options->server_deaths = 1;
  if (options->lease_ns > 0 && random.Chance(0.5)) {
    options->partitions = 1 + static_cast<int>(random.Uniform(4));
    options->partition_max_ns = 3 * options->lease_ns;
  }
  DivideTimes(Pick<int64_t>(&random, std::array<int64_t, 4>{300, 1'000, 3'000, 10'000}), options);
}

// A READ of a node that nothing stops is believed.
void AllowReads(uint32_t node_bytes, SimRunOptions* options) {
  const sim::SimOptions& sim = options->sim;
  const uint32_t unit_bytes = sim.mode == sim::DeliveryMode::kLines ? 64 : 8;
  const int64_t gaps = 2 * node_bytes / unit_bytes / (1 + sim.burst_units) + 1;
  const int64_t read_ns = gaps * sim.unit_gap_ns / 2 + 2 * (sim.delay_ns + sim.jitter_ns);
  options->times.read_max_ns = std::max(options->times.read_max_ns, 2 * read_ns);
  options->times.freed_rest_ns =
      std::max(options->times.freed_rest_ns, 2 * options->times.read_max_ns);
}

// Trees of which each has larger slots, or nodes of another size, so that memory that one gives
// back has nodes of the next one at other places. From a random stream of its own, too.
void MixShapes(uint64_t seed, SimRunOptions* options) {
  Random random(DeriveSeed(seed, kMixShapesSeed));
  if (options->trees == 1 || !random.Chance(0.7)) return;
  const bool owned = options->tree.mode == TreeOptions::Mode::kOwned;
  for (int slot = 1; slot < options->trees; ++slot) {
    TreeOptions tree = options->tree;
    const Shape& shape = kShapes[random.Uniform(kShapes.size())];
    const bool has_room =
        shape.key_bytes_max >= tree.key_bytes_max && shape.value_bytes_max >= tree.value_bytes_max;
    const auto more_lines = static_cast<uint32_t>(1 + random.Uniform(16));
    if (has_room && random.Chance(0.6)) {
      tree.key_bytes_max =
          owned ? std::min<uint32_t>(shape.key_bytes_max, 240) : shape.key_bytes_max;
      tree.value_bytes_max = shape.value_bytes_max;
      tree.node_bytes = shape.node_bytes;
    } else {
      tree.node_bytes += 64 * more_lines;
    }
    if (random.Chance(0.3)) tree.narrow_reads = !tree.narrow_reads;
    AllowReads(tree.node_bytes, options);
    options->other_trees.push_back(tree);
  }
}

}  // namespace

void UseCellsAtOnce(SimRunOptions* options) {
  options->times.cell_rest_ns = options->times.free_flush_ns = kMicrosecondNs;
}

void DivideTimes(int64_t divisor, SimRunOptions* options) {
  sim::SimOptions& sim = options->sim;
  options->times = TimeConstants().DividedBy(divisor);
  sim.death_seen_ns /= divisor;
  // A call there and back takes up to four delays.
  options->times.call_attempt_ns = std::max(options->times.call_attempt_ns, 10 * sim.call_delay_ns);
  AllowReads(options->tree.node_bytes, options);
  // Where nobody is fenced, nobody else frees the lock of who gives up.
  const int64_t back_ns = sim.break_late_ns + sim.reopen_ns + sim.stall_ns + 20 * sim.call_delay_ns;
  options->times.lock_recovery_ns = std::max(options->times.lock_recovery_ns, 10 * back_ns);
}

SimRunOptions MixedRun(uint64_t seed, const MixOptions& mix) {
  Random random(DeriveSeed(seed, kMixSeed));
  SimRunOptions options;
  options.sim.seed = seed;
  MixNetwork(&random, &options);
  MixTechniques(&random, &options.client.techniques);
  MixWorkload(&random, &options);
  const Shape& shape = kShapes[random.Uniform(kShapes.size())];
  options.tree = {shape.key_bytes_max, shape.value_bytes_max, shape.node_bytes};
  options.key_prefix_bytes = shape.prefix_bytes;
  options.sim.packet_bytes = random.Chance(0.5) ? 1024 : 4096;
  options.memory_servers = 1 + static_cast<int>(random.Uniform(3));
  options.compute_servers = 1 + static_cast<int>(random.Uniform(4));
  options.threads = SessionsEach(options.compute_servers);
  options.coroutines = 1 + static_cast<int>(random.Uniform(4));
  options.lock_words = Pick<uint64_t>(&random, std::array<uint64_t, 4>{258, 264, 320, 4096});
  options.client.handover_max = Pick<int>(&random, std::array{0, 1, 4, 32});
  options.client.combine_max = Pick<int>(&random, std::array{1, 4, 64});
  options.client.index_cache_bytes =
      Pick<size_t>(&random, std::array<size_t, 3>{1, 4096, 64 << 20});
  MixDeaths(&random, &options);
  Random conditions(DeriveSeed(seed, kConditionsSeed));
  options.conditional = Pick<double>(&conditions, std::array{0.0, 0.1, 0.3, 0.9});
  MixBreaks(seed, &options);
  MixWalks(seed, &options);
  MixRuns(seed, &options);
  MixErases(seed, &options);
  MixCruelty(seed, mix, &options);
  MixStretches(seed, &options);
  if (mix.owned) MixOwned(seed, mix, &options);
  MixNarrow(seed, &options);
  MixCells(seed, &options);
  if (mix.shapes) MixShapes(seed, &options);
  MixInterruptions(seed, mix, &options);
  MixOwnerFaults(seed, mix, &options);
  if (mix.restarts) MixRestarts(seed, &options);
  return options;
}

}  // namespace pando
