// pando-sim: a seeded workload of the production client on the simulated fabric.
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/sim/coverage.h"
#include "bench/sim/cruel_main.h"
#include "bench/sim/exhaustive_crashes.h"
#include "bench/sim/rule_list.h"
#include "bench/sim/scenario.h"
#include "bench/sim/sim_run.h"
#include "common/base/rule.h"
#include "common/program/command_line.h"

DEFINE_int64(lease_us, 0,
             "who is not heard of for so many virtual microseconds is fenced, and comes back as "
             "another compute server; 0: nobody");
DEFINE_int64(serving_lease_us, 0,
             "where there are leases: an owner may serve keys of an owned tree for so long "
             "(virtual) without a word of the catalog's server; 0: half a lease");
DEFINE_double(break_probability, 0, "share of the chains that break their queue pair");
DEFINE_int32(pauses, 0, "times that a compute server is stopped, and goes on up to 20 ms later");
DEFINE_bool(exhaustive_crashes, false,
            "kills a client between every two packets of every kind of operation, instead of a "
            "random workload");
DEFINE_bool(exhaustive_breaks, false,
            "the same, but the client lives: its queue pairs break, exactly there, with packets "
            "that come late, and after what was executed has been heard of");
DEFINE_bool(side_by_side, false,
            "with these two: that client has several operations under way in one session, whose "
            "chains are told to a NIC in one list");
DEFINE_uint64(run_length, 0,
              "with these two: that client writes so many keys in runs of their leaves; 0: single "
              "operations");
DEFINE_uint64(erase_length, 0,
              "with these two: that client erases a range of so many keys; 0: single operations");
DEFINE_uint64(
    kill_recoverer, 0,
    "with --exhaustive_crashes: also kills who comes next, after 0 up to so many packets");
DEFINE_uint64(seed, 1, "everything random follows from it: same seed, same run");
DEFINE_string(seeds, "", "FIRST:COUNT: runs a range of seeds instead of one");
DEFINE_string(
    preset, "",
    "\"mixed\": derives all other settings from the seed; \"cruel\": and each run is as "
    "unkind as can be, with all time constants divided; \"owned\": as mixed, on owned "
    "trees; \"owned_cruel\": and they are dropped, and movers stopped, while ranges move");
DEFINE_string(without, "",
              "with --preset: kinds of unkindness that no run has, of server_pauses, late_packets, "
              "shapes, turns, clocks, log_deaths, threads, deadlines, restarts");
DEFINE_string(scenario, "",
              "plays that instead of a workload: recycled_leaf, slow_read, ... (see README.md)");
DEFINE_int32(memory_servers, 2, "memory servers");
DEFINE_int32(compute_servers, 2, "compute servers");
DEFINE_int32(threads, 4, "sessions of a compute server");
DEFINE_int32(coroutines, 2, "coroutines of a session; each is a client of the history");
DEFINE_uint64(operations, 2000, "operations in all");
DEFINE_uint64(keys, 64, "different keys");
DEFINE_double(grow, 0, "share of the inserts that bring a new key");
DEFINE_bool(ascending, false, "new keys come in ascending order");
DEFINE_double(hot_share, 0, "share of the operations that go to --hot_keys keys");
DEFINE_uint64(hot_keys, 4, "how many keys are hot");
DEFINE_uint64(load, 0, "keys put before the operations; all of them if no share brings any");
DEFINE_double(read, 0.4, "share of gets; once one share is given, those not given are 0");
DEFINE_double(put, 0.2, "share of puts");
DEFINE_double(update, 0.1, "share of updates");
DEFINE_double(insert, 0.15, "share of inserts");
DEFINE_double(delete, 0.15, "share of deletes");
DEFINE_double(scan, 0, "share of scans");
DEFINE_double(conditional, 0, "share of the writes that are replace, erase if and upsert");
DEFINE_double(runs, 0, "share of a client's turns that write 2 to 40 keys in runs of their leaves");
DEFINE_double(many, 0, "share of these turns that are a call of Session::WriteMany()");
DEFINE_double(stretches, 0,
              "share of these turns that write up to 400 keys in a row by such a call");
DEFINE_double(erases, 0, "share of a client's turns that erase a range of keys");
DEFINE_uint64(scan_limit, 20, "longest scan, entries");
DEFINE_double(cursor, 0, "share of the scans that are walks with a cursor, also downwards");
DEFINE_int32(crashes, 0, "compute servers killed on the way");
DEFINE_string(mode, "lines", "how bytes are delivered: lines, words, shm, whole; mixed: by seed");
DEFINE_string(tree, "8/8", "largest key / largest value, bytes");
DEFINE_uint32(node_bytes, 0, "size of a node, bytes; 0: derived from --tree");
DEFINE_bool(narrow_reads, false, "gets READ the few lines where their key can be (rules N)");
DEFINE_bool(narrow_anywhere, false,
            "with --narrow_reads: of a window always the near groups first");
DEFINE_uint32(inline_value_bytes, 0, "longer values lie in cells (rules K); 0: those above 255");
DEFINE_uint64(value_places_bytes, 1 << 16, "what a client remembers of where they are (rule K5)");
DEFINE_bool(narrow_writes, false, "with --narrow_reads: and so do writes (rule N8)");
DEFINE_uint32(key_prefix, 0, "bytes that all keys have in common (long separators, deep trees)");
DEFINE_string(techniques, "everything", "everything, sherman or fgplus");
DEFINE_uint32(packet_bytes, 4096, "largest WRITE that is whole or absent when its sender dies");
DEFINE_bool(cheap_messages, true,
            "between compute servers, of owned trees: few requests do not wait for each other's");
DEFINE_bool(write_unlock, true, "a lock is released by a WRITE; else by CAS");
DEFINE_double(stall_probability, 0.03, "share of READs and WRITEs that stop in the middle");
DEFINE_int64(stall_us, 12, "for how long at most, virtual microseconds");
DEFINE_double(call_loss, 0, "share of control requests lost, and of replies");
DEFINE_uint64(lock_words, 4096, "lock words of a memory server; few make nodes share them");
DEFINE_uint64(cache_bytes, 64 << 20, "index cache of a compute server, bytes");
DEFINE_int32(handover_max, 32, "handovers of a lock in a row");
DEFINE_int32(combine_max, 64, "operations in one write-back");
DEFINE_int64(timeout_ms, 10'000, "deadline of an operation, virtual milliseconds");
DEFINE_string(history, "", "writes the history to this file (JSON lines)");
DEFINE_bool(trace_hash, true, "prints the hash of the event trace");
DEFINE_bool(stats, false, "prints what happened");
DEFINE_bool(list_rules, false,
            "prints the protocol's rules: rule, variant, what the variant switches off, and the "
            "command that shows what goes wrong then");
#ifdef PANDO_BROKEN_VARIANTS
DEFINE_string(break, "",
              "switches one rule of the protocol off, by its name: see common/base/rule.h");
#endif

namespace pando {
namespace {

constexpr int kExitOk = 0, kExitBroke = 1;
// What the client says of options that it does not take.
constexpr std::string_view kNotTaken = "set-up: INVALID_ARGUMENT: ";

const ProgramInfo kProgram = {
    .name = "pando-sim",
    .summary =
        "pando-sim --seed=7\npando-sim --preset=mixed --seeds=1:1000\n\n"
        "Runs a seeded workload of clients and memory servers on the simulated fabric, and checks "
        "history and tree.\nThe same seed is the same run. The first form prints the run's trace "
        "hash and \"ok\", or what broke;\nthe second makes many runs, everything derived from each "
        "seed, and prints a summary.\n\n"
        "Exit codes: 0 ok, 1 something broke, 2 wrong command line.",
    .source = __FILE__,
    .shared_source = "",
    .logs_info = false};

[[noreturn]] void BadFlag(const std::string& why) { ExitWithUsageError(kProgram, why); }

void ParseTree(SimRunOptions* options) {
  const std::vector<std::string> parts = absl::StrSplit(FLAGS_tree, '/');
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &options->tree.key_bytes_max) ||
      !absl::SimpleAtoi(parts[1], &options->tree.value_bytes_max)) {
    BadFlag("--tree=" + FLAGS_tree + ": must be KEY_BYTES/VALUE_BYTES");
  }
  if (options->tree.key_bytes_max > 255 || options->tree.value_bytes_max > 65'536)
    BadFlag("--tree=" + FLAGS_tree + ": at most 255/65536");
  if (options->tree.value_bytes_max < 4)
    BadFlag("--tree: values of at least 4 bytes are needed to be unique");
  if (FLAGS_key_prefix >= options->tree.key_bytes_max)
    BadFlag("--key_prefix leaves no room in the keys");
  options->tree.node_bytes = FLAGS_node_bytes;
  options->tree.narrow_reads = FLAGS_narrow_reads;
  options->tree.inline_value_bytes_max = FLAGS_inline_value_bytes;
  options->key_prefix_bytes = FLAGS_key_prefix;
}

void ParseTechniques(Techniques* techniques) {
  if (FLAGS_techniques == "everything") {
    *techniques = Techniques::Everything();
  } else if (FLAGS_techniques == "sherman") {
    *techniques = Techniques::Sherman();
  } else if (FLAGS_techniques == "fgplus") {
    *techniques = Techniques::FgPlus();
  } else {
    BadFlag("--techniques=" + FLAGS_techniques + ": must be everything, sherman or fgplus");
  }
  techniques->narrow_writes = FLAGS_narrow_writes;
  techniques->narrow_anywhere = FLAGS_narrow_anywhere;
}

MixOptions ParseWithout() {
  MixOptions mix;
  const std::pair<std::string_view, bool*> kinds[] = {{"server_pauses", &mix.server_pauses},
                                                      {"late_packets", &mix.late_packets},
                                                      {"shapes", &mix.shapes},
                                                      {"turns", &mix.turns},
                                                      {"clocks", &mix.clocks},
                                                      {"log_deaths", &mix.log_deaths},
                                                      {"threads", &mix.threads},
                                                      {"deadlines", &mix.deadlines},
                                                      {"restarts", &mix.restarts}};
  const std::vector<std::string> names = absl::StrSplit(FLAGS_without, ',', absl::SkipEmpty());
  for (const std::string& name : names) {
    const auto kind = std::find_if(std::begin(kinds), std::end(kinds),
                                   [&](const auto& known) { return known.first == name; });
    if (kind == std::end(kinds)) BadFlag("--without=" + name + ": no such kind");
    *kind->second = false;
  }
  return mix;
}

void CheckRanges() {
  const bool counts_ok = FLAGS_memory_servers >= 1 && FLAGS_memory_servers <= 64 &&
                         FLAGS_compute_servers >= 1 && FLAGS_compute_servers <= 1000 &&
                         FLAGS_threads >= 1 && FLAGS_threads <= 1000 && FLAGS_coroutines >= 1 &&
                         FLAGS_coroutines <= 64 && FLAGS_keys >= 1;
  if (!counts_ok)
    BadFlag("servers, threads, coroutines and keys must be at least 1 (and servers at most 64)");
  for (const double share :
       {FLAGS_read, FLAGS_put, FLAGS_update, FLAGS_insert, FLAGS_delete, FLAGS_scan}) {
    if (!(share >= 0 && share <= 1e9)) BadFlag("shares of operations must be 0 or more");
  }
  for (const double part : {FLAGS_grow, FLAGS_hot_share, FLAGS_conditional, FLAGS_runs, FLAGS_many,
                            FLAGS_stretches, FLAGS_erases, FLAGS_cursor, FLAGS_stall_probability,
                            FLAGS_call_loss, FLAGS_break_probability}) {
    if (!(part >= 0 && part <= 1)) BadFlag("shares of other things, and probabilities, are 0 to 1");
  }
  if (FLAGS_lock_words < 1 || FLAGS_lock_words > 1 << 28) BadFlag("--lock_words must be 1 to 2^28");
  if (!FLAGS_history.empty() && !std::ofstream(FLAGS_history, std::ios::app))
    BadFlag("--history: cannot write " + FLAGS_history);
  if (FLAGS_lease_us < 0 || FLAGS_lease_us > 60'000'000)
    BadFlag("--lease_us must be 0 to a minute");
  if (!FLAGS_without.empty() && FLAGS_preset.empty()) BadFlag("--without needs --preset");
  (void)ParseWithout();
  if (FLAGS_pauses < 0 || FLAGS_stall_us < 0) BadFlag("--pauses, --stall_us: not negative");
  if (FLAGS_crashes < 0 || (FLAGS_crashes > 0 && FLAGS_compute_servers <= FLAGS_crashes)) {
    BadFlag("--crashes must leave one compute server");
  }
}

// The shares as given; a mix that somebody chose has nothing else in it.
void ParseShares(SimRunOptions* options) {
  const std::pair<const char*, std::pair<double, double*>> shares[] = {
      {"read", {FLAGS_read, &options->get}},        {"put", {FLAGS_put, &options->put}},
      {"update", {FLAGS_update, &options->update}}, {"insert", {FLAGS_insert, &options->insert}},
      {"delete", {FLAGS_delete, &options->remove}}, {"scan", {FLAGS_scan, &options->scan}}};
  const auto is_given = [](const char* name) {
    return !gflags::GetCommandLineFlagInfoOrDie(name).is_default;
  };
  bool any_given = false;
  for (const auto& [name, share] : shares) any_given |= is_given(name);
  for (const auto& [name, share] : shares)
    *share.second = any_given && !is_given(name) ? 0 : share.first;
  if (options->get + options->put + options->update + options->insert + options->remove +
          options->scan <=
      0) {
    BadFlag("no operation has a share");
  }
  options->conditional = FLAGS_conditional;
  options->load = FLAGS_load;
  if (options->put + options->insert <= 0) options->load = options->keys;
}

SimRunOptions FromFlags(uint64_t seed) {
  SimRunOptions options;
  options.sim.seed = seed;
  if (FLAGS_mode == "mixed") {
    options.sim.mode = static_cast<sim::DeliveryMode>(seed % 4);
  } else if (!ParseDeliveryMode(FLAGS_mode, &options.sim.mode)) {
    BadFlag("--mode=" + FLAGS_mode + ": must be lines, words, shm, whole or mixed");
  }
  options.sim.packet_bytes = FLAGS_packet_bytes;
  options.sim.write_unlock = FLAGS_write_unlock;
  options.sim.cheap_messages = FLAGS_cheap_messages;
  options.sim.stall_probability = FLAGS_stall_probability;
  options.sim.stall_ns = FLAGS_stall_us * kMicrosecondNs;
  options.sim.call_request_loss = options.sim.call_reply_loss = FLAGS_call_loss;
  options.memory_servers = FLAGS_memory_servers;
  options.compute_servers = FLAGS_compute_servers;
  options.threads = FLAGS_threads;
  options.coroutines = FLAGS_coroutines;
  options.operations = FLAGS_operations;
  options.keys = FLAGS_keys;
  options.grow = FLAGS_grow;
  options.ascending_growth = FLAGS_ascending;
  options.hot_share = FLAGS_hot_share;
  options.hot_keys = FLAGS_hot_keys;
  ParseShares(&options);
  options.scan_limit_max = FLAGS_scan_limit;
  options.cursor = FLAGS_cursor;
  options.runs = FLAGS_runs;
  options.many = FLAGS_many;
  options.stretches = FLAGS_stretches;
  options.erases = FLAGS_erases;
  options.crashes = FLAGS_crashes;
  options.pauses = FLAGS_pauses;
  options.break_probability = FLAGS_break_probability;
  options.lease_ns = FLAGS_lease_us * kMicrosecondNs;
  options.serving_lease_ns = FLAGS_serving_lease_us * kMicrosecondNs;
  options.lock_words = FLAGS_lock_words;
  options.client.index_cache_bytes = FLAGS_cache_bytes;
  options.client.value_places_bytes = FLAGS_value_places_bytes;
  options.client.handover_max = FLAGS_handover_max;
  options.client.combine_max = FLAGS_combine_max;
  options.client.operation_timeout_ms = FLAGS_timeout_ms;
  ParseTree(&options);
  ParseTechniques(&options.client.techniques);
  if (const std::string bad = ApplyCruelFlags(&options); !bad.empty()) BadFlag(bad);
  return options;
}

SimRunOptions OptionsOf(uint64_t seed) {
  MixOptions mix = ParseWithout();
  if (FLAGS_preset == "cruel") mix.cruel_share = 1;
  mix.owned = FLAGS_preset == "owned" || FLAGS_preset == "owned_cruel";
  mix.cruel_moves = FLAGS_preset == "owned_cruel";
  SimRunOptions options = FLAGS_preset.empty() ? FromFlags(seed) : MixedRun(seed, mix);
  options.history_path = FLAGS_history;
  return options;
}

// The command that repeats a seed: the flags as given, but for the seeds.
std::string Repeat(const std::vector<std::string>& arguments, uint64_t seed) {
  std::string command = "pando-sim";
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string flag = arguments[i].substr(0, arguments[i].find('='));
    if (flag.ends_with("-seed") || flag.ends_with("-seeds")) {
      if (flag == arguments[i]) ++i;  // its value is the next word
    } else {
      command += " " + arguments[i];
    }
  }
  return command + " --seed=" + std::to_string(seed);
}

bool RunExhaustiveOnce(const ExhaustiveOptions& options) {
  const ExhaustiveResult result = RunExhaustiveCrashes(options);
  for (const auto& [kind, kills] : result.kinds) {
    std::printf("%6llu %s: %s\n", static_cast<unsigned long long>(kills),
                options.break_only ? "breaks" : "kills", kind.c_str());
  }
  std::printf("seed %llu: %llu worlds\n", static_cast<unsigned long long>(options.seed),
              static_cast<unsigned long long>(result.worlds));
  for (const std::string& problem : result.problems)
    std::printf("BROKE: %.2000s\n", problem.c_str());
  return result.ok();
}

int RunExhaustive(uint64_t first, uint64_t count) {
  bool ok = true;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    ExhaustiveOptions options;
    options.seed = seed;
    options.kill_recoverer = FLAGS_kill_recoverer;
    if (!gflags::GetCommandLineFlagInfoOrDie("keys").is_default) options.keys = FLAGS_keys;
    if (options.keys < kExhaustiveKeysMin)
      BadFlag(absl::StrCat("--keys: the operations of victims need ", kExhaustiveKeysMin));
    if (!gflags::GetCommandLineFlagInfoOrDie("memory_servers").is_default)
      options.memory_servers = FLAGS_memory_servers;
    if (!gflags::GetCommandLineFlagInfoOrDie("tree").is_default) {
      SimRunOptions shape;
      ParseTree(&shape);
      options.tree = shape.tree;
      options.key_prefix_bytes = FLAGS_key_prefix;
    }
    options.tree.narrow_reads = FLAGS_narrow_reads;
    options.tree.inline_value_bytes_max = FLAGS_inline_value_bytes;
    options.narrow_writes = FLAGS_narrow_writes;
    if (FLAGS_mode != "mixed" && !ParseDeliveryMode(FLAGS_mode, &options.mode))
      BadFlag("--mode=" + FLAGS_mode + ": must be lines, words, shm or whole");
    options.break_only = FLAGS_exhaustive_breaks;
    options.side_by_side = FLAGS_side_by_side;
    options.run_length = FLAGS_run_length;
    options.erase_length = FLAGS_erase_length;
    ok = RunExhaustiveOnce(options) && ok;
    if (!options.break_only) continue;
    options.break_late = true;
    ok = RunExhaustiveOnce(options) && ok;
    options.break_late = false;
    options.break_heard = true;
    ok = RunExhaustiveOnce(options) && ok;
  }
  if (ok) std::printf("ok\n");
  return ok ? kExitOk : kExitBroke;
}

int Run(const std::vector<std::string>& arguments) {
  uint64_t first = FLAGS_seed, count = 1;
  if (!FLAGS_seeds.empty()) {
    const std::vector<std::string> parts = absl::StrSplit(FLAGS_seeds, ':');
    if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &first) ||
        !absl::SimpleAtoi(parts[1], &count)) {
      BadFlag("--seeds=" + FLAGS_seeds + ": must be FIRST:COUNT");
    }
    if (count > UINT64_MAX - first) BadFlag("--seeds=" + FLAGS_seeds + ": go beyond 64 bits");
  }
  if (FLAGS_exhaustive_crashes || FLAGS_exhaustive_breaks) return RunExhaustive(first, count);
  Coverage coverage;
  uint64_t broken = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const SimRunOptions options = OptionsOf(seed);
    const bool is_scenario = !FLAGS_scenario.empty();
    const SimRunResult result =
        is_scenario ? FindScenario(FLAGS_scenario)->run(seed) : RunSim(options);
    const std::string problem = result.ok() ? "" : result.problems.front();
    if (FLAGS_preset.empty() && !is_scenario && problem.starts_with(kNotTaken))
      BadFlag(problem.substr(kNotTaken.size()));
    coverage.Add(result);
    if (FLAGS_trace_hash && count == 1) {
      std::printf("trace hash %016llx\n", static_cast<unsigned long long>(result.trace_hash));
    }
    if (result.ok()) continue;
    ++broken;
    std::printf("BROKE: seed %llu: %s\n", static_cast<unsigned long long>(seed),
                is_scenario ? FLAGS_scenario.c_str() : DescribeRun(options).c_str());
    for (const std::string& problem : result.problems) std::printf("  %.1200s\n", problem.c_str());
    std::printf("  repeat: %s\n", Repeat(arguments, seed).c_str());
    std::fflush(stdout);
  }
  if (FLAGS_stats || count > 1) std::printf("%s", coverage.Describe().c_str());
  if (broken == 0) std::printf("ok\n");
  if (broken > 0 && count > 1) {
    std::printf("%llu of %llu seeds broke\n", static_cast<unsigned long long>(broken),
                static_cast<unsigned long long>(count));
  }
  return broken == 0 ? kExitOk : kExitBroke;
}

}  // namespace
}  // namespace pando

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  pando::ParseCommandLine(argc, argv, pando::kProgram);
  if (FLAGS_list_rules) {
    std::fputs(pando::ListRules().c_str(), stdout);
    return pando::kExitOk;
  }
  if (!FLAGS_preset.empty() && FLAGS_preset != "mixed" && FLAGS_preset != "cruel" &&
      FLAGS_preset != "owned" && FLAGS_preset != "owned_cruel")
    pando::BadFlag("--preset=" + FLAGS_preset + ": unknown");
  if (!FLAGS_scenario.empty() && pando::FindScenario(FLAGS_scenario) == nullptr) {
    pando::BadFlag("--scenario=" + FLAGS_scenario + ": there are " + pando::ScenarioNames());
  }
  pando::CheckRanges();
#ifdef PANDO_BROKEN_VARIANTS
  if (!FLAGS_break.empty()) {
    const pando::Rule rule = pando::RuleByName(FLAGS_break);
    if (rule == pando::Rule::kNone) pando::BadFlag("--break=" + FLAGS_break + ": no such rule");
    pando::BreakRule(rule);
  }
#endif
  return pando::Run(arguments);
}
