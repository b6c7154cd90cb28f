// A world of exhaustive crashes: memory servers, clients that act, are killed or have their queue
// pairs broken between two packets; the history, and what must hold at the end. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/history/checker.h"
#include "bench/history/history.h"
#include "bench/sim/exhaustive_crashes.h"
#include "common/fabric/sim/sim_world.h"
#include "compute/client/connect.h"
#include "compute/core/node_allocator.h"
#include "memory/memory_server.h"
#include "pando/client.h"

namespace pando {

inline constexpr uint64_t kNoPacketLimit = UINT64_MAX;

// A compute server with one session.
struct ExhaustiveActor {
  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<Client> client;
  std::unique_ptr<Tree> tree;
  std::unique_ptr<Session> session;
  std::vector<SpareNode> kept;  // that splits are not to find
  bool dead = false;
  bool spent = false;  // it ran out of packets
};

// One world: memory servers, actors, and the history since the victim began.
class ExhaustiveWorld {
 public:
  using Actor = ExhaustiveActor;

  explicit ExhaustiveWorld(const ExhaustiveOptions& options);
  ~ExhaustiveWorld();

  Actor* Join(uint64_t seed);
  // Runs the operations one after the other in a task, repairs included. False: the actor ran out
  // of packets: it was killed, or its queue pairs broke.
  bool Act(Actor* actor, std::vector<history::Operation> operations, bool record);
  // A few spare nodes of every server, so that splits take nodes of several.
  void GetSpares(Actor* actor);
  // The same for several at once. Who is named several times does so much side by side, each in a
  // coroutine.
  void ActTogether(const std::vector<std::pair<Actor*, std::vector<history::Operation>>>& work);
  // The same beside one who writes in runs.
  void WriteInRuns(Actor* writer, std::vector<history::Operation> writes,
                   const std::vector<std::pair<Actor*, std::vector<history::Operation>>>& beside);
  // The same beside one who erases the range of these keys.
  void EraseRange(Actor* eraser, std::vector<history::Operation> erases,
                  const std::vector<std::pair<Actor*, std::vector<history::Operation>>>& beside);
  void Limit(Actor* actor, uint64_t packets) { world_.LimitPackets(*actor->fabric, packets); }
  // How what breaks from now on does.
  void SeedBreaks(uint64_t seed) { world_.SeedBreaks(seed); }
  void Leave(Actor* actor);
  void Quiet();
  // A client that comes after all others have left sweeps, and accounts for every node.
  void SweepAfterDeaths();
  void Check(const history::State& initial);
  std::vector<std::string> TakeProblems() { return std::move(problems_); }
  const sim::SimStats& sim_stats() const { return world_.stats(); }
  // The most chains that one break of an actor's queue pairs has failed.
  uint64_t chains_failed_together() const { return chains_failed_together_; }
  ClientStats StatsOf(const Actor* actor) const { return actor->client->Stats(); }

 private:
  void Problem(std::string what) {
    if (problems_.size() < 5) problems_.push_back(std::move(what));
  }
  int64_t Stamp() { return last_stamp_ns_ = std::max(world_.clock().NowNs(), last_stamp_ns_ + 1); }
  void Start(Actor* actor, std::vector<history::Operation> operations, bool record);
  // Of an operation in its place in the history; false: its actor does nothing more.
  bool End(Actor* actor, history::Operation* operation, const absl::Status& status);
  void StartRuns(Actor* actor, std::vector<history::Operation> operations);
  void StartErase(Actor* actor, std::vector<history::Operation> erases);
  // Others start, and all come to their end.
  void RunBeside(Actor* actor,
                 const std::vector<std::pair<Actor*, std::vector<history::Operation>>>& beside);
  // Kills, or breaks, who ran out of packets.
  bool AnybodyWorks(const std::vector<Actor*>& actors);
  void RunUntilIdle(const std::vector<Actor*>& actors);
  void Kill(Actor* actor);
  void Break(Actor* actor);

  const ExhaustiveOptions& options_;
  sim::SimWorld world_;
  std::vector<std::unique_ptr<memory::MemoryServer>> servers_;
  std::vector<std::unique_ptr<Actor>> actors_;
  std::vector<history::Operation> history_;
  std::vector<std::string> problems_;
  CatalogEntry entry_;
  bool crc_ = false;
  int64_t last_stamp_ns_ = 0;
  uint64_t chains_failed_together_ = 0;
};

}  // namespace pando
