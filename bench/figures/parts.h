// What the figures are put together from. Internal to this room.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/figures/figure.h"

namespace pando::bench {

struct NamedSystem {
  std::string name;
  System system;
};
struct NamedMix {
  std::string name;
  Mix mix;
};
struct NamedDistribution {
  std::string name;
  DistributionOptions options;
};

// The paper's baseline; the paper's system as published; all that this library has, as by default.
System FgPlusSystem();
System ShermanSystem();
System OurSystem();
// These three, in that order.
std::vector<NamedSystem> ThreeSystems();
// The paper's steps from FG+ to Sherman.
std::vector<NamedSystem> PaperSteps();
// And on to ours.
std::vector<NamedSystem> StepsBeyond();

NamedMix WriteOnly();
NamedMix WriteIntensive();
NamedMix ReadIntensive();
NamedDistribution Uniform();
NamedDistribution Zipfian(double theta);

// A case of a tree with the grid's records of 8/8.
FigureCase MakeTreeCase(const Grid& grid, std::string series, nlohmann::json x,
                        const System& system, const Mix& mix,
                        const NamedDistribution& distribution);
// Its memory servers and records, on the same seed.
SnapshotOptions SnapshotOf(const Grid& grid);
TreeCase& TreeOf(FigureCase& figure_case);
void MakeOwnedCase(const Owners& owners, FigureCase* one);
// So that every owner has written as much as may be dirty, and flushes. Of a quick grid nothing.
void WarmUp(const Grid& grid, double operations_a_record, FigureCase* one);

// What limits each: how busy everything was, and what an operation cost.
void AddLimits(const Figure& figure, const std::vector<CaseResult>& results,
               std::vector<Point>* points);

// `values` as they are; of a quick grid the first and the last.
template <typename T>
std::vector<T> Thinned(const Grid& grid, std::vector<T> values) {
  if (!grid.quick || values.size() <= 2) return values;
  return {values.front(), values.back()};
}

// One a file.
Figure MakeBreakdown(const Grid& grid);
Figure MakeBeyond(const Grid& grid);
Figure MakeLocks(const Grid& grid);
Figure MakeRange(const Grid& grid);
Figure MakeScalability(const Grid& grid);
Figure MakeServers(const Grid& grid);
Figure MakeKeySize(const Grid& grid);
Figure MakeCache(const Grid& grid);
Figure MakeInternals(const Grid& grid);
Figure MakeNarrow(const Grid& grid);
Figure MakePeers(const Grid& grid);
// owned_figures.cpp
Figure MakeOwned(const Grid& grid);
Figure MakeOwnedCache(const Grid& grid);
Figure MakeBuffered(const Grid& grid);
Figure MakeDeletes(const Grid& grid);

}  // namespace pando::bench
