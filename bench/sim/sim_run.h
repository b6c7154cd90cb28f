// One run of the production client on the simulated fabric: a seeded workload, its history, and
// what must hold afterwards.
//
// A run is a function of its options: same options, same trace hash. It fails when the history is
// not linearizable, an invariant of the tree is broken (tree_check.h), a lock is left behind, an
// operation ends in an error that nothing explains, or it does not end at all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/history/history.h"
#include "bench/sim/owner_faults.h"
#include "common/base/time_constants.h"
#include "common/fabric/sim/sim_options.h"
#include "pando/client.h"
#include "pando/options.h"
#include "pando/stats.h"

namespace pando {

struct SimRunOptions {
  sim::SimOptions sim;  // seed, delivery mode, network
  int memory_servers = 2;
  int compute_servers = 2;
  int threads = 4;     // sessions of a compute server
  int coroutines = 2;  // of a session, each one client of the history
  uint64_t operations = 2000;

  // Keys that operations choose from. With `grow` > 0 that share of the inserts brings a new key.
  uint64_t keys = 64;
  double grow = 0;
  bool ascending_growth = false;
  // The run begins with a put of each of the first `load` keys, besides `operations`.
  uint64_t load = 0;
  // This share of the operations goes to the first `hot_keys` keys.
  double hot_share = 0;
  uint64_t hot_keys = 4;
  // Shares of the operations; they need not sum to 1.
  double get = 0.4, put = 0.2, update = 0.1, insert = 0.15, remove = 0.15, scan = 0;
  // This share of the writes is conditional: replace, erase if, upsert.
  double conditional = 0;
  // Operations of a phase: in one most are puts, in the next most are deletes of one key after the
  // other, so that the tree grows and shrinks as a whole; 0: no phases.
  uint64_t phase = 0;
  uint64_t scan_limit_max = 20;
  // This share of the scans are walks with a cursor: upwards, downwards, and back again.
  double cursor = 0;
  // This share of a client's turns write 2 to 40 keys in runs of their leaves (rule U6).
  double runs = 0;
  // And this share of those turns by a call of Session::WriteMany().
  double many = 0;
  // And this share of those turns writes up to 400 keys that follow each other by one such call.
  double stretches = 0;
  // This share of a client's turns erases a range of keys.
  double erases = 0;

  // So many trees, used alike, each with a history of its own.
  int trees = 1;
  TreeOptions tree;
  // Of the second, the third, ...: keys and values are those of `tree`, for which there has to be
  // room. Those that have none here are as `tree`.
  std::vector<TreeOptions> other_trees;
  // Keys start with so many equal bytes: separators are long then, and trees deep.
  uint32_t key_prefix_bytes = 0;
  ClientOptions client;            // fabric and registry are not used
  uint64_t main_bytes = 64 << 20;  // below kLittleBytes operations may find a server full
  static constexpr uint64_t kLittleBytes = 4 << 20;
  uint64_t lock_words = 4096;  // of each server; few make nodes share words
  uint32_t chunk_bytes = 64 << 10;

  int crashes = 0;  // compute servers killed on the way
  int pauses = 0;  // times that a compute server is stopped, and goes on up to `pause_max_ns` later
  int64_t pause_max_ns = 20 * kMillisecondNs;
  // A client silent for so long is fenced, and comes back as another (rules C1, C2); 0: none is.
  int64_t lease_ns = 0;
  // Of clients that serve keys of owned trees, where there are leases; 0: half of those.
  int64_t serving_lease_ns = 0;
  // Each chain breaks its queue pair with this probability (rule L5); 0: none does. Where there are
  // no local locks there has to be a lease: nobody else frees the locks then.
  double break_probability = 0;
  // Sweeps under load, each by a session that has operations under way; some at once. Besides one
  // after each crash. Where there are pauses, others are stopped while they sweep.
  int sweeps = 0;
  // Times that a session, a tree's handle or a whole client is closed and opened again under load.
  int reopens = 0;
  // Which of them: a handle to a tree whose client and sessions stay.
  bool reopen_trees = true;
  // And besides, after this share of the refusals by a broken queue pair: the handle to the tree,
  // while packets of it may still come.
  double reopen_refused = 0;
  // Times that a tree is dropped and created again while others use it; `bulk_loads`: the new one
  // is loaded in bulk under load.
  int drops = 0;
  bool bulk_loads = false;
  // Memory servers that die on the way, never the catalog's. What was on them is Unavailable from
  // then on; the rest goes on, but nobody connects while one is dead.
  int server_deaths = 0;
  // This share of them starts again up to `server_restart_max_ns` later: empty, as another life,
  // which each client takes up within `take_up_max_ns`. Trees that had nodes there are lost then,
  // and are dropped and created again. Some of the new lives die while they are taken up.
  double server_restarts = 0;
  int64_t server_restart_max_ns = 0;
  int64_t take_up_max_ns = 0;
  // Times that a memory server's process is stopped, and goes on up to `server_pause_max_ns` later;
  // half of them last two milliseconds at most.
  int server_pauses = 0;
  int64_t server_pause_max_ns = 0;
  // This share of the operations of one key has a deadline of U(0, 20 chains).
  double short_deadlines = 0;
  // Times that one session's thread is stopped for up to `thread_pause_max_ns` while its process
  // goes on: its heartbeat, its service, its other sessions.
  int thread_pauses = 0;
  int64_t thread_pause_max_ns = 0;
  // Times that a compute server and a memory server do not reach each other for a while (there
  // have to be leases).
  int partitions = 0;
  int64_t partition_max_ns = 0;
  // Each message between compute servers breaks its link with this probability (owned trees).
  double peer_break_probability = 0;
  // Before that share of the operations a range is divided, or goes to somebody else (owned trees).
  double moves = 0;
  // Instead of that share of the operations all that is dirty is flushed (owned trees).
  double flushes = 0;
  // This share of the moves is stopped on its way, for up to `pause_max_ns`: its giver, or the
  // taker.
  double move_pauses = 0;
  OwnerFaults owner_faults;
  // Of servers and clients.
  TimeConstants times;
  // Lock words of the dead that a memory server frees in one step; 0: all.
  uint32_t fence_words_per_step = 0;
  uint64_t events_max = 0;  // 0: derived from `operations`
  std::string history_path;
};

// A run in which everything else is derived from the seed, too: mode, network, servers, shape of
// the tree, keys, techniques (`pando-sim --preset=mixed --seed=N`).
struct MixOptions {
  // This share of the seeds is cruel: constants divided, and whatever can be done under load is.
  double cruel_share = 0.3;
  // The trees are owned ones.
  bool owned = false;
  // And they are dropped while ranges move, and givers and takers are stopped in the middle of
  // moves.
  bool cruel_moves = false;
  // Memory servers are stopped in some of the runs.
  bool server_pauses = true;
  // In some, packets come milliseconds late.
  bool late_packets = true;
  // In some with several trees these have shapes of their own.
  bool shapes = true;
  // In some, time passes inside turns of sessions.
  bool turns = true;
  // In some, the clocks of two processes may differ by nine per cent.
  bool clocks = true;
  // Of owned trees: in half of those in which nobody else can end an owner dies with its log.
  bool log_deaths = true;
  // In some, a few operations have deadlines of about their duration.
  bool deadlines = true;
  // In some, single threads are stopped while their process goes on.
  bool threads = true;
  // Memory servers that have died start again, in some.
  bool restarts = true;
};
SimRunOptions MixedRun(uint64_t seed, const MixOptions& mix = {});

// Divides the time constants of the run, and with them what the network takes to notice a death.
// What has to outlast a call, or a queue pair's way back, still does.
void DivideTimes(int64_t divisor, SimRunOptions* options);
// Cells that were freed are told to their server, and handed out again, as soon as may be.
void UseCellsAtOnce(SimRunOptions* options);

// One line for people: what kind of run this is.
std::string DescribeRun(const SimRunOptions& options);

struct SimRunResult {
  std::vector<std::string> problems;  // empty: ok
  uint64_t trace_hash = 0;
  int64_t virtual_ns = 0;
  uint64_t operations = 0, unknown = 0, deadlines = 0, reconnects = 0;
  uint64_t refused = 0;  // operations without effect, as their queue pair had broken
  uint64_t sweeps = 0, sessions_reopened = 0, trees_reopened = 0, clients_replaced = 0;
  uint64_t trees_dropped = 0, bulk_loads = 0, server_deaths = 0, partitions = 0;
  uint64_t server_pauses = 0, thread_pauses = 0;
  // Of memory servers that had died; by clients; that died again before all had taken them up; of
  // trees that were lost with them.
  uint64_t servers_restarted = 0, servers_taken_up = 0, died_while_taken_up = 0;
  uint64_t lost_trees_dropped = 0;
  // Of operations with short deadlines: without effect, and of unknown outcome.
  uint64_t too_late = 0, perhaps_too_late = 0;
  uint64_t splits = 0, moves = 0;        // of ranges
  uint64_t flushes = 0;                  // asked for, and done
  uint64_t upserts = 0;                  // begun, each by itself
  uint64_t stopped_moves = 0;            // or what they were asked for with
  uint64_t walks = 0;                    // with a cursor, to their end
  uint64_t written_in_runs = 0;          // operations
  uint64_t written_by_call = 0;          // of them by Session::WriteMany()
  uint64_t stretches = 0;                // to their end
  uint64_t ranges_erased = 0;            // to their end
  uint64_t after_server_death = 0;       // operations that succeeded all the same
  uint64_t latest_known = 0;             // operations of unknown outcome that have a latest time
  uint64_t read_after_server_death = 0;  // keys, by the last client, once the others have left
  int64_t longest_wait_ns = 0;           // of an operation on owned trees, with nothing in its way
  uint64_t chunks_again = 0;  // that memory servers gave to a tree after they had been another's
  // Of OwnerFaults.
  uint64_t peer_cuts = 0, peer_cuts_one_way = 0;
  // Those that had lost the server of their log; that the server had not given up when
  // they reached it again; that it had, and no other one.
  uint64_t member_cuts = 0, cut_off_from_logs = 0, cut_off_and_alive = 0, dead_for_one = 0;
  // And those that came while the dead one still had its log.
  uint64_t killed_replaced = 0, replaced_before_recovered = 0;
  uint64_t owner_and_log_deaths = 0, ranges_lost = 0;
  std::vector<size_t> nodes_per_level;
  size_t missing_separators = 0;
  SweepResult swept;  // after crashes
  ClientStats stats;  // of all clients
  sim::SimStats sim;

  bool ok() const { return problems.empty(); }
};

SimRunResult RunSim(const SimRunOptions& options);

}  // namespace pando
