// Compute servers with owned trees on a simulated cluster, for runs where they die, break and stop:
// a history of every tree, and what must hold at the end.
//
// Not thread-safe. What the last look wants: each history is linearizable, the leaves hold what was
// read last, check is content, every lock is free, and of those that have ended there is nothing
// left: no extent, no entry of the cluster tree, no range with an owner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/cost/sim_cluster.h"
#include "bench/history/history.h"
#include "bench/sim/ending.h"
#include "common/base/random.h"
#include "common/base/time_constants.h"
#include "compute/core/session_context.h"
#include "pando/client.h"

namespace pando {

inline constexpr uint64_t kNoPacketLimit = UINT64_MAX;

struct OwnedStageOptions {
  SimCluster::Options cluster = {
      .memory_servers = 2, .main_bytes = 4 << 20, .lock_words = 1024, .chunk_bytes = 64 << 10};
  // Few records a leaf.
  TreeOptions tree = {.key_bytes_max = 24,
                      .value_bytes_max = 64,
                      .node_bytes = 1024,
                      .mode = TreeOptions::Mode::kOwned};
  size_t trees = 1;
  int64_t read_lease_ns = TimeConstants().read_lease_ns;
  Circumstances circumstances = {};
};

// A compute server. May be killed; then its handles are closed from outside.
struct OwnedActor {
  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<Client> client;
  std::vector<std::unique_ptr<Tree>> trees;  // as of the stage; nullptr: not open
  std::vector<std::unique_ptr<Session>> sessions;
  bool dead = false;
  bool closed = false;
  bool spent = false;    // it ran out of packets
  bool cut_off = false;  // it was told so
};

class OwnedStage {
 public:
  explicit OwnedStage(const OwnedStageOptions& options);
  ~OwnedStage();

  sim::SimWorld& world() { return cluster_.world(); }
  SimCluster& cluster() { return cluster_; }
  Random& random() { return random_; }
  int64_t NowNs() { return world().clock().NowNs(); }

  // Connected, with sessions, and no tree.
  OwnedActor* Join(const ClientOptions& options, size_t sessions = 1);
  // Small enough that records, dirty ones and the log have no room all the time.
  static ClientOptions SmallOwner();
  static std::string TreeName(size_t tree) { return "tree" + std::to_string(tree); }
  // False: it died meanwhile.
  bool Open(OwnedActor* actor, size_t tree);
  void Kill(OwnedActor* actor);
  // It dies once it has sent so many more packets, between two of them.
  void KillAfter(OwnedActor* actor, uint64_t packets);
  // Its queue pairs to all memory servers break there instead; `late`: what was held back may leave
  // it all the same, and come late.
  void BreakAfter(OwnedActor* actor, uint64_t packets, bool late);
  // Stopped for so long, from that time on.
  void Pause(OwnedActor* actor, int64_t at_ns, int64_t for_ns);
  // Closes its handles. In order, unless it is dead.
  void Leave(OwnedActor* actor);
  void Quiet(int64_t for_ns) { world().RunUntil(NowNs() + for_ns); }

  // One operation, inside a task of the session or outside, with its place in the history. False:
  // the actor does nothing more.
  bool Do(OwnedActor* actor, size_t session, size_t tree, history::Operation operation);
  // Erases the range of these keys, ascending, each an operation of the history. As Do().
  bool EraseRange(OwnedActor* actor, size_t session, size_t tree,
                  const std::vector<std::string>& keys);
  // A task that begins at once, whatever drives the world.
  void Spawn(OwnedActor* actor, size_t session, std::function<void()> task);
  bool BulkLoad(OwnedActor* actor, size_t tree, const std::vector<KeyValue>& entries);
  bool Flush(OwnedActor* actor, size_t tree);
  // Rules O10, O11, O14. Inside a task of the session or outside. An error: it has not come to
  // that, or not yet.
  absl::Status Split(OwnedActor* actor, size_t session, size_t tree, const std::string& border);
  absl::Status Give(OwnedActor* actor, size_t session, size_t tree, const std::string& key,
                    OwnedActor* to);
  // A range that it owns, chosen by chance, is divided, or goes to somebody who lives.
  void MoveAny(OwnedActor* actor, size_t session, size_t tree, const std::string& border);
  // Outside tasks.
  absl::Status Retire(OwnedActor* actor, int64_t timeout_ms);
  static history::Operation Make(history::OperationKind kind, std::string key,
                                 std::string value = "");
  // Stored once in a world.
  std::string NewValue() { return "v" + std::to_string(++values_); }
  // What its leaves have. Nobody writes to them.
  history::State ReadLeaves(size_t tree) { return ReadLeaves(entries_[tree], TreeName(tree)); }
  // The value that a tree's key was last known to have: what replaces may ask for.
  const std::vector<history::Operation>& history(size_t tree) const { return histories_[tree]; }

  // Of a tree that is dropped nothing is looked at but that nothing is left of it.
  void NoteDropped(size_t tree) { dropped_[tree] = true; }
  bool IsDropped(size_t tree) const { return dropped_[tree]; }

  // All leave; another one reads, writes and looks at everything.
  void LookAtTheEnd();
  void Problem(std::string what) {
    if (problems_.size() < 5) problems_.push_back(std::move(what));
  }
  const std::vector<std::string>& problems() const { return problems_; }
  std::string what() const { return problems_.empty() ? "" : problems_[0]; }
  uint64_t concluded() const { return concluded_; }
  uint64_t unknown() const { return unknown_; }
  uint64_t refused() const { return refused_; }
  uint64_t adopted() const { return adopted_; }
  uint64_t moves() const { return moves_; }

 private:
  int64_t Stamp() { return last_stamp_ns_ = std::max(NowNs(), last_stamp_ns_ + 1); }
  enum class Spent { kKill, kBreak, kBreakLate };
  void Watch(OwnedActor* actor, Spent ending);
  absl::Status InTask(OwnedActor* actor, size_t session,
                      const std::function<absl::Status(OperationContext&)>& job);
  // What the end of an operation on a tree that is not dropped says; counts it.
  Ending Conclude(const absl::Status& status, history::Operation* operation);
  void Break(OwnedActor* actor, bool late);
  void CheckTree(size_t tree);
  void CheckClusterTree();
  history::State ReadLeaves(const CatalogEntry& entry, std::string_view name);

  const OwnedStageOptions options_;
  SimCluster cluster_;
  Random random_;
  std::vector<std::unique_ptr<OwnedActor>> actors_;
  std::vector<std::vector<history::Operation>> histories_;
  std::vector<bool> dropped_;
  std::vector<CatalogEntry> entries_;
  CatalogEntry cluster_entry_;
  std::vector<std::string> problems_;
  int64_t last_stamp_ns_ = 0;
  uint64_t values_ = 0, seeds_ = 0, concluded_ = 0, unknown_ = 0, refused_ = 0, adopted_ = 0;
  uint64_t moves_ = 0;
};

}  // namespace pando
