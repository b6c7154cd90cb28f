// What Session::Check() looks for, and what it found.
//
// It READs every node of a tree over the fabric and changes nothing. On any tree, also one that is
// being worked on: the root record is whole; on each level the fences of the nodes are contiguous
// from the smallest key to the largest, and the siblings linked in that order; every node is of the
// life, tree and level it is referred to with; separators ascend, and each is the low fence of the
// child it refers to; no key is there twice or outside its node's fences; lock words are lock
// words. No node stays inconsistent, in the middle of a merge, or unreachable for those who refer
// to it.
//
// While others write, what looks wrong at first is looked at again, with the way to it READ afresh,
// for up to `recheck_ms`, and is a problem only if it stays so and no living client, which may be
// stopped in the middle of a write, holds on to its lock (then: DeadlineExceeded). The numbers of
// nodes and keys are about right: what is split or merged while it is walked may be counted once,
// twice or not at all.
//
// Only of a quiet tree (`quiet_tree`) it can be said that the numbers are exact, and that no lock
// is left held: a held lock is a problem there, and anything wrong is one at the first look.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pando {

// What the memory servers have on record about the tree's nodes. A node that is part of the tree
// but free for others, or handed out for good but not part of it, is a problem.
struct NodeAccounting {
  uint64_t reachable = 0;  // part of the tree
  uint64_t held = 0;       // handed to clients that are there, for what they will add
  uint64_t free = 0;
  // Of clients that ended, or merged away and not given back yet: somebody sweeps them up when the
  // tree grows (Session::Sweep()).
  uint64_t orphans = 0;
};

struct CheckOptions {
  // Nobody works on the tree, nor will while it is checked. False: somebody may.
  bool quiet_tree = false;
  // How long something that looks wrong is looked at, milliseconds: longer than a write of a busy
  // compute server takes.
  int64_t recheck_ms = 1'000;
  // The check ends when it has found so many problems.
  size_t problems_max = 20;
  // 0: as long as it takes.
  int64_t timeout_ms = 0;
};

struct CheckReport {
  std::vector<std::string> problems;      // what is wrong and where, a sentence each
  std::vector<uint64_t> nodes_per_level;  // [0]: leaves
  uint64_t keys = 0;
  uint64_t key_bytes = 0, value_bytes = 0;  // of all keys, and of all values
  uint64_t nodes_bytes = 0;                 // of all nodes
  // Nodes that are reached from their left sibling only: legal, repaired when somebody notices.
  uint64_t missing_separators = 0;
  // Words that guard nodes of this tree (or others too: nodes share words) and were held.
  uint64_t locks_held = 0;
  NodeAccounting nodes;
  uint64_t looked_again = 0;  // places that looked wrong at first

  bool ok() const { return problems.empty(); }
};

}  // namespace pando
