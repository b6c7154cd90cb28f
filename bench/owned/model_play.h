// Five members over a ModelStore, from one seed.
#pragma once

#include <cstdint>

#include "bench/owned/map_stage.h"

namespace pando {

struct ModelPlayResult {
  MapPlayResult play;
  uint64_t late = 0, never = 0;  // writes of unknown outcome that landed later; that did not
};

ModelPlayResult PlayModel(uint64_t seed);

}  // namespace pando
