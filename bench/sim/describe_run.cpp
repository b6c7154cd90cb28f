// What kind of run it is, in a line for people.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/sim/owner_faults.h"
#include "bench/sim/sim_run.h"

namespace pando {
namespace {

// Of the trees that have their own.
std::string Shapes(const SimRunOptions& o) {
  std::string shapes;
  for (const TreeOptions& tree : o.other_trees) {
    absl::StrAppend(&shapes, shapes.empty() ? " (" : ", ", tree.key_bytes_max, "/",
                    tree.value_bytes_max, " nodes of ", tree.node_bytes);
  }
  if (!shapes.empty()) shapes.push_back(')');
  return shapes;
}

std::string DescribeCruelty(const SimRunOptions& o) {
  return absl::StrCat(
      ", ", o.trees, " trees", Shapes(o), ", phases of ", o.phase, ", rest ",
      o.times.freed_rest_ns / kMicrosecondNs, " us, pauses up to ", o.pause_max_ns / kMicrosecondNs,
      " us, packets late by up to ", o.sim.long_delay_ns / kMicrosecondNs, " us (",
      o.sim.long_delay_probability, "), a look at the clock ", o.sim.turn_look_ns,
      " ns, stopped there up to ", o.sim.turn_stall_ns / kMicrosecondNs, " us, clocks off by ",
      o.sim.clock_drift_permille, "/1000, broken and dead by ",
      o.sim.break_late_ns / kMicrosecondNs, "/", o.sim.kill_late_ns / kMicrosecondNs,
      " us, open again in ", o.sim.reopen_ns / kMicrosecondNs, " us, sweeps ", o.sweeps,
      ", reopens ", o.reopens, " and after ", o.reopen_refused, " of the refusals", ", drops ",
      o.drops, o.bulk_loads ? " and bulk loads" : "", ", server deaths ", o.server_deaths,
      " (back ", o.server_restarts, " within ", o.server_restart_max_ns / kMicrosecondNs,
      " us, taken up within ", o.take_up_max_ns / kMicrosecondNs, " us)", ", and stopped ",
      o.server_pauses, " times up to ", o.server_pause_max_ns / kMicrosecondNs, " us",
      ", short deadlines ", o.short_deadlines, ", threads stopped ", o.thread_pauses,
      " times up to ", o.thread_pause_max_ns / kMicrosecondNs, " us", ", partitions ", o.partitions,
      " up to ", o.partition_max_ns / kMicrosecondNs, " us");
}

}  // namespace

std::string DescribeRun(const SimRunOptions& o) {
  const Techniques& t = o.client.techniques;
  std::string techniques;
  for (const auto& [name, on] :
       {std::pair{"command_combining", t.command_combining},
        std::pair{"on_chip_locks", t.on_chip_locks}, std::pair{"local_locks", t.local_locks},
        std::pair{"wait_queue", t.wait_queue}, std::pair{"handover", t.handover},
        std::pair{"operation_combining", t.operation_combining},
        std::pair{"lock_and_read", t.lock_and_read}, std::pair{"handover_image", t.handover_image},
        std::pair{"lock_back_off", t.lock_back_off},
        std::pair{"two_level_versions", t.two_level_versions},
        std::pair{"narrow_reads", t.narrow_reads}}) {
    if (!on) absl::StrAppend(&techniques, " -", name);
  }
  if (t.narrow_writes) absl::StrAppend(&techniques, " +narrow_writes");
  if (t.narrow_anywhere) absl::StrAppend(&techniques, " +narrow_anywhere");
  const std::string mode(DeliveryModeName(o.sim.mode));
  std::string owned;
  if (o.tree.mode == TreeOptions::Mode::kOwned) {
    owned = absl::StrCat("owned (", o.client.hot_bytes, " hot bytes, log of ", o.client.log_bytes,
                         ", flushed by ", o.client.flush_threads, ", links broken by ",
                         o.peer_break_probability, ", moves ", o.moves, ", stopped ", o.move_pauses,
                         ") ");
  }
  return absl::StrCat(
      mode, ", ", owned, "tree ", o.tree.key_bytes_max, "/", o.tree.value_bytes_max,
      o.tree.inline_value_bytes_max > 0
          ? absl::StrCat(" (", o.tree.inline_value_bytes_max, " in slots, places ",
                         o.client.value_places_bytes, ")")
          : std::string(),
      " nodes of ", o.tree.node_bytes, o.tree.narrow_reads ? " with windows" : "", " packets of ",
      o.sim.packet_bytes, ", ", o.memory_servers, " memory and ", o.compute_servers,
      " compute servers of ", o.threads, " x ", o.coroutines, ", ", o.operations, " operations on ",
      o.keys, " keys, growth ", o.grow, o.ascending_growth ? " ascending" : "", ", hot ",
      o.hot_share, ", scans ", o.scan, " (by cursor ", o.cursor, "), conditional ", o.conditional,
      ", turns in runs ", o.runs, " (by call ", o.many, ", stretches ", o.stretches,
      "), ranges erased ", o.erases, ", ", o.lock_words, " lock words",
      o.sim.write_unlock ? "" : ", unlock by CAS", ", cache ", o.client.index_cache_bytes,
      ", handover_max ", o.client.handover_max, ", combine_max ", o.client.combine_max,
      ", calls lost ", o.sim.call_request_loss, ", crashes ", o.crashes, ", pauses ", o.pauses,
      ", lease ", o.lease_ns / kMicrosecondNs, " us, broken by ", o.break_probability, techniques,
      DescribeCruelty(o), DescribeOwnerFaults(o));
}

}  // namespace pando
