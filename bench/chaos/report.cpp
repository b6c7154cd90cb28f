#include "bench/chaos/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bench/host/host_info.h"
#include "common/base/clock.h"
#include "common/base/units.h"

namespace pando::chaos {
namespace {

using Json = nlohmann::json;

constexpr size_t kShown = 10;  // problems of a kind, for people

double Milliseconds(int64_t ns) { return static_cast<double>(ns) / kMillisecondNs; }

const char* VerdictName(history::Verdict verdict) {
  switch (verdict) {
    case history::Verdict::kCorrect:
      return "linearizable";
    case history::Verdict::kViolation:
      return "not linearizable";
    case history::Verdict::kUndecided:
      return "undecided";
  }
  return "?";
}

int64_t StartOf(const Outcome& outcome) {
  return outcome.lives.empty() ? 0 : outcome.lives.front().start_ns;
}

Json EventsJson(const Outcome& outcome, Json* stops) {
  const int64_t start_ns = StartOf(outcome);
  Json kills = Json::array();
  for (const Kill& kill : outcome.kills) {
    kills.push_back({{"at_ms", Milliseconds(kill.at_ns - start_ns)},
                     {"server", kill.server},
                     {"life", kill.life},
                     {"longest_gap_ms", Milliseconds(kill.longest_gap_ns)},
                     {"longest_operation_ms", Milliseconds(kill.longest_operation_ns)},
                     {"used_bytes_before", kill.used_bytes_before},
                     {"used_bytes_after", kill.used_bytes_after}});
  }
  *stops = Json::array();
  for (const Stop& stop : outcome.stops) {
    stops->push_back({{"at_ms", Milliseconds(stop.at_ns - start_ns)},
                      {"server", stop.server},
                      {"memory", stop.memory},
                      {"length_ms", Milliseconds(stop.end_ns - stop.at_ns)},
                      {"longest_after_ms", Milliseconds(stop.longest_after_ns)}});
  }
  return kills;
}

Json LeavesJson(const Outcome& outcome) {
  Json leaves = Json::array();
  for (const Leave& leave : outcome.leaves) {
    leaves.push_back(
        {{"at_ms", Milliseconds(leave.at_ns - StartOf(outcome))},
         {"server", leave.server},
         {"life", leave.life},
         {"took_ms",
          leave.left_ns == 0 ? Json() : Json(Milliseconds(leave.left_ns - leave.at_ns))}});
  }
  return leaves;
}

uint64_t Sum(const std::map<std::string, uint64_t>& counts) {
  uint64_t sum = 0;
  for (const auto& [name, count] : counts) sum += count;
  return sum;
}

void AppendList(const std::vector<std::string>& list, const char* title, std::string* text) {
  for (size_t i = 0; i < std::min(list.size(), kShown); ++i) {
    absl::StrAppend(text, "  ", title, ": ", list[i], "\n");
  }
  if (list.size() > kShown) absl::StrAppend(text, "  ... ", list.size() - kShown, " more\n");
}

}  // namespace

bool Report::ok() const {
  return outcome.failures.empty() && tree.ok() && history.verdict == history::Verdict::kCorrect;
}

Json ConfigJson(const Plan& plan) {
  Json config = PlanToJson(plan);
  config.erase("folder");
  const bench::HostInfo host = bench::GetHostInfo();
  config["host"] = {{"commit", host.commit},
                    {"compiler", host.compiler},
                    {"kernel", host.kernel},
                    {"cpu", host.cpu},
                    {"cpus", host.cpus}};
  return config;
}

Json ReportJson(const Plan& plan, const Report& report) {
  const Outcome& outcome = report.outcome;
  Json stops;
  Json kills = EventsJson(outcome, &stops);
  return {{"config", ConfigJson(plan)},
          {"ok", report.ok()},
          {"failures", outcome.failures},
          {"kills", kills},
          {"stops", stops},
          {"leaves", LeavesJson(outcome)},
          {"operations",
           {{"returned", outcome.operations.size()}, {"lost_with_a_process", outcome.lost}}},
          {"errors", {{"explained", outcome.explained}, {"unexplained", outcome.unexplained}}},
          {"history",
           {{"verdict", VerdictName(report.history.verdict)},
            {"operations", report.history.operations},
            {"keys", report.history.keys},
            {"violations", report.history.violations},
            {"undecided", report.history.undecided}}},
          {"tree",
           {{"ok", report.tree.ok()},
            {"problems", report.tree.problems},
            {"keys", report.tree.keys},
            {"nodes_per_level", report.tree.nodes_per_level},
            {"missing_separators", report.tree.missing_separators},
            {"locks_held", report.tree.locks_held},
            {"nodes",
             {{"reachable", report.tree.nodes.reachable},
              {"held", report.tree.nodes.held},
              {"free", report.tree.nodes.free},
              {"orphans", report.tree.nodes.orphans}}}}}};
}

std::string ReportText(const Report& report) {
  const Outcome& outcome = report.outcome;
  std::string text = absl::StrCat(
      outcome.operations.size(), " operations returned, ", outcome.lost,
      " writes lost with their process; errors beside a stop or kill: ", Sum(outcome.explained),
      ", unexplained: ", Sum(outcome.unexplained), "\n");
  for (const Kill& kill : outcome.kills) {
    absl::StrAppend(
        &text,
        absl::StrFormat("  kill at %.1f s of server %d: longest gap of another "
                        "%.0f ms, longest operation %.0f ms, memory %s -> %s\n",
                        Milliseconds(kill.at_ns - StartOf(outcome)) / 1'000, kill.server,
                        Milliseconds(kill.longest_gap_ns), Milliseconds(kill.longest_operation_ns),
                        FormatBytes(kill.used_bytes_before), FormatBytes(kill.used_bytes_after)));
  }
  for (const Stop& stop : outcome.stops) {
    absl::StrAppend(
        &text, absl::StrFormat("  stop at %.1f s of %s %d for %.1f s: longest operation called "
                               "after it %.1f ms\n",
                               Milliseconds(stop.at_ns - StartOf(outcome)) / 1'000,
                               stop.memory ? "memory server" : "server", stop.server,
                               Milliseconds(stop.end_ns - stop.at_ns) / 1'000,
                               Milliseconds(stop.longest_after_ns)));
  }
  for (const Leave& leave : outcome.leaves) {
    absl::StrAppend(
        &text,
        absl::StrFormat("  server %d left at %.1f s: ", leave.server,
                        Milliseconds(leave.at_ns - StartOf(outcome)) / 1'000),
        leave.left_ns == 0 && WasKilled(outcome, leave) ? std::string("it was killed on its way\n")
        : leave.left_ns == 0 ? std::string("it was not done by the end of the load\n")
                             : absl::StrFormat("all that it owned was given to others in %.0f ms\n",
                                               Milliseconds(leave.left_ns - leave.at_ns)));
  }
  AppendList(outcome.failures, "failure", &text);
  absl::StrAppend(&text, "history of ", report.history.operations, " operations on ",
                  report.history.keys, " keys: ", VerdictName(report.history.verdict), "\n");
  AppendList(report.history.violations, "violation", &text);
  AppendList(report.history.undecided, "undecided", &text);
  absl::StrAppend(&text, "tree of ", report.tree.keys,
                  " keys: ", report.tree.ok() ? "everything holds" : "something is wrong", ", ",
                  report.tree.nodes.orphans, " nodes of ended clients not swept up yet\n");
  AppendList(report.tree.problems, "problem", &text);
  return text;
}

}  // namespace pando::chaos
