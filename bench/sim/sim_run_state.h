// The inside of RunSim(), by job: sim_run.cpp (set-up, the loop), sim_clients.cpp (what clients
// do), sim_reopen.cpp (what is closed and opened again under load), sim_latest.cpp (by when what
// the dead had under way has happened), sim_faults.cpp (what is done to the run),
// sim_restarts.cpp (memory servers that come back), sim_owner_faults.cpp (what is done to owners
// alone), sim_waits.cpp (how long operations may wait),
// sim_aftermath.cpp (what must hold afterwards).
//
// Everything here happens outside coroutines, between two events, but for ClientLoop() and what it
// calls. Closing and opening blocks: meanwhile the world goes on, and so do the other clients.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "bench/history/checker.h"
#include "bench/history/history.h"
#include "bench/sim/ask_server.h"
#include "bench/sim/ending.h"
#include "bench/sim/occasions.h"
#include "bench/sim/sim_run.h"
#include "bench/sim/workload.h"
#include "common/base/random.h"
#include "common/fabric/sim/sim_world.h"
#include "common/wire/control.h"
#include "memory/memory_server.h"
#include "pando/losses.h"

namespace pando::sim_run {

// One life of a tree, from its creation to its drop: the next one of that name has a history of its
// own.
struct TreeLife {
  size_t slot = 0;
  CatalogEntry entry;
  bool dropped = false;       // a drop was begun at least
  bool load_pending = false;  // it is new, and somebody is to load it in bulk
  int64_t opened_ns = 0;      // when somebody first had it
  std::vector<history::Operation> operations;
  // Where in these there are ranges that were erased, and loads in bulk: others may end them.
  std::vector<std::pair<size_t, size_t>> shared_ends;  // the first, and behind the last; ascending
  history::Untold untold;
};

// A compute server's handle to the tree of a slot. Operations keep a copy while they run; the last
// one must not go in a coroutine.
struct TreeHandle {
  std::shared_ptr<Tree> tree;  // null: it is being closed and opened again
  TreeLife* life = nullptr;
};

struct SimSession {
  std::unique_ptr<Session> session;
  int running = 0;       // clients of the workload, and sweeps
  bool halting = false;  // its clients are to end
};

enum class Closing : uint8_t { kSession, kTree, kEverything };

// Something of a compute server that is being closed, to be opened again.
struct Reopening {
  Closing closing = Closing::kSession;
  size_t index = 0;        // of the session, or of the tree's slot
  TreeHandle handle;       // of kTree, until its last operation has ended
  bool is_closed = false;  // what is left is to open it
  int64_t not_before = 0;  // of the next attempt
  bool is_full = false;    // no memory server had room for the last one
};

// A compute server of the run.
struct ComputeServer {
  std::shared_ptr<Fabric> fabric;
  std::unique_ptr<Client> client;
  std::vector<TreeHandle> handles;  // by slot
  std::vector<std::unique_ptr<SimSession>> sessions;
  std::vector<int32_t> clients;  // of the history
  std::optional<Reopening> reopening;
  size_t refused_slot = SIZE_MAX;  // its tree is to be reopened
  size_t lost_slot = SIZE_MAX;     // its tree is lost with an ended life of a memory server
  bool gave_up = false;            // a client of the workload stopped: it was cut off
  absl::Status refusal;            // what it was told then
  bool closed = false;             // and has come back as another compute server
  bool cutter_died = false;        // it may never hear why it was cut off: who did so is dead
  bool stopped = false;            // at least once
  int at_work = 0;                 // clients that are not between two turns
  // By slot: when the last flush began that has brought all that was dirty here to leaves.
  std::map<size_t, int64_t> flushed_ns;

  int running() const;
  void Halt();
  void Close();
};

// As a member; {0, 0}: it is none.
AskedClient IdentityOf(const ComputeServer& server);

class SimRun {
 public:
  explicit SimRun(const SimRunOptions& options);
  SimRunResult Run();

 private:
  void Problem(std::string what) {
    if (result_.problems.size() < 10) result_.problems.push_back(std::move(what));
  }
  // Virtual time, but never the same twice: what happens one after the other is not concurrent in
  // the history.
  int64_t Stamp() { return last_stamp_ns_ = std::max(NowNs(), last_stamp_ns_ + 1); }
  int64_t NowNs() const { return world_.clock().NowNs(); }
  bool IsAlive(const ComputeServer& server) const {
    return !server.closed && !world_.IsKilled(*server.fabric);
  }
  // It lives, and nothing is being done to it.
  bool IsFree(const ComputeServer& server) const {
    return IsAlive(server) && !server.gave_up && !server.reopening.has_value();
  }
  // One of those that are; null: there is none.
  ComputeServer* Choose(Random* random);

  // --- sim_run.cpp
  absl::Status SetUp();
  absl::Status AddMemoryServer(ServerId id);
  absl::StatusOr<std::unique_ptr<memory::MemoryServer>> StartMemoryServer(ServerId id);
  absl::Status AddComputeServer();
  absl::Status TryAddComputeServer();
  // Whether the one that is being set up was cut off on the way.
  bool WasCutOff(ComputeServer& server, const absl::Status& why);
  void Drive();
  bool SomebodyWorks() const;
  // Nobody works, but who was cut off or is being opened again will.
  bool SomebodyComes() const;
  // There is no room for the tree of who would come, nor will there be: one that was closed in
  // doubt keeps its memory until its client ends (rule R6).
  bool IsFullForGood() const;
  bool Unfinished();
  // Compute servers that were fenced close, and come back under new incarnations.
  void Reconnect();
  bool FindsNoRoomYet(const absl::Status& joined);
  // As above; another one is tried later where this is true.
  bool JoinsLater(const absl::Status& joined, uint64_t lives_before);
  void CollectStats();

  // --- sim_clients.cpp
  void SpawnClients(ComputeServer& server);
  void SpawnClients(ComputeServer& server, SimSession& place);
  void ClientLoop(ComputeServer& server, const SimSession& place, Session& session, int32_t client);
  size_t ChooseSlot();
  Circumstances CircumstancesOf(const TreeLife& life, int64_t call_ns, bool dropped) const;
  // The operation's outcome goes into its place in the history; false: the client stops.
  bool Execute(ComputeServer& server, Session& session, const TreeHandle& handle,
               history::Operation* operation);
  // The same with a short deadline.
  bool ExecuteBy(ComputeServer& server, Session& session, const TreeHandle& handle,
                 history::Operation* operation);
  // What its end says about the operation and its client.
  // `waits`: so many that may take as long as one may were one after the other.
  Ending Settle(ComputeServer& server, Session& session, const TreeHandle& handle,
                const absl::Status& status, history::Operation* operation, int waits = 1);
  void Fail(const absl::Status& status, history::Operation* operation);
  // Several writes at once, each an operation of the history; false: the client stops.
  bool WriteInRuns(ComputeServer& server, Session& session, const TreeHandle& handle, size_t slot,
                   int32_t client);
  // A range of keys is erased, each key an operation of the history; false: the client stops.
  bool EraseRange(ComputeServer& server, Session& session, const TreeHandle& handle,
                  int32_t client);
  // All keys of a bulk load are one operation each, which begin and end together.
  bool BulkLoad(ComputeServer& server, Session& session, const TreeHandle& handle, int32_t client);
  void MaybeSweep();
  void SweepSomewhere();
  void SweepUnderLoad(ComputeServer& server, Session& session, const TreeHandle& handle);

  // --- sim_reopen.cpp
  const TreeOptions& ShapeOf(size_t slot) const {
    return slot == 0 || slot > options_.other_trees.size() ? options_.tree
                                                           : options_.other_trees[slot - 1];
  }
  absl::StatusOr<TreeHandle> OpenSlot(ComputeServer& server, size_t slot);
  TreeLife* LifeOf(size_t slot, const CatalogEntry& entry);
  void MaybeReopen();
  void MaybeDrop();
  void BeginTree(ComputeServer& server, size_t slot);
  bool TreesAreDropped() const { return options_.drops > 0 || result_.servers_restarted > 0; }
  void StepReopenings();
  void StepReopening(ComputeServer& server);
  void Reopen(ComputeServer& server);
  // Whether new clients and handles get in: not while a memory server is dead.
  bool CanConnect() const { return dead_servers_ == 0; }

  // --- sim_moves.cpp
  void MoveSomething(ComputeServer& server, Session& session, const TreeHandle& handle);
  void StopSoon(ComputeServer* server);

  // --- sim_faults.cpp
  void PlanCrashes();
  void MaybeCrash();
  // Like SIGSTOP and, a while later, SIGCONT.
  void MaybePause();
  void Pause(ComputeServer& server, int64_t pause_ns);
  void Stop(const std::shared_ptr<Fabric>& fabric, int64_t for_ns);
  void MaybeKillServer();
  void MaybePauseServer();
  void MaybePauseThread();
  void KillServer(size_t place);
  void MaybePartition();

  // --- sim_restarts.cpp
  void RestartLater(size_t place);
  void Restart(size_t place);
  void MaybeTakeUp();
  void TakeUp(ComputeServer& server, ServerId id);
  void TakeUpLater(ComputeServer& server, ServerId id);
  // Of trees that were lost, as whoever owns them is told to.
  void MaybeDropLost();
  // What has not come back by now comes now, or not at all.
  void EndRestarts();
  // From then on nothing can be explained by a death any more: all servers are there, and every
  // client has taken them up. kNeverNs: that is not so.
  int64_t SettledNs() const;
  // Changes when a memory server dies or comes back.
  uint64_t Lives() const { return result_.server_deaths + result_.servers_restarted; }
  // Trees can be looked at as a whole: nothing is missing of those that are not lost.
  bool IsWhole() const {
    return CanConnect() && (result_.owner_and_log_deaths == 0 || result_.server_deaths == 0);
  }

  // --- sim_owner_faults.cpp
  void MaybeCutPeers();
  void MaybeCutMember();
  ServerId ServerToCut(const ComputeServer& server, Random* random);
  void ReplaceLater(const ComputeServer& dead);
  void MaybeReplace();

  // --- sim_log_deaths.cpp
  void MaybeKillOwnerAndLog();
  void MaybeAcceptLoss();
  void AcceptSoon();
  bool IsAtRest() const;
  void CollectLost(const ComputeServer& server, const LossInfo& loss);
  // By one member after the other, until each key has been read.
  void ReadLost();
  struct LostKey {
    size_t slot = 0;
    TreeLife* life = nullptr;
    std::string key;
    int64_t since_ns = 0;  // when its owner's last flush began that ended well
  };
  // Whether that is known now.
  bool NoteLost(Session& session, const TreeHandle& handle, const LostKey& lost);
  static absl::StatusOr<std::string> GetOrScan(Session& session, const Tree& tree,
                                               const std::string& key);
  history::Operation& AddLost(const LostKey& lost, history::OperationKind kind);

  // --- sim_waits.cpp
  // Something is in the way of operations until then.
  void NoteTrouble(int64_t until_ns) { trouble_ns_ = std::max(trouble_ns_, until_ns); }
  // An operation that has ended did not wait for longer than anything may take.
  void CheckWait(const absl::Status& status, const history::Operation& operation, int waits);
  // It has met trouble, and what follows that may take longer yet.
  bool MayStillWait(const history::Operation& operation) const;
  int64_t LongestWaitNs() const;

  // --- sim_latest.cpp
  void NoteDying(ComputeServer* server);
  void LookAtDying();
  void SayLatest();

  // --- sim_aftermath.cpp
  // After crashes: a client that comes later cleans up what the dead have left, and checks every
  // node.
  void SweepAfterDeaths();
  // Where nobody can come later any more: all of the living flush and all but one leave, and that
  // one reads each key, for the history.
  void ReadAfterServerDeath();
  void ReadAll(ComputeServer& server, Session& session, const TreeHandle& handle);
  absl::Status SweepAndCheck();
  absl::Status SweepAndCheck(ComputeServer& server, const Tree& tree);
  void TearDown();
  void CloseServers(const ComputeServer* but = nullptr);
  void CheckGiversUp();
  void CheckAfterwards();
  void CheckLife(const TreeLife& life);

  // Kills a compute server a few events after so many operations have begun.
  struct Crash {
    size_t operations = 0;
    uint64_t event = 0;  // 0: not yet decided
  };

  const SimRunOptions& options_;
  sim::SimWorld world_;
  std::vector<std::unique_ptr<memory::MemoryServer>> memory_servers_;
  std::vector<bool> server_dead_;  // by place in memory_servers_
  size_t dead_servers_ = 0;
  std::vector<std::unique_ptr<memory::MemoryServer>> ended_lives_;
  // A client that has not taken up a server's new life yet.
  struct NotTakenUp {
    ComputeServer* server = nullptr;
    ServerId id = 0;
    int64_t at_ns = 0;
  };
  std::vector<NotTakenUp> not_taken_up_;
  bool is_taking_up_ = false;
  int64_t taken_up_ns_ = 0;  // last
  int restarts_due_ = 0;
  bool no_more_restarts_ = false;
  std::vector<std::unique_ptr<ComputeServer>> servers_;
  // Those that may not be closed yet, in the same order: the loop looks at them after each event,
  // and where leases are short thousands have come and gone.
  std::vector<ComputeServer*> open_;
  std::vector<std::unique_ptr<TreeLife>> lives_;
  SimWorkload workload_;
  int64_t last_stamp_ns_ = 0;
  int64_t trouble_ns_ = 0;  // until then something was in the way of operations (sim_waits.cpp)
  int64_t sweep_at_ns_ = kNeverNs;  // as somebody has died
  int32_t next_client_ = 0;
  size_t begun_ = 0;  // operations
  bool crc_ = false;

  // Each kind of unkindness has a stream of its own: with one of them, the others stay what they
  // were.
  Random crash_random_, pause_random_, walk_random_, run_random_, many_random_, stretch_random_;
  Random move_random_, erase_random_, deadline_random_, restart_random_;
  std::vector<Crash> crashes_;  // the next one last
  int pauses_left_ = 0;
  int connects_owed_ = 0;  // of those that were fenced, or found no room
  int64_t worked_ns_ = 0;  // when somebody did last
  int64_t connect_not_before_ns_ = 0;
  int64_t join_not_before_ns_ = 0;
  size_t next_pause_ = 0;
  Random tree_random_;
  Occasions sweeps_, reopens_, drops_, server_deaths_, server_pauses_, partitions_;
  Occasions thread_pauses_;
  Occasions peer_cuts_, member_cuts_;
  struct Replacement {
    int64_t at_ns = 0;
    AskedClient dead;
  };
  std::vector<Replacement> replacements_;
  Random replace_random_;
  Occasions log_deaths_;
  // An owner that dies with its log.
  struct Lost {
    ComputeServer* owner = nullptr;
    int64_t died_ns = 0;
    bool are_both_dead = false;
    uint64_t refused = 0;  // operations, by then
    int64_t accept_at_ns = kNeverNs;
    bool is_quiet = false;    // no client begins anything
    bool is_reading = false;  // it is accepted
    int attempts = 0;
    std::vector<LossInfo> losses;
    std::vector<LostKey> unread;
    std::vector<ComputeServer*> readers;  // who are still to try
  };
  std::optional<Lost> lost_;
  struct Dying {  // killed, and not all of that is known yet
    ComputeServer* server = nullptr;
    AskedClient who;
  };
  std::vector<Dying> dying_;
  int64_t look_at_dying_ns_ = 0;
  std::map<int32_t, int64_t> latest_ns_;  // by client: what it had under way has happened
  SimRunResult result_;
};

}  // namespace pando::sim_run
