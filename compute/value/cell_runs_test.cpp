#include "compute/value/cell_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace pando {
namespace {

using CellOfSize = std::pair<Reference, uint16_t>;

TEST(CellRunsTest, GivesBackEachCellOnceAndKeepsNeighboursTogether) {
  const std::vector<CellOfSize> cells = {
      {{RemoteAddress(1, 4096), 1}, 2}, {{RemoteAddress(1, 4224), 1}, 2},
      {{RemoteAddress(1, 8192), 1}, 3},  // of another size, between two that are neighbours
      {{RemoteAddress(1, 4352), 1}, 2}, {{RemoteAddress(1, 4480), 2}, 2},  // of another life
      {{RemoteAddress(2, 4608), 2}, 2},                                    // on another server
      {{RemoteAddress(2, 4480), 2}, 2},                                    // not behind it
      {{RemoteAddress(1, 8384), 1}, 3}};
  CellRuns runs;
  EXPECT_TRUE(runs.empty());
  for (const auto& [cell, lines] : cells) runs.Add(cell, lines);
  EXPECT_FALSE(runs.empty());
  EXPECT_EQ(runs.runs(), 5u);
  std::vector<CellOfSize> visited;
  runs.ForEach([&](const Reference& cell, uint16_t lines) { visited.emplace_back(cell, lines); });
  EXPECT_EQ(visited.size(), cells.size());
  EXPECT_TRUE(std::is_permutation(visited.begin(), visited.end(), cells.begin(), cells.end()));
}

}  // namespace
}  // namespace pando
