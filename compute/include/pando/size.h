// The size of a tree: estimated (Session::EstimateSize), or exact (Session::Check of a quiet tree).
#pragma once

#include <cstdint>

#include "pando/options.h"

namespace pando {

struct EstimateOptions {
  // READs at most this many nodes, one after the other, and a few more if others change the tree
  // meanwhile. At least 8. Each READ is a round trip.
  int reads_max = 400;
  OperationOptions operation = {};
};

struct SizeEstimate {
  uint64_t keys = 0;
  uint64_t key_bytes = 0, value_bytes = 0;  // of all keys, and of all values
  uint64_t leaves = 0;
  // Of all nodes, leaves and internal ones: all memory of the tree except `cells_bytes`.
  uint64_t nodes_bytes = 0;
  // Most estimates of `keys` (19 of 20, where nodes differ as much as in a tree that has grown) are
  // off by no more than this share of it. 0: all leaves of a small tree were counted; the numbers
  // are exact if nobody changes it.
  double relative_error = 0;
  // Of values that lie outside the leaves (TreeOptions::inline_value_bytes_max).
  uint64_t cells_bytes = 0;
};

}  // namespace pando
