// The page that lists paper and simulated values side by side.
#pragma once

#include <string>
#include <vector>

#include "bench/figures/points.h"

namespace pando::bench {

// What a figure was made with: FIGURE.run.json, beside its points.
struct FigureRun {
  static constexpr char kSimulated[] = "simulated";

  std::string figure, title, x_name;
  std::string fabric = kSimulated;  // or "measured on shm"
  std::string profile, commit;
  uint64_t records = 0, seed = 0;
  int memory_servers = 0, compute_servers = 0, threads = 0;
  bool quick = false;
  std::vector<std::string> remarks;  // cases that were cut short, or had errors

  bool simulated() const { return fabric == kSimulated; }
  // "simulated, profile connectx5-100g, commit 1234abcd, ...".
  std::string Label() const;
};

nlohmann::json FigureRunToJson(const FigureRun& run);
absl::StatusOr<FigureRun> FigureRunFromJson(const nlohmann::json& json);

struct FigureOnPage {
  FigureRun run;
  std::vector<Point> points;
  bool has_picture = false;
};

// Markdown. `published` gives the sources, `explanations` the texts beside points that are far off.
std::string MakePage(const std::vector<FigureOnPage>& figures, const std::vector<Note>& published,
                     const std::vector<Note>& explanations);

}  // namespace pando::bench
