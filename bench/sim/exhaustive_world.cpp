#include "bench/sim/exhaustive_world.h"
#include "bench/perform/perform.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>

#include "absl/strings/str_cat.h"
#include "bench/sim/ending.h"
#include "bench/sim/erase_ranges.h"
#include "bench/sim/perform_runs.h"
#include "common/base/check.h"
#include "compute/check/tree_check.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "memory/sim_identity.h"

namespace pando {

using history::Operation;

namespace {

constexpr char kExhaustiveTree[] = "exhaustive";
constexpr uint64_t kJanitorSeed = 5;
// Virtual time after which nothing that depends on rest periods is under way any more.
constexpr int64_t kQuietNs = 3 * kSecondNs;
// Everything fits; the table of a cache of usual size takes longer to clear than a short run.
constexpr size_t kCacheBytes = 4 << 20;
constexpr size_t kPlacesBytes = 64 << 10;
constexpr uint64_t kEventsMax = 20'000'000;
// So many of its new nodes a run finds on one server.
constexpr size_t kSparesOfAServer = 2;
// Long enough for all that was executed to be heard of.
constexpr int64_t kHeardNs = 100 * kMicrosecondNs;

sim::SimOptions SimOptionsOf(const ExhaustiveOptions& options) {
  sim::SimOptions sim;
  sim.seed = options.seed;
  sim.mode = options.mode;
  sim.packet_bytes = options.packet_bytes;
  sim.long_delay_probability = 0;
  return sim;
}

}  // namespace

ExhaustiveWorld::ExhaustiveWorld(const ExhaustiveOptions& options)
    : options_(options), world_(SimOptionsOf(options)) {
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

ExhaustiveWorld::~ExhaustiveWorld() {
  for (const bool dead : {true, false}) {
    for (auto& actor : actors_) {
      if (actor->dead == dead) Leave(actor.get());
    }
  }
}

ExhaustiveActor* ExhaustiveWorld::Join(uint64_t seed) {
  Actor* actor = actors_.emplace_back(std::make_unique<Actor>()).get();
  actor->fabric = world_.NewFabric();
  ClientOptions client;
  client.seed = seed;
  client.operation_timeout_ms = 5'000;
  client.index_cache_bytes = kCacheBytes;
  client.value_places_bytes = kPlacesBytes;
  client.techniques.narrow_writes = options_.narrow_writes;
  auto connected = ConnectOverFabric(client, actor->fabric);
  PANDO_CHECK_OK(connected.status());
  actor->client = *std::move(connected);
  auto tree = actor->client->CreateTree(kExhaustiveTree, options_.tree);
  PANDO_CHECK_OK(tree.status());
  actor->tree = *std::move(tree);
  auto session = actor->client->NewSession();
  PANDO_CHECK_OK(session.status());
  actor->session = *std::move(session);
  entry_ = ImplOf(*actor->tree).context().entry;
  return actor;
}

void ExhaustiveWorld::Quiet() { world_.RunUntil(world_.clock().NowNs() + kQuietNs); }

void ExhaustiveWorld::Leave(Actor* actor) {
  for (SpareNode& spare : actor->kept) {
    TreeContext& tree = ImplOf(*actor->tree).context();
    tree.environment.allocator.PutBack(tree.id(), std::move(spare));
  }
  actor->kept.clear();
  actor->session.reset();
  actor->tree.reset();
  actor->client.reset();
  actor->fabric.reset();
}

void ExhaustiveWorld::Kill(Actor* actor) {
  actor->dead = actor->spent = true;
  world_.KillFabric(*actor->fabric);
}

void ExhaustiveWorld::Break(Actor* actor) {
  actor->spent = true;
  if (options_.break_heard) world_.RunUntil(world_.clock().NowNs() + kHeardNs);
  // Exactly between the two packets, or what has been held back may still leave, and be late.
  if (options_.break_late) Limit(actor, kNoPacketLimit);
  const uint64_t failed_before = world_.stats().chains_broken;
  for (size_t i = 0; i < servers_.size(); ++i) {
    world_.BreakQueuePairs(*actor->fabric, static_cast<ServerId>(i + 1));
  }
  chains_failed_together_ =
      std::max(chains_failed_together_, world_.stats().chains_broken - failed_before);
  Limit(actor, kNoPacketLimit);
}

void ExhaustiveWorld::Start(Actor* actor, std::vector<Operation> operations, bool record) {
  actor->session->Spawn([this, actor, operations = std::move(operations), record]() mutable {
    for (Operation& operation : operations) {
      operation.call_ns = Stamp();
      const size_t place = history_.size();
      if (record) history_.push_back(operation);
      const absl::Status status = Perform(*actor->session, *actor->tree, &operation);
      if (!End(actor, &operation, status)) return;
      if (record) history_[place] = std::move(operation);
    }
  });
  ImplOf(*actor->session).scheduler().endpoint().Wake();
}

bool ExhaustiveWorld::End(Actor* actor, Operation* operation, const absl::Status& status) {
  if (actor->dead) return false;
  const Ending ending = Explain(status, {.breaks = actor->spent}, operation);
  if (ending == Ending::kProblem) {
    Problem(
        absl::StrCat(history::OperationKindName(operation->kind), " ended in ", status.ToString()));
    return false;
  }
  if (ending == Ending::kConcluded) operation->return_ns = Stamp();
  return true;
}

void ExhaustiveWorld::StartRuns(Actor* actor, std::vector<Operation> operations) {
  actor->session->Spawn([this, actor, operations = std::move(operations)]() mutable {
    const size_t place = history_.size();
    std::vector<Operation*> all;
    const int64_t call_ns = Stamp();
    for (Operation& operation : operations) {
      operation.call_ns = call_ns;
      all.push_back(&operation);
      history_.push_back(operation);
    }
    PerformRuns(*actor->session, *actor->tree, all,
                [&](Operation* operation, const absl::Status& status) {
                  if (!End(actor, operation, status)) return false;
                  const auto at = static_cast<size_t>(operation - operations.data());
                  history_[place + at] = *operation;
                  return true;
                });
  });
  ImplOf(*actor->session).scheduler().endpoint().Wake();
}

void ExhaustiveWorld::StartErase(Actor* actor, std::vector<Operation> erases) {
  actor->session->Spawn([this, actor, erases = std::move(erases)]() mutable {
    const size_t place = history_.size();
    const int64_t call_ns = Stamp();
    for (Operation& erase : erases) {
      erase.call_ns = call_ns;
      history_.push_back(erase);
    }
    const RangeErasing erasing =
        PerformEraseRange(*actor->session, *actor->tree, erases.front().key, erases.back().key);
    Operation whole = erases.front();
    // A victim that was killed says nothing.
    if (!End(actor, &whole, erasing.status) && actor->dead) return;
    SettleErases(erasing, Stamp(), &erases);
    std::move(erases.begin(), erases.end(), history_.begin() + static_cast<ptrdiff_t>(place));
  });
  ImplOf(*actor->session).scheduler().endpoint().Wake();
}

void ExhaustiveWorld::GetSpares(Actor* actor) {
  TreeContext& tree = ImplOf(*actor->tree).context();
  NodeAllocator& allocator = tree.environment.allocator;
  for (size_t i = 0; i < servers_.size(); ++i) {  // each time of whom most is left
    actor->session->Spawn([actor, &tree] {
      PANDO_CHECK_OK(
          ImplOf(*actor->session).Perform(*actor->tree, {}, [&](OperationContext& context) {
            return tree.Refill(context, 1);
          }));
    });
    RunUntilIdle({actor});
  }
  std::map<ServerId, std::vector<SpareNode>> spares;
  while (std::optional<SpareNode> spare = allocator.TryTake(tree.id(), 1)) {
    spares[spare->address.server()].push_back(*std::move(spare));
  }
  for (auto& [server, nodes] : spares) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (i < kSparesOfAServer) {
        allocator.PutBack(tree.id(), std::move(nodes[i]));
      } else {
        actor->kept.push_back(std::move(nodes[i]));
      }
    }
  }
}

void ExhaustiveWorld::WriteInRuns(
    Actor* writer, std::vector<Operation> writes,
    const std::vector<std::pair<Actor*, std::vector<Operation>>>& beside) {
  StartRuns(writer, std::move(writes));
  RunBeside(writer, beside);
}

void ExhaustiveWorld::EraseRange(
    Actor* eraser, std::vector<Operation> erases,
    const std::vector<std::pair<Actor*, std::vector<Operation>>>& beside) {
  StartErase(eraser, std::move(erases));
  RunBeside(eraser, beside);
}

void ExhaustiveWorld::RunBeside(
    Actor* one, const std::vector<std::pair<Actor*, std::vector<Operation>>>& beside) {
  std::vector<Actor*> actors = {one};
  for (const auto& [actor, operations] : beside) {
    Start(actor, operations, true);
    actors.push_back(actor);
  }
  RunUntilIdle(actors);
}

bool ExhaustiveWorld::AnybodyWorks(const std::vector<Actor*>& actors) {
  bool busy = false;
  for (Actor* actor : actors) {
    if (actor->dead) continue;
    if (world_.PacketsSpent(*actor->fabric)) {
      options_.break_only ? Break(actor) : Kill(actor);
    }
    if (!actor->dead) {
      busy = busy || !ImplOf(*actor->session).scheduler().idle();
    }
  }
  return busy;
}

void ExhaustiveWorld::RunUntilIdle(const std::vector<Actor*>& actors) {
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

bool ExhaustiveWorld::Act(Actor* actor, std::vector<Operation> operations, bool record) {
  Start(actor, std::move(operations), record);
  RunUntilIdle({actor});
  return !actor->spent;
}

void ExhaustiveWorld::ActTogether(
    const std::vector<std::pair<Actor*, std::vector<Operation>>>& work) {
  std::vector<Actor*> actors;
  for (const auto& [actor, operations] : work) {
    Start(actor, operations, true);
    if (std::find(actors.begin(), actors.end(), actor) == actors.end()) actors.push_back(actor);
  }
  RunUntilIdle(actors);
}

void ExhaustiveWorld::SweepAfterDeaths() {
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
  if (report->cells_unused > 0) {
    Problem(absl::StrCat(report->cells_unused, " cells nobody looks after"));
  }
  if (report->nodes.orphans > 0) {
    Problem(absl::StrCat(report->nodes.orphans, " nodes nobody looks after"));
  }
}

void ExhaustiveWorld::Check(const history::State& initial) {
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

}  // namespace pando
