#include "bench/sim/exhaustive_crashes.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/history/checker.h"
#include "bench/host/fork_pool.h"
#include "bench/sim/exhaustive_script.h"
#include "bench/sim/perform.h"
#include "common/base/check.h"
#include "common/fabric/sim/sim_world.h"
#include "compute/check/tree_check.h"
#include "compute/client/connect.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "memory/memory_server.h"
#include "memory/sim_identity.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;

constexpr char kExhaustiveTree[] = "exhaustive";
constexpr uint64_t kJanitorSeed = 5;
constexpr uint64_t kNoLimit = UINT64_MAX;
// Virtual time after which nothing that depends on rest periods is under way any more.
constexpr int64_t kQuietNs = 3 * kSecondNs;
// Everything fits; the table of a cache of usual size takes longer to clear than a short run.
constexpr size_t kCacheBytes = 4 << 20;
constexpr uint64_t kEventsMax = 20'000'000;

// A compute server with one session.
struct Actor {
  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<Client> client;
  std::unique_ptr<Tree> tree;
  std::unique_ptr<Session> session;
  bool dead = false;
  bool spent = false;  // it ran out of packets
};

// One world: memory servers, actors, and the history since the victim began.
class World {
 public:
  explicit World(const ExhaustiveOptions& options);
  ~World();

  Actor* Join(uint64_t seed);
  // Runs the operations one after the other in a task, repairs included. False: the actor ran out
  // of packets: it was killed, or its queue pairs broke.
  bool Act(Actor* actor, std::vector<Operation> operations, bool record);
  // The same for several actors at once.
  void ActTogether(const std::vector<std::pair<Actor*, std::vector<Operation>>>& work);
  void Limit(Actor* actor, uint64_t packets) { world_.LimitPackets(*actor->fabric, packets); }
  void Leave(Actor* actor);
  void Quiet() { world_.RunUntil(world_.clock().NowNs() + kQuietNs); }
  // A client that comes after all others have left sweeps, and accounts for every node.
  void LookAfterTheDead();
  void Check(const history::State& initial);
  std::vector<std::string> TakeProblems() { return std::move(problems_); }
  const sim::SimStats& sim_stats() const { return world_.stats(); }
  ClientStats StatsOf(const Actor* actor) const { return actor->client->Stats(); }

 private:
  void Problem(std::string what) {
    if (problems_.size() < 5) problems_.push_back(std::move(what));
  }
  int64_t Stamp() { return last_stamp_ns_ = std::max(world_.clock().NowNs(), last_stamp_ns_ + 1); }
  void Start(Actor* actor, std::vector<Operation> operations, bool record);
  // Kills, or breaks, who ran out of packets.
  bool AnybodyWorks(const std::vector<Actor*>& actors);
  void RunUntilIdle(const std::vector<Actor*>& actors);
  void Kill(Actor* actor);
  void Break(Actor* actor);

  const ExhaustiveOptions& options_;
  sim::SimWorld world_;
  std::vector<std::unique_ptr<memory::MemoryServer>> servers_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<Operation> history_;
  std::vector<std::string> problems_;
  CatalogEntry entry_;
  bool crc_ = false;
  int64_t last_stamp_ns_ = 0;
};

sim::SimOptions SimOptionsOf(const ExhaustiveOptions& options) {
  sim::SimOptions sim;
  sim.seed = options.seed;
  sim.mode = options.mode;
  sim.packet_bytes = options.packet_bytes;
  sim.long_delay_probability = 0;
  return sim;
}

World::World(const ExhaustiveOptions& options) : options_(options), world_(SimOptionsOf(options)) {
  crc_ = options.mode == sim::DeliveryMode::kWords;
  for (int i = 1; i <= options.memory_servers; ++i) {
    const auto id = static_cast<ServerId>(i);
    const ServerMemory memory = world_.AddServer(id, 4 << 20, 1024 * 8);
    memory::MemoryServerOptions server;
    server.server_id = id;
    server.is_catalog = i == 1;
    server.chunk_bytes = 64 << 10;
    server.packet_bytes = options.packet_bytes;
    server.needs_crc = crc_;
    server.clock = &world_.clock();
    // Slowly, so that others meet the locks of the dead.
    server.fence_words_per_step = 128;
    server.identity_key = memory::SimIdentityKey();
    auto memory_server = memory::MemoryServer::Create(memory, server);
    PANDO_CHECK_OK(memory_server.status());
    servers_.push_back(*std::move(memory_server));
    world_.SetHandler(id, servers_.back().get());
  }
}

World::~World() {
  for (const bool dead : {true, false}) {
    for (auto& actor : actors_) {
      if (actor->dead == dead) Leave(actor.get());
    }
  }
}

Actor* World::Join(uint64_t seed) {
  Actor* actor = actors_.emplace_back(std::make_unique<Actor>()).get();
  actor->fabric = world_.NewFabric();
  ClientOptions client;
  client.seed = seed;
  client.operation_timeout_ms = 5'000;
  client.index_cache_bytes = kCacheBytes;
  auto connected = ConnectOverFabric(client, actor->fabric);
  PANDO_CHECK_OK(connected.status());
  actor->client = *std::move(connected);
  auto tree = actor->client->CreateTree(kExhaustiveTree, options_.tree);
  PANDO_CHECK_OK(tree.status());
  actor->tree = *std::move(tree);
  auto session = actor->client->NewSession();
  PANDO_CHECK_OK(session.status());
  actor->session = *std::move(session);
  entry_ = actor->tree->impl().context().entry;
  return actor;
}

void World::Leave(Actor* actor) {
  actor->session.reset();
  actor->tree.reset();
  actor->client.reset();
  actor->fabric.reset();
}

void World::Kill(Actor* actor) {
  actor->dead = actor->spent = true;
  world_.KillFabric(*actor->fabric);
}

void World::Break(Actor* actor) {
  actor->spent = true;
  // Exactly between the two packets, or what has been held back may still leave, and be late.
  if (options_.break_late) Limit(actor, kNoLimit);
  for (size_t i = 0; i < servers_.size(); ++i) {
    world_.BreakQueuePairs(*actor->fabric, static_cast<ServerId>(i + 1));
  }
  Limit(actor, kNoLimit);
}

void World::Start(Actor* actor, std::vector<Operation> operations, bool record) {
  actor->session->Spawn([this, actor, operations = std::move(operations), record]() mutable {
    for (Operation& operation : operations) {
      operation.call_ns = Stamp();
      const size_t place = history_.size();
      if (record) history_.push_back(operation);
      const absl::Status status = Perform(*actor->session, *actor->tree, &operation);
      if (actor->dead) return;
      const Ending ending = Explain(status, {.breaks = actor->spent}, &operation);
      if (ending == Ending::kProblem) {
        Problem(absl::StrCat(history::OperationKindName(operation.kind), " ended in ",
                             status.ToString()));
        return;
      }
      if (ending == Ending::kConcluded) operation.return_ns = Stamp();
      if (record) history_[place] = std::move(operation);
    }
  });
  actor->session->impl().scheduler().endpoint().Wake();
}

bool World::AnybodyWorks(const std::vector<Actor*>& actors) {
  bool busy = false;
  for (Actor* actor : actors) {
    if (actor->dead) continue;
    if (world_.PacketsSpent(*actor->fabric)) {
      options_.break_only ? Break(actor) : Kill(actor);
    }
    if (!actor->dead) {
      busy = busy || !actor->session->impl().scheduler().idle();
    }
  }
  return busy;
}

void World::RunUntilIdle(const std::vector<Actor*>& actors) {
  const sim::SimStats& stats = world_.stats();
  const uint64_t events_max = stats.events + kEventsMax;
  while (AnybodyWorks(actors)) {
    // That changes only where a client's code has run or a packet was held back.
    const uint64_t runner_calls = stats.runner_calls, packets_held = stats.packets_held;
    do {
      if (!world_.Step() || stats.events > events_max) {
        Problem("the work never ends");
        for (Actor* actor : actors) Kill(actor);
        return;
      }
    } while (stats.runner_calls == runner_calls && stats.packets_held == packets_held);
  }
}

bool World::Act(Actor* actor, std::vector<Operation> operations, bool record) {
  Start(actor, std::move(operations), record);
  RunUntilIdle({actor});
  return !actor->spent;
}

void World::ActTogether(const std::vector<std::pair<Actor*, std::vector<Operation>>>& work) {
  std::vector<Actor*> actors;
  for (const auto& [actor, operations] : work) {
    Start(actor, operations, true);
    actors.push_back(actor);
  }
  RunUntilIdle(actors);
}

void World::LookAfterTheDead() {
  for (const bool dead : {true, false}) {
    for (auto& actor : actors_) {
      if (actor->dead == dead) Leave(actor.get());
    }
  }
  Quiet();
  Actor* const actor = Join(kJanitorSeed);
  SweepResult swept;
  const absl::Status sweep = actor->session->Sweep(*actor->tree, &swept);
  if (!sweep.ok() || swept.left > 0) Problem(absl::StrCat("sweep: ", sweep.ToString()));
  const auto report = actor->session->Check(*actor->tree, {.quiet_tree = true});
  if (!report.ok()) return Problem(absl::StrCat("check: ", report.status().ToString()));
  for (const std::string& what : report->problems) Problem(what);
  if (report->nodes.orphans > 0) {
    Problem(absl::StrCat(report->nodes.orphans, " nodes nobody looks after"));
  }
}

void World::Check(const history::State& initial) {
  if (!problems_.empty()) return;
  for (size_t i = 0; i < servers_.size(); ++i) {
    const auto id = static_cast<ServerId>(i + 1);
    for (std::string& problem : CheckLocksFree(id, world_.Memory(id).locks))
      Problem(std::move(problem));
  }
  const TreeCheckResult tree =
      CheckTree(entry_, {.crc = crc_, .keep_entries = true},
                [this](RemoteAddress from, std::span<std::byte> into) {
                  const std::span<std::byte> main = world_.Memory(from.server()).main;
                  if (from.offset() + into.size() > main.size())
                    return absl::OutOfRangeError("beyond the region");
                  std::memcpy(into.data(), main.data() + from.offset(), into.size());
                  return absl::OkStatus();
                });
  for (const std::string& problem : tree.problems) Problem(problem);
  const history::CheckResult checked =
      history::CheckHistory(history_, &initial, tree.ok() ? &tree.entries : nullptr);
  for (const std::string& violation : checked.violations) Problem(violation);
  for (const std::string& key : checked.undecided) Problem(absl::StrCat("undecided: ", key));
}

// What the tree did for an operation, in words.
std::string KindOf(const Operation& operation, const TreeStats& before, const TreeStats& after) {
  std::string kind = history::OperationKindName(operation.kind);
  const auto add = [&](const char* what, uint64_t count) {
    if (count > 0) absl::StrAppend(&kind, ", ", count, " ", what);
  };
  add("splits", after.splits - before.splits);
  add("root splits", after.root_splits - before.root_splits);
  add("merges", after.merges - before.merges);
  add("root shrinks", after.root_shrinks - before.root_shrinks);
  return kind;
}

std::map<std::string, std::vector<size_t>> ChooseVictims(const ExhaustiveOptions& options,
                                                         const ExhaustiveScript& script) {
  std::map<std::string, std::vector<size_t>> victims;
  World world(options);
  Actor* const actor = world.Join(1);
  for (size_t i = 0; i < script.size(); ++i) {
    const TreeStats before = world.StatsOf(actor).tree;
    PANDO_CHECK(world.Act(actor, {script.at(i)}, false));
    std::vector<size_t>& kind = victims[KindOf(script.at(i), before, world.StatsOf(actor).tree)];
    // The first ones and the last one, so that small and large trees are met.
    if (kind.size() < static_cast<size_t>(options.victims_of_a_kind)) {
      kind.push_back(i);
    } else {
      kind.back() = i;
    }
  }
  return victims;
}

// A world in which the victim is about to begin. Its copies in forked children go on from there.
struct Scene {
  World world;
  Actor *warm = nullptr, *doomed = nullptr;

  Scene(const ExhaustiveOptions& options, const ExhaustiveScript& script, size_t victim)
      : world(options), warm(world.Join(1)) {
    world.Act(warm, script.Before(victim), false);
    doomed = world.Join(2);
    world.Act(doomed, {MakeOperation(OperationKind::kGet, script.at(victim).key, 0)}, true);
  }
};

// How one world ended.
struct Outcome {
  bool died = false;  // the victim ran out of packets
  bool recoverer_died = false;
  uint64_t locks_recovered = 0, verbs_late = 0;
  std::vector<std::string> problems;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Outcome, died, recoverer_died, locks_recovered, verbs_late,
                                   problems)

Outcome Play(Scene* scene, const ExhaustiveOptions& options, const ExhaustiveScript& script,
             size_t victim, uint64_t packets, uint64_t recoverer_packets) {
  auto& [world, warm, doomed] = *scene;
  Outcome outcome;
  world.Limit(doomed, packets);
  if (options.break_only) {  // others are at work meanwhile
    world.ActTogether({{doomed, {script.at(victim)}}, {warm, script.Readers(6'000'000)}});
  } else {
    world.Act(doomed, {script.at(victim)}, true);
  }
  outcome.died = doomed->spent;
  outcome.locks_recovered = world.StatsOf(doomed).tree.lock_recoveries;
  if (outcome.died && recoverer_packets != kNoLimit) {
    Actor* const recoverer = world.Join(3);
    world.Limit(recoverer, recoverer_packets);
    outcome.recoverer_died = !world.Act(recoverer, script.Writers(2'000'000), true);
  }
  Actor* const cold = world.Join(4);
  // Who comes first looks after what is left: now a reader whose cache is older than the victim's
  // end, now a writer, and then such a reader must not meet what was true before.
  if ((victim + packets) % 2 == 0) {
    world.Act(cold, script.Writers(3'000'000), true);
  } else {
    world.ActTogether({{warm, script.Readers(1'000'000)}, {cold, script.Writers(3'000'000)}});
  }
  // Now that the cold client has changed what the warm one has cached.
  world.ActTogether({{warm, script.Readers(4'000'000)}, {cold, script.Readers(5'000'000)}});
  world.LookAfterTheDead();
  world.Check(script.StateBefore(victim));
  outcome.verbs_late = world.sim_stats().verbs_after_break;
  outcome.problems = world.TakeProblems();
  return outcome;
}

// Plays on in a child: what happened up to here, a third of a run, need not happen again.
Outcome PlayForked(std::unique_ptr<Scene>* scene, const ExhaustiveOptions& options,
                   const ExhaustiveScript& script, size_t victim, uint64_t packets,
                   uint64_t recoverer_packets) {
  const auto play = [&]() -> absl::StatusOr<nlohmann::json> {
    const Outcome outcome = Play(scene->get(), options, script, victim, packets, recoverer_packets);
    scene->reset();  // it checks that nothing is left
    return nlohmann::json(outcome);
  };
  const auto answers = bench::RunForked({{.name = "a world", .run = play}}, /*at_once=*/1);
  Outcome outcome;
  if (answers.ok()) {
    answers->front().get_to(outcome);
  } else {
    outcome.problems.push_back(answers.status().ToString());
  }
  return outcome;
}

}  // namespace

ExhaustiveResult RunExhaustiveCrashes(const ExhaustiveOptions& options) {
  ExhaustiveResult result;
  const ExhaustiveScript script(options);
  const char* const ended = options.break_only ? ", broken after " : ", killed after ";
  for (const auto& [kind, victims] : ChooseVictims(options, script)) {
    for (const size_t victim : victims) {
      auto scene = std::make_unique<Scene>(options, script, victim);
      bool died = true;
      for (uint64_t packets = 0; died && result.problems.size() < 5; ++packets) {
        bool recoverer_died = false;
        uint64_t recoverer_packets = options.kill_recoverer > 0 ? 0 : kNoLimit;
        do {
          const Outcome outcome =
              PlayForked(&scene, options, script, victim, packets, recoverer_packets);
          died = outcome.died;
          recoverer_died = outcome.recoverer_died;
          result.locks_recovered += outcome.locks_recovered;
          result.verbs_late += outcome.verbs_late;
          ++result.worlds;
          if (died) ++result.kinds[kind];
          for (const std::string& problem : outcome.problems) {
            result.problems.push_back(absl::StrCat(
                kind, ": operation ", victim, " of the script", ended, packets, " packets",
                recoverer_packets == kNoLimit
                    ? ""
                    : absl::StrCat(", the recoverer after ", recoverer_packets),
                ": ", problem));
          }
        } while (died && recoverer_died && ++recoverer_packets < options.kill_recoverer &&
                 result.problems.empty());
      }
    }
  }
  return result;
}

}  // namespace pando
