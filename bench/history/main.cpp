// pando-history: is the history of an index linearizable?
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "bench/history/checker.h"
#include "bench/history/history_io.h"
#include "bench/history/known_terms.h"
#include "common/program/command_line.h"

DEFINE_string(initial, "",
              "state before the first operation (JSON lines); empty: the index starts empty");
DEFINE_string(
    known_terms, "",
    "write the history to this file in terms of get, put, insert, update, delete and scan, "
    "for other checkers");
DEFINE_string(final, "", "whole state after the last operation (JSON lines); empty: not known");

namespace {

const pando::ProgramInfo kProgram = {
    .name = "pando-history",
    .summary =
        "pando-history [--initial=FILE] [--final=FILE] HISTORY\n\n"
        "Says whether the history of an index (JSON lines, as pando-ycsb --history and pando-chaos "
        "write them) is\nlinearizable.\n\n"
        "Exit codes: 0 correct, 1 violation, 2 bad input or command line, 3 no violation but some "
        "keys undecided.",
    .source = __FILE__,
    .shared_source = "",
    .takes_arguments = true,
    .logs_info = false};

constexpr int kExitCorrect = 0, kExitViolation = 1, kExitBadInput = 2, kExitUndecided = 3;
constexpr size_t kShown = 10;

int BadInput(const absl::Status& status) {
  std::fprintf(stderr, "pando-history: %s\n", std::string(status.message()).c_str());
  return kExitBadInput;
}

int Report(const pando::history::CheckResult& result) {
  std::printf(
      "operations %zu (outcome unknown: %zu)\nkeys %zu\nviolations %zu (keys: %zu)\nundecided "
      "%zu\n",
      result.operations, result.unknown_operations, result.keys, result.violations.size(),
      result.keys_violated, result.undecided.size());
  for (size_t i = 0; i < std::min(result.violations.size(), kShown); ++i) {
    std::printf("\nviolation: %s\n", result.violations[i].c_str());
  }
  for (size_t i = 0; i < std::min(result.undecided.size(), kShown); ++i) {
    std::printf("\nundecided: %s\n", result.undecided[i].c_str());
  }
  switch (result.verdict) {
    case pando::history::Verdict::kCorrect:
      return kExitCorrect;
    case pando::history::Verdict::kViolation:
      return kExitViolation;
    case pando::history::Verdict::kUndecided:
      return kExitUndecided;
  }
  return kExitBadInput;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments = pando::ParseCommandLine(argc, argv, kProgram);
  if (arguments.size() != 1) pando::ExitWithUsageError(kProgram, "give one history");
  pando::history::State initial, final;
  if (!FLAGS_initial.empty()) {
    auto state = pando::history::ReadState(FLAGS_initial);
    if (!state.ok()) return BadInput(state.status());
    initial = *std::move(state);
    std::set<std::string> keys;
    for (const auto& entry : initial) {
      if (!keys.insert(entry.first).second) {
        return BadInput(
            absl::InvalidArgumentError(FLAGS_initial + ": key \"" + entry.first + "\" twice"));
      }
    }
  }
  if (!FLAGS_final.empty()) {
    auto state = pando::history::ReadState(FLAGS_final);
    if (!state.ok()) return BadInput(state.status());
    final = *std::move(state);
  }
  auto operations = pando::history::ReadHistory(arguments[0]);
  if (!operations.ok()) return BadInput(operations.status());
  if (!FLAGS_known_terms.empty()) {
    const absl::Status written = pando::history::WriteHistory(
        pando::history::InKnownTerms(*operations, final), FLAGS_known_terms, /*as_read=*/true);
    if (!written.ok()) return BadInput(written);
  }
  return Report(
      pando::history::CheckHistory(*operations, &initial, FLAGS_final.empty() ? nullptr : &final));
}
