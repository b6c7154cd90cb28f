// Makes figures: loads what their cases start from, runs the cases, writes the files.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/figures/figure.h"
#include "bench/figures/page.h"
#include "bench/figures/real_run.h"

namespace pando::bench {

struct RunnerOptions {
  Grid grid;
  std::string profile;  // name, for the files; "": none
  RealFabric real;      // where cases run if not on the simulator: one at a time
  std::filesystem::path out;
  int jobs = 1;  // cases at once, each a process
  bool pictures = true;
  std::function<void(const std::string& line)> progress = [](const std::string&) {};
};

// Figures in the order in which they are complete: cases that start from the same tree follow each
// other, so that it is loaded once. Of each: OUT/NAME.csv, .json, .png and .run.json; then
// OUT/index.md, about all figures that are there. Errors name the case; what was complete is
// written.
absl::Status MakeFigures(const std::vector<Figure>& figures, const RunnerOptions& options);

// Creates OUT if need be. PermissionDenied and others: nothing can be written there.
absl::Status CheckWritable(const std::filesystem::path& out);

}  // namespace pando::bench
