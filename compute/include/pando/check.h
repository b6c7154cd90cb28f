// What Session::Check() checks, and what it found.
//
// It READs every node of a tree over the fabric and changes nothing. Only of an owned tree it
// flushes first what this client owns (Session::Flush()): if memory servers have no room for that,
// it ends in ResourceExhausted, and nothing is checked. It checks on any tree, also while others
// change it: the root record is whole. On each level the fences of the nodes are
// contiguous from the smallest key to the largest, and the siblings are linked in that order. Every
// node has the life, tree and level of the references to it. Separators ascend, and each is the low
// fence of its child. No key occurs twice or outside its node's fences. Lock words are
// well-formed. No node stays inconsistent, in the middle of a merge, or unreachable through a
// reference to it.
//
// While others write, Check() looks again at what seems wrong, with a fresh READ of the path to it,
// for up to `recheck_ms`. It is a problem only if it stays so and no living client holds the lock;
// that client may be stopped in the middle of a write (then: DeadlineExceeded). The numbers of
// nodes and keys are approximate: a node that is split or merged during the walk may be counted
// once, twice or not at all.
//
// Only on a quiet tree (`quiet_tree`) are the numbers exact. There a held lock is a problem, and so
// is everything that looks wrong at first sight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace pando {

// What the memory servers have recorded about the tree's nodes. A problem is: a node of the tree
// that is free for others, or a node that was handed out for good and is not in the tree.
struct NodeAccounting {
  uint64_t reachable = 0;  // part of the tree
  uint64_t held = 0;       // reserved by connected clients for future nodes
  uint64_t free = 0;
  // Held by clients that ended, or merged away and not given back yet. Clients sweep them when the
  // tree grows (Session::Sweep()).
  uint64_t orphans = 0;
};

struct CheckOptions {
  // True: the caller promises that no client uses the tree before the check ends.
  bool quiet_tree = false;
  // How long to look again at what seems wrong, milliseconds: longer than a write of a busy compute
  // server takes.
  int64_t recheck_ms = 1'000;
  // The check ends when it has found this many problems; at least 1 (InvalidArgument).
  size_t problems_max = 20;
  // 0: as long as it takes.
  int64_t timeout_ms = 0;
};

struct CheckReport {
  std::vector<std::string> problems;      // one sentence each: what is wrong, and where
  std::vector<uint64_t> nodes_per_level;  // [0]: leaves
  uint64_t keys = 0;
  uint64_t key_bytes = 0, value_bytes = 0;  // of all keys, and of all values
  uint64_t nodes_bytes = 0;                 // of all nodes
  // Nodes without a separator, reached only from their left sibling: legal; the next client that
  // notices inserts it.
  uint64_t missing_separators = 0;
  // Held lock words that guard nodes of this tree (and perhaps of others: nodes share words).
  uint64_t locks_held = 0;
  NodeAccounting nodes;
  // Values in memory of their own (TreeOptions::inline_value_bytes_max), and the bytes that they
  // take there. Each was READ, and is the one that was stored. Not if anything else is wrong.
  uint64_t cells = 0, cells_bytes = 0;
  // Such memory that nothing refers to: from clients that ended and unknown outcomes, or not yet
  // given back by other clients. The next sweep frees it (Session::Sweep()).
  uint64_t cells_unused = 0;
  uint64_t looked_again = 0;  // places that looked wrong at first

  bool ok() const { return problems.empty(); }
};

}  // namespace pando
