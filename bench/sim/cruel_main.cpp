#include "bench/sim/cruel_main.h"

#include <gflags/gflags.h>

DEFINE_int64(divide_times, 1,
             "divides the rest of freed memory, the READ limit and all other time constants");
DEFINE_bool(cells_at_once, false, "a cell that was freed is used again at once (rule K2)");
DEFINE_int32(trees, 1, "trees of the same shape, used alike");
DEFINE_uint64(phase, 0,
              "operations of a phase: in one most are puts, in the next most are deletes; 0: none");
DEFINE_int64(pause_us, 20'000, "longest pause, virtual microseconds");
DEFINE_int64(break_late_us, 200,
             "how late packets of a broken queue pair may come, virtual microseconds");
DEFINE_int64(reopen_us, 500, "longest time until it is opened again, virtual microseconds");
DEFINE_int64(kill_late_us, 0, "how late packets of the dead may come, virtual microseconds");
DEFINE_int32(sweeps, 0, "times that one to three sessions sweep under load");
DEFINE_int32(reopens, 0, "times that a session, a tree or a client is closed and opened again");
DEFINE_bool(reopen_trees, true, "--reopens: also handles to trees whose sessions stay");
DEFINE_double(reopen_refused, 0,
              "share of refusals by a broken queue pair after which the tree is reopened");
DEFINE_int32(drops, 0, "times that a tree is dropped and created again");
DEFINE_bool(bulk_loads, false, "--drops: the new tree is loaded in bulk");
DEFINE_int32(server_deaths, 0, "memory servers that die on the way, but not the first");
DEFINE_double(server_restarts, 0,
              "--server_deaths: share of them that start again, empty, as another life");
DEFINE_int64(server_restart_us, 2'000, "how much later at most, virtual microseconds");
DEFINE_int64(take_up_us, 1'000,
             "within which clients take up a server that has started again, virtual microseconds");
DEFINE_int32(server_pauses, 0,
             "times that a memory server's process is stopped: calls wait, and are executed then");
DEFINE_int64(server_pause_us, 2'000, "for how long at most, virtual microseconds");
DEFINE_int32(partitions, 0,
             "times that a compute server does not reach a memory server (needs --lease_us)");
DEFINE_int64(partition_us, 2'000, "for how long at most, virtual microseconds");

namespace pando {

std::string ApplyCruelFlags(SimRunOptions* options) {
  for (const int64_t number :
       {FLAGS_pause_us, FLAGS_break_late_us, FLAGS_reopen_us, FLAGS_kill_late_us,
        FLAGS_partition_us, int64_t{FLAGS_sweeps}, int64_t{FLAGS_reopens}, int64_t{FLAGS_drops},
        int64_t{FLAGS_server_deaths}, FLAGS_server_pause_us, int64_t{FLAGS_server_pauses},
        FLAGS_server_restart_us, FLAGS_take_up_us, int64_t{FLAGS_partitions}}) {
    if (number < 0 || number > 1'000'000'000) return "a count or time is negative, or too large";
  }
  if (FLAGS_divide_times < 1 || FLAGS_divide_times > 10'000) {
    return "--divide_times must be 1 to 10000";
  }
  if (FLAGS_server_restarts < 0 || FLAGS_server_restarts > 1) {
    return "--server_restarts must be 0 to 1";
  }
  if (FLAGS_trees < 1 || FLAGS_trees > 100) return "--trees must be 1 to 100";
  if (FLAGS_partitions > 0 && options->lease_ns == 0) return "--partitions needs --lease_us";
  options->trees = FLAGS_trees;
  options->phase = FLAGS_phase;
  options->pause_max_ns = FLAGS_pause_us * kMicrosecondNs;
  options->sim.break_late_ns = FLAGS_break_late_us * kMicrosecondNs;
  options->sim.reopen_ns = FLAGS_reopen_us * kMicrosecondNs;
  options->sim.kill_late_ns = FLAGS_kill_late_us * kMicrosecondNs;
  options->sweeps = FLAGS_sweeps;
  options->reopens = FLAGS_reopens;
  options->reopen_trees = FLAGS_reopen_trees;
  options->reopen_refused = FLAGS_reopen_refused;
  options->drops = FLAGS_drops;
  options->bulk_loads = FLAGS_bulk_loads;
  options->server_deaths = FLAGS_server_deaths;
  options->server_restarts = FLAGS_server_restarts;
  options->server_restart_max_ns = FLAGS_server_restart_us * kMicrosecondNs;
  options->take_up_max_ns = FLAGS_take_up_us * kMicrosecondNs;
  options->server_pauses = FLAGS_server_pauses;
  options->server_pause_max_ns = FLAGS_server_pause_us * kMicrosecondNs;
  options->partitions = FLAGS_partitions;
  options->partition_max_ns = FLAGS_partition_us * kMicrosecondNs;
  if (FLAGS_divide_times > 1) DivideTimes(FLAGS_divide_times, options);
  if (FLAGS_cells_at_once) UseCellsAtOnce(options);
  return "";
}

}  // namespace pando
