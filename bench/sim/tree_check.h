// Walks a whole tree while nobody writes to it, and says what is wrong with it.
//
// Checked: the root record; on each level the fences are contiguous from -infinity to +infinity and
// the siblings linked in that order; every node is consistent, live, of the life it is referred to
// with, of the right tree and level, and met once; separators ascend, each is the low fence of its
// child; a child whose separator is missing is legal (rule S3) and counted; leaf keys are within
// their fences and there once.
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

namespace pando {

struct TreeCheckResult {
  // What is wrong, in words; at most kProblemsMax, the walk ends where it cannot go on.
  std::vector<std::string> problems;
  std::vector<size_t> nodes_per_level;  // [0]: leaves
  size_t missing_separators = 0;
  // All entries, ascending.
  std::vector<std::pair<std::string, std::string>> entries;

  static constexpr size_t kProblemsMax = 20;
  bool ok() const { return problems.empty(); }
};

// Fills `into` with remote memory.
using ReadRemote = std::function<absl::Status(RemoteAddress from, std::span<std::byte> into)>;

// `crc`: lines carry checksums. `nodes_max` bounds the walk.
TreeCheckResult CheckTree(const CatalogEntry& entry, bool crc, const ReadRemote& read,
                          size_t nodes_max = 10'000'000);

// Words of a lock table that are not free, as problems.
std::vector<std::string> CheckLocksFree(ServerId server, std::span<const std::byte> lock_table);

}  // namespace pando
