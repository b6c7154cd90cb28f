// The figures: which cases each consists of, and how their results become points.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/figures/case.h"
#include "bench/figures/points.h"
#include "bench/figures/snapshot.h"

namespace pando::bench {

// How large everything is.
struct Grid {
  bool quick = false;  // fewer values of x
  uint64_t records = 20'000'000;
  int memory_servers = 8;
  int compute_servers = 8;
  int threads = 22;    // of a compute server
  int coroutines = 0;  // of a thread; 0: as the figure says
  Span span;
  uint64_t seed = 1;
  std::shared_ptr<const NicProfile> nic;  // nullptr: no timing model (tests)
};

struct FigureCase {
  // The case this one is compared with, and how the metrics of the comparison end.
  struct Against {
    size_t index = 0;
    std::string suffix;
  };

  std::string series;
  nlohmann::json x;  // a number or a text
  std::variant<TreeCase, LockCase> run;
  SnapshotOptions snapshot;  // of tree cases; the others have none (no records)
  std::vector<Against> against;
};

struct Figure {
  std::string name;
  std::string title;
  std::string x_name;
  std::vector<FigureCase> cases;
  // What a figure has besides throughput and latency of each case, and comparisons.
  using Extra = std::function<void(const Figure& figure, const std::vector<CaseResult>& results,
                                   std::vector<Point>* points)>;
  Extra extra;
  std::optional<Grid> sized;  // where it has sizes of its own
};

const std::vector<std::string>& FigureNames();
// InvalidArgument names those there are.
absl::StatusOr<Figure> MakeFigure(std::string_view name, const Grid& grid);
// `results` in the order of figure.cases.
std::vector<Point> PointsOf(const Figure& figure, const std::vector<CaseResult>& results);

}  // namespace pando::bench
