// Which cells a bulk load has written, in little memory: memory servers grant them side by side,
// and such are one run of 16 bytes. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <vector>

#include "common/wire/node_image.h"
#include "common/wire/remote_address.h"

namespace pando {

class CellRuns {
 public:
  void Add(const Reference& cell, uint16_t lines) {
    std::vector<Run>& runs = runs_[lines];
    if (runs.empty() || !runs.back().GoesOnWith(cell, lines)) {
      runs.push_back({cell.address, cell.life, 0});
    }
    ++runs.back().cells;
  }
  bool empty() const { return runs_.empty(); }
  // For tests.
  size_t runs() const {
    size_t count = 0;
    for (const auto& [lines, runs] : runs_) count += runs.size();
    return count;
  }

  // visit(const Reference& cell, uint16_t lines), size by size.
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& [lines, runs] : runs_) {
      for (const Run& run : runs) {
        for (uint32_t i = 0; i < run.cells; ++i) visit(run.At(i, lines), lines);
      }
    }
  }

 private:
  struct Run {
    RemoteAddress first;
    uint32_t life = 0;
    uint32_t cells = 0;

    Reference At(uint32_t i, uint16_t lines) const {
      const uint64_t bytes = uint64_t{lines} * kLineBytes;
      return {RemoteAddress(first.server(), first.offset() + i * bytes), life};
    }
    bool GoesOnWith(const Reference& cell, uint16_t lines) const {
      return cells < std::numeric_limits<uint32_t>::max() && At(cells, lines) == cell;
    }
  };

  std::map<uint16_t, std::vector<Run>> runs_;  // by the lines of their cells
};

}  // namespace pando
