// How large a tree is: about (Session::EstimateSize), or exactly (Session::Check of a quiet tree).
#pragma once

#include <cstdint>

#include "pando/options.h"

namespace pando {

struct EstimateOptions {
  // Nodes that are READ at most, one after the other; a few more where others change the tree
  // meanwhile. At least 8. A node READ is a round trip.
  int reads_max = 400;
  OperationOptions operation;
};

struct SizeEstimate {
  uint64_t keys = 0;
  uint64_t key_bytes = 0, value_bytes = 0;  // of all keys, and of all values
  uint64_t leaves = 0;
  uint64_t nodes_bytes = 0;  // of all nodes, leaves and inner ones: what the tree takes of memory
  // Most estimates of `keys` (19 of 20 where nodes are as different as in a tree that has grown)
  // are off by no more than this share of it. 0 where all leaves were counted: a small tree, which
  // is of just that size if nobody changes it.
  double relative_error = 0;
};

}  // namespace pando
