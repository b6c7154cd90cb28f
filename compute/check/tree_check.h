// Walks a whole tree and says what is wrong with it.
//
// Checked: the root record; on each level the fences are contiguous from -infinity to +infinity and
// the siblings linked in that order; every node is consistent, live, without a merge's markers, of
// the life it is referred to with, of the right tree and level; separators ascend, each is the low
// fence of its child; a child whose separator is missing is legal (rule S3) and counted; leaf keys
// are within their fences and there once.
//
// On a quiet tree what does not hold is wrong at once. On a tree that is being changed, what looks
// wrong is looked at again (`look_again`), with the way to it read afresh, and counts only if it
// stays so. The numbers of nodes and keys are then about right: what is split or merged during the
// walk may be counted once, twice or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/wire/control.h"
#include "common/wire/remote_address.h"
#include "compute/check/node_look.h"

namespace pando {

struct TreeCheckOptions {
  bool crc = false;                 // lines carry checksums
  uint64_t nodes_max = 10'000'000;  // bounds the walk
  size_t problems_max = 20;         // the walk ends when it has found so many
  bool keep_entries = false;        // of a quiet tree
  // Waits before something is looked at for the (`tries` + 2)nd time; false: it was looked at for
  // long enough. None: the tree is quiet.
  std::function<bool(int tries)> look_again;
};

struct TreeCheckResult {
  std::vector<std::string> problems;    // what is wrong, in words
  std::vector<size_t> nodes_per_level;  // [0]: leaves
  std::vector<Reference> nodes;         // all that were met
  size_t missing_separators = 0;
  uint64_t keys = 0, key_bytes = 0, value_bytes = 0;
  uint64_t looked_again = 0;        // places that looked wrong at first
  std::vector<Reference> doubtful;  // nodes that the problems are about
  // All entries, ascending, with their values, wherever these lie (`keep_entries`).
  std::vector<std::pair<std::string, std::string>> entries;
  // Why the walk could not be finished, if memory could not be read.
  absl::Status unreadable;

  bool ok() const { return problems.empty() && unreadable.ok(); }
};

TreeCheckResult CheckTree(const CatalogEntry& entry, const TreeCheckOptions& options,
                          const ReadRemote& read);

// Words of a lock table that are not free, as problems (at most 20).
std::vector<std::string> CheckLocksFree(ServerId server, std::span<const std::byte> lock_table);
// "lock word INDEX of server SERVER is held by compute server OWNER, incarnation INCARNATION".
std::string DescribeLock(ServerId server, uint32_t index, uint64_t word);

}  // namespace pando
