#include "bench/figures/figure.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bench/figures/parts.h"
#include "common/base/check.h"

namespace pando::bench {
namespace {

using Maker = Figure (*)(const Grid&);
constexpr std::pair<const char*, Maker> kFigures[] = {
    {"breakdown", &MakeBreakdown}, {"range", &MakeRange},      {"scalability", &MakeScalability},
    {"internals", &MakeInternals}, {"key_size", &MakeKeySize}, {"cache", &MakeCache},
    {"locks", &MakeLocks},         {"beyond", &MakeBeyond},    {"narrow", &MakeNarrow},
    {"peers", &MakePeers},         {"owned", &MakeOwned},      {"owned_cache", &MakeOwnedCache},
    {"buffered", &MakeBuffered},   {"deletes", &MakeDeletes},  {"servers", &MakeServers},
};

double Quotient(double a, double b) { return b == 0 ? 0 : a / b; }

void AddComparison(const FigureCase& figure_case, const std::string& suffix,
                   const CaseResult& before, const CaseResult& after, std::vector<Point>* points) {
  const auto add = [&](const char* metric, double value) {
    points->push_back({figure_case.series, figure_case.x, metric + suffix, value});
  };
  add("throughput_gain", Quotient(after.mops(), before.mops()));
  add("p50_cut", Quotient(before.PercentileUs(50), after.PercentileUs(50)));
  add("p99_cut", Quotient(before.PercentileUs(99), after.PercentileUs(99)));
}

}  // namespace

const std::vector<std::string>& FigureNames() {
  static const auto* const names = [] {
    auto* list = new std::vector<std::string>;
    for (const auto& [name, maker] : kFigures) list->emplace_back(name);
    return list;
  }();
  return *names;
}

absl::StatusOr<Figure> MakeFigure(std::string_view name, const Grid& grid) {
  for (const auto& [known, maker] : kFigures) {
    if (name != known) continue;
    Figure figure = maker(grid);
    figure.name = known;
    return figure;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no figure '", std::string(name),
                   "'; there are: ", absl::StrJoin(FigureNames(), " "), ", and all"));
}

std::vector<Point> PointsOf(const Figure& figure, const std::vector<CaseResult>& results) {
  PANDO_CHECK_EQ(figure.cases.size(), results.size());
  std::vector<Point> points;
  for (size_t i = 0; i < figure.cases.size(); ++i) {
    const FigureCase& one = figure.cases[i];
    const CaseResult& result = results[i];
    points.push_back({one.series, one.x, "throughput_mops", result.mops()});
    points.push_back({one.series, one.x, "p50_us", result.PercentileUs(50)});
    points.push_back({one.series, one.x, "p99_us", result.PercentileUs(99)});
    points.push_back({one.series, one.x, "mean_us", result.MeanUs()});
    for (const FigureCase::Against& against : one.against) {
      AddComparison(one, against.suffix, results[against.index], result, &points);
    }
  }
  if (figure.extra) figure.extra(figure, results, &points);
  return points;
}

}  // namespace pando::bench
