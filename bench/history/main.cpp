// pando-history: is the history of an index linearizable?
//
//   pando-history [--initial=FILE] [--final=FILE] HISTORY
//
// Exit: 0 correct, 1 violation, 2 bad input, 3 no violation but some keys undecided.
#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <set>
#include <string>

#include "bench/history/checker.h"
#include "bench/history/history_io.h"

DEFINE_string(initial, "",
              "state before the first operation (JSON lines); empty: the index starts empty");
DEFINE_string(final, "", "whole state after the last operation (JSON lines); empty: not known");

namespace {

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
  gflags::SetUsageMessage("[--initial=FILE] [--final=FILE] HISTORY");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (argc != 2) {
    std::fprintf(stderr, "usage: pando-history [--initial=FILE] [--final=FILE] HISTORY\n");
    return kExitBadInput;
  }
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
  auto operations = pando::history::ReadHistory(argv[1]);
  if (!operations.ok()) return BadInput(operations.status());
  return Report(
      pando::history::CheckHistory(*operations, &initial, FLAGS_final.empty() ? nullptr : &final));
}
