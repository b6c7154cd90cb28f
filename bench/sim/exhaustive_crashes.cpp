#include "bench/sim/exhaustive_crashes.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/host/fork_pool.h"
#include "bench/sim/exhaustive_script.h"
#include "bench/sim/exhaustive_world.h"
#include "common/base/check.h"
#include "common/base/random.h"

namespace pando {
namespace {

using history::Operation;
using history::OperationKind;
using Actor = ExhaustiveActor;
using Work = std::vector<std::pair<Actor*, std::vector<Operation>>>;

constexpr uint64_t kRunStamp = 8'000'000;

// What the tree did for an operation, in words.
std::string KindOf(std::string kind, const TreeStats& before, const TreeStats& after) {
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
  if (options.run_length > 0) {
    for (const size_t victim : script.RunVictims()) {
      ExhaustiveWorld world(options);
      Actor* const actor = world.Join(1);
      PANDO_CHECK(world.Act(actor, script.Before(victim), false));
      world.GetSpares(actor);
      const TreeStats before = world.StatsOf(actor).tree;
      std::vector<Operation> run = script.RunAt(victim, options.run_length, kRunStamp);
      const std::string length = absl::StrCat("run of ", run.size());
      world.WriteInRuns(actor, std::move(run), {});
      victims[KindOf(length, before, world.StatsOf(actor).tree)].push_back(victim);
    }
    return victims;
  }
  if (options.erase_length > 0) {
    for (const size_t victim : script.EraseVictims()) {
      ExhaustiveWorld world(options);
      Actor* const actor = world.Join(1);
      PANDO_CHECK(world.Act(actor, script.Before(victim), false));
      const TreeStats before = world.StatsOf(actor).tree;
      std::vector<Operation> erases = script.EraseAt(victim, options.erase_length);
      const std::string length = absl::StrCat("range of ", erases.size());
      world.EraseRange(actor, std::move(erases), {});
      victims[KindOf(length, before, world.StatsOf(actor).tree)].push_back(victim);
    }
    return victims;
  }
  ExhaustiveWorld world(options);
  Actor* const actor = world.Join(1);
  for (size_t i = 0; i < script.size(); ++i) {
    const ClientStats before = world.StatsOf(actor);
    PANDO_CHECK(world.Act(actor, {script.at(i)}, false));
    const ClientStats after = world.StatsOf(actor);
    const std::string name = history::OperationKindName(script.at(i).kind);
    std::string of_kind = KindOf(name, before.tree, after.tree);
    // A flag may be a WRITE of its own (rule N6).
    if (options.tree.narrow_reads && of_kind == name)
      absl::StrAppend(&of_kind, ", ", after.fabric.writes - before.fabric.writes, " WRITEs");
    std::vector<size_t>& kind = victims[of_kind];
    // The first ones and the last one, so that small and large trees are met.
    if (kind.size() < static_cast<size_t>(options.victims_of_a_kind)) {
      kind.push_back(i);
    } else {
      kind.back() = i;
    }
  }
  return victims;
}

// What the victim's session does: the operation, and those beside it.
std::vector<Operation> Victims(const ExhaustiveOptions& options, const ExhaustiveScript& script,
                               size_t victim) {
  if (options.run_length > 0) return script.RunAt(victim, options.run_length, kRunStamp);
  if (options.erase_length > 0) return script.EraseAt(victim, options.erase_length);
  std::vector<Operation> all = {script.at(victim)};
  if (!options.side_by_side) return all;
  for (Operation& beside : script.Beside(victim, 7'000'000)) all.push_back(std::move(beside));
  return all;
}

// A world in which the victim is about to begin. Its copies in forked children go on from there.
struct Scene {
  ExhaustiveWorld world;
  Actor *warm = nullptr, *doomed = nullptr;

  Scene(const ExhaustiveOptions& options, const ExhaustiveScript& script, size_t victim)
      : world(options), warm(world.Join(1)) {
    world.Act(warm, script.Before(victim), false);
    doomed = world.Join(2);
    std::vector<Operation> gets;  // it knows the way
    for (const Operation& operation : Victims(options, script, victim)) {
      gets.push_back(MakeOperation(OperationKind::kGet, operation.key, 0));
    }
    world.Act(doomed, std::move(gets), true);
    if (options.run_length > 0) world.GetSpares(doomed);
  }
};

// How one world ended.
struct Outcome {
  bool died = false;  // the victim ran out of packets
  bool recoverer_died = false;
  uint64_t locks_recovered = 0, verbs_late = 0, chains_failed_together = 0;
  std::vector<std::string> problems;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Outcome, died, recoverer_died, locks_recovered, verbs_late,
                                   chains_failed_together, problems)

Outcome Play(Scene* scene, const ExhaustiveOptions& options, const ExhaustiveScript& script,
             size_t victim, uint64_t packets, uint64_t recoverer_packets) {
  auto& [world, warm, doomed] = *scene;
  Outcome outcome;
  world.Limit(doomed, packets);
  // All worlds begin alike, and of lists it matters how much of them comes late.
  if (options.side_by_side) world.SeedBreaks(DeriveSeed(options.seed, packets));
  std::vector<Operation> victims = Victims(options, script, victim);
  Work work;
  const bool singly = options.run_length == 0 && options.erase_length == 0;
  for (size_t i = 0; i < victims.size() && singly; ++i) {
    work.push_back({doomed, {victims[i]}});
  }
  // Others are at work meanwhile.
  if (options.break_only) work.push_back({warm, script.Readers(6'000'000)});
  if (options.run_length > 0) {
    world.WriteInRuns(doomed, std::move(victims), work);
  } else if (options.erase_length > 0) {
    world.EraseRange(doomed, std::move(victims), work);
  } else {
    world.ActTogether(work);
  }
  outcome.died = doomed->spent;
  outcome.locks_recovered = world.StatsOf(doomed).tree.lock_recoveries;
  if (outcome.died && recoverer_packets != kNoPacketLimit) {
    Actor* const recoverer = world.Join(3);
    world.Limit(recoverer, recoverer_packets);
    outcome.recoverer_died = !world.Act(recoverer, script.Writers(2'000'000), true);
  }
  Actor* const cold = world.Join(4);
  // The first that comes repairs what is left: now a reader whose cache is older than the victim's
  // end, now a writer, and then such a reader must not meet what was true before.
  if ((victim + packets) % 2 == 0) {
    world.Act(cold, script.Writers(3'000'000), true);
  } else {
    world.ActTogether({{warm, script.Readers(1'000'000)}, {cold, script.Writers(3'000'000)}});
  }
  // Now that the cold client has changed what the warm one has cached.
  world.ActTogether({{warm, script.Readers(4'000'000)}, {cold, script.Readers(5'000'000)}});
  world.SweepAfterDeaths();
  world.Check(script.StateBefore(victim));
  outcome.chains_failed_together = world.chains_failed_together();
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
        uint64_t recoverer_packets = options.kill_recoverer > 0 ? 0 : kNoPacketLimit;
        do {
          const Outcome outcome =
              PlayForked(&scene, options, script, victim, packets, recoverer_packets);
          died = outcome.died;
          recoverer_died = outcome.recoverer_died;
          result.locks_recovered += outcome.locks_recovered;
          result.verbs_late += outcome.verbs_late;
          result.lists_broken += outcome.chains_failed_together > 1 ? 1 : 0;
          ++result.worlds;
          if (died) ++result.kinds[kind];
          for (const std::string& problem : outcome.problems) {
            result.problems.push_back(absl::StrCat(
                kind, ": operation ", victim, " of the script", ended, packets, " packets",
                recoverer_packets == kNoPacketLimit
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
