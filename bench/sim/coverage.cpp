#include "bench/sim/coverage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pando {
namespace {

// What is done to runs under load.
constexpr std::pair<uint64_t SimRunResult::*, const char*> kRunCounters[] = {
    {&SimRunResult::walks, "cursor_walks"},
    {&SimRunResult::written_in_runs, "written_in_runs"},
    {&SimRunResult::written_by_call, "written_many_in_a_call"},
    {&SimRunResult::stretches, "stretches_written"},
    {&SimRunResult::ranges_erased, "ranges_erased"},
    {&SimRunResult::sweeps, "sweeps_under_load"},
    {&SimRunResult::sessions_reopened, "sessions_reopened"},
    {&SimRunResult::trees_reopened, "trees_reopened"},
    {&SimRunResult::clients_replaced, "clients_replaced"},
    {&SimRunResult::trees_dropped, "trees_dropped"},
    {&SimRunResult::bulk_loads, "bulk_loads"},
    {&SimRunResult::chunks_again, "chunks_used_again"},
    {&SimRunResult::server_deaths, "server_deaths"},
    {&SimRunResult::after_server_death, "after_a_server_death"},
    {&SimRunResult::servers_restarted, "memory_servers_back"},
    {&SimRunResult::servers_taken_up, "memory_servers_taken_up"},
    {&SimRunResult::died_while_taken_up, "dead_while_taken_up"},
    {&SimRunResult::lost_trees_dropped, "lost_trees_dropped"},
    {&SimRunResult::latest_known, "unknown_by_a_latest_time"},
    {&SimRunResult::read_after_server_death, "read_after_a_server_death"},
    {&SimRunResult::server_pauses, "memory_servers_stopped"},
    {&SimRunResult::thread_pauses, "threads_stopped"},
    {&SimRunResult::too_late, "deadlines_without_effect"},
    {&SimRunResult::perhaps_too_late, "deadlines_of_unknown_outcome"},
    {&SimRunResult::partitions, "partitions"},
    {&SimRunResult::splits, "ranges_divided"},
    {&SimRunResult::moves, "ranges_given"},
    {&SimRunResult::flushes, "flushed_on_request"},
    {&SimRunResult::upserts, "upserts"},
    {&SimRunResult::stopped_moves, "moves_stopped"},
    {&SimRunResult::peer_cuts, "peers_cut_off"},
    {&SimRunResult::peer_cuts_one_way, "of_them_in_one_direction"},
    {&SimRunResult::member_cuts, "members_cut_off"},
    {&SimRunResult::cut_off_from_logs, "members_cut_off_from_logs"},
    {&SimRunResult::cut_off_and_alive, "members_cut_off_and_back"},
    {&SimRunResult::dead_for_one, "members_dead_for_one_alone"},
    {&SimRunResult::owner_and_log_deaths, "owners_dead_with_logs"},
    {&SimRunResult::ranges_lost, "owners_ranges_lost"},
    {&SimRunResult::killed_replaced, "killed_replaced"},
    {&SimRunResult::replaced_before_recovered, "killed_replaced_unrecovered"},
};

}  // namespace

void AddStats(const ClientStats& from, ClientStats* to) {
  for (const auto member :
       {&FabricStats::reads, &FabricStats::writes, &FabricStats::cas, &FabricStats::faa,
        &FabricStats::chains, &FabricStats::round_trips, &FabricStats::bytes_read,
        &FabricStats::bytes_written, &FabricStats::calls}) {
    to->fabric.*member += from.fabric.*member;
  }
  for (const auto member : {&TreeStats::cache_hits,      &TreeStats::cache_misses,
                            &TreeStats::cache_evictions, &TreeStats::cache_bytes,
                            &TreeStats::splits,          &TreeStats::root_splits,
                            &TreeStats::merges,          &TreeStats::separator_repairs,
                            &TreeStats::torn_retries,    &TreeStats::stale_retries,
                            &TreeStats::moves_right,     &TreeStats::lock_attempts,
                            &TreeStats::lock_failures,   &TreeStats::handovers,
                            &TreeStats::combined,        &TreeStats::lost_races,
                            &TreeStats::root_shrinks,    &TreeStats::repairs,
                            &TreeStats::redone,          &TreeStats::lock_recoveries,
                            &TreeStats::nodes_reused,    &TreeStats::place_hits,
                            &TreeStats::place_misses}) {
    to->tree.*member += from.tree.*member;
  }
}

void Coverage::Add(const SimRunResult& result) {
  ++runs_;
  operations_ += result.operations;
  // A level with more than one node has been split.
  const std::vector<size_t>& nodes = result.nodes_per_level;
  const bool three = nodes.size() > 3 && nodes[0] > 1 && nodes[1] > 1 && nodes[2] > 1;
  three_levels_ += three ? 1 : 0;
  missing_separators_ += result.missing_separators;
  AddStats(result.stats, &stats_);
  reconnects_ += result.reconnects;
  swept_.freed += result.swept.freed;
  swept_.settled += result.swept.settled;
  sim_.events += result.sim.events;
  sim_.verbs += result.sim.verbs;
  sim_.overtakes += result.sim.overtakes;
  sim_.split_verbs += result.sim.split_verbs;
  sim_.long_delays += result.sim.long_delays;
  sim_.turn_ns += result.sim.turn_ns;
  sim_.turn_stalls += result.sim.turn_stalls;
  sim_.lost_requests += result.sim.lost_requests;
  sim_.lost_replies += result.sim.lost_replies;
  sim_.calls_too_late += result.sim.calls_too_late;
  sim_.verbs_after_kill += result.sim.verbs_after_kill;
  sim_.verbs_after_cut += result.sim.verbs_after_cut;
  sim_.queue_pairs_broken += result.sim.queue_pairs_broken;
  sim_.chains_broken += result.sim.chains_broken;
  sim_.verbs_after_break += result.sim.verbs_after_break;
  sim_.peer_hellos_lost += result.sim.peer_hellos_lost;
  sim_.peer_links_mute += result.sim.peer_links_mute;
  refused_ += result.refused;
  for (const auto& [member, name] : kRunCounters) done_.*member += result.*member;
  unknown_ += result.unknown;
  longest_wait_ns_ = std::max(longest_wait_ns_, result.longest_wait_ns);
}

std::vector<std::pair<std::string, uint64_t>> Coverage::Counters() const {
  const TreeStats& tree = stats_.tree;
  std::vector<std::pair<std::string, uint64_t>> counters = {
      {"runs", runs_},
      {"operations", operations_},
      {"splits", tree.splits},
      {"root_splits", tree.root_splits},
      {"splits_of_three_levels", three_levels_},
      {"separator_repairs", tree.separator_repairs},
      {"missing_separators_left", missing_separators_},
      {"torn_retries", tree.torn_retries},
      {"stale_retries", tree.stale_retries},
      {"moves_right", tree.moves_right},
      {"lock_failures", tree.lock_failures},
      {"handovers", tree.handovers},
      {"combined", tree.combined},
      {"lost_races", tree.lost_races},
      {"merges", tree.merges},
      {"root_shrinks", tree.root_shrinks},
      {"nodes_reused", tree.nodes_reused},
      {"repairs", tree.repairs},
      {"redone", tree.redone},
      {"swept_free", swept_.freed},
      {"swept_settled", swept_.settled},
      {"cache_evictions", tree.cache_evictions},
      {"values_at_known_places", tree.place_hits},
      {"values_at_others", tree.place_misses},
      {"verbs", sim_.verbs},
      {"verbs_delivered_in_pieces", sim_.split_verbs},
      {"verbs_overtaken", sim_.overtakes},
      {"packets_late", sim_.long_delays},
      {"us_inside_turns", sim_.turn_ns / kMicrosecondNs},
      {"turns_stopped", sim_.turn_stalls},
      {"calls_lost", sim_.lost_requests + sim_.lost_replies},
      {"calls_executed_too_late", sim_.calls_too_late},
      {"verbs_of_the_dead", sim_.verbs_after_kill},
      {"fenced_and_back", reconnects_},
      {"verbs_of_the_cut_off", sim_.verbs_after_cut},
      {"queue_pairs_broken", sim_.queue_pairs_broken},
      {"chains_broken", sim_.chains_broken},
      {"verbs_of_broken_chains", sim_.verbs_after_break},
      {"peer_links_cut_in_one_way", sim_.peer_links_mute},
      {"peers_connected_in_vain", sim_.peer_hellos_lost},
      {"refused_while_reconnecting", refused_},
      {"locks_recovered", tree.lock_recoveries},
      {"outcomes_unknown", unknown_},
      {"events", sim_.events},
      {"longest_wait_us_for_nothing", static_cast<uint64_t>(longest_wait_ns_ / kMicrosecondNs)},
  };
  for (const auto& [member, name] : kRunCounters) counters.emplace_back(name, done_.*member);
  return counters;
}

std::string Coverage::Describe() const {
  std::string text;
  for (const auto& [name, total] : Counters())
    absl::StrAppendFormat(&text, "%-28s%12d\n", name, total);
  return text;
}

}  // namespace pando
