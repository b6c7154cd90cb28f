#include "compute/check/tree_check.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/wire/lock_word.h"
#include "common/wire/value_cell.h"
#include "compute/check/level_walk.h"

namespace pando {

namespace {

// Values in cells take the place of the references to them (rule K1).
void ReadCells(const CatalogEntry& entry, const ReadRemote& read, TreeCheckResult* result) {
  for (auto& [key, value] : result->entries) {
    const std::optional<StoredValue> stored = ParseStored(value);
    if (!stored.has_value()) {
      result->problems.emplace_back("a slot holds neither a value nor a reference to one");
      return;
    }
    if (!stored->reference.has_value()) {
      value.erase(0, value.size() - stored->inlined.size());
      continue;
    }
    const CellReference reference = *stored->reference;
    std::vector<std::byte> cell(CellReadBytes(key.size(), reference));
    const absl::Status status = read(reference.cell.address, cell);
    const std::optional<std::string_view> found =
        status.ok() ? ValueInCell(cell.data(), entry.tree_id, key, reference) : std::nullopt;
    if (!found.has_value()) {
      result->problems.push_back(absl::StrCat(
          "the cell at offset ", reference.cell.address.offset(), " of memory server ",
          reference.cell.address.server(), " does not hold the value that a slot refers to"));
      return;
    }
    value.assign(*found);
  }
}

}  // namespace

TreeCheckResult CheckTree(const CatalogEntry& entry, const TreeCheckOptions& options,
                          const ReadRemote& read) {
  TreeCheckResult result;
  const absl::StatusOr<NodeLayout> layout = entry.Layout();
  if (!layout.ok()) {
    result.problems.push_back(
        absl::StrCat("the catalog's shape is impossible: ", layout.status().ToString()));
    return result;
  }
  NodeLooker looker(entry, *layout, options.crc, read);
  absl::StatusOr<RootRecord> record = looker.ReadRoot();
  for (int tries = 0; !record.ok() && looker.unreadable().ok() && options.look_again != nullptr &&
                      options.look_again(tries);
       ++tries) {
    record = looker.ReadRoot();
  }
  if (record.ok()) {
    result.nodes_per_level.resize(record->level + 1u);
    CheckWalk walk(options, record->level, &looker, &result);
    for (int level = record->level; level >= 0 && walk.MayGoOn(); --level) walk.WalkLevel(level);
  } else if (looker.unreadable().ok()) {
    result.problems.emplace_back(record.status().message());
  }
  result.unreadable = looker.unreadable();
  if (entry.shape.has_cells && options.keep_entries) ReadCells(entry, read, &result);
  return result;
}

std::string DescribeLock(ServerId server, uint32_t index, uint64_t word) {
  const LockWord lock = LockWord::Decode(word);
  return absl::StrCat("lock word ", index, " of server ", server, " is held by compute server ",
                      lock.owner, ", incarnation ", lock.incarnation);
}

std::vector<std::string> CheckLocksFree(ServerId server, std::span<const std::byte> lock_table) {
  constexpr size_t kProblemsMax = 20;
  std::vector<std::string> problems;
  for (size_t at = 0; at + 8 <= lock_table.size() && problems.size() < kProblemsMax; at += 8) {
    uint64_t word;
    std::memcpy(&word, lock_table.data() + at, 8);
    if (word != LockWord::kFree) {
      problems.push_back(DescribeLock(server, static_cast<uint32_t>(at / 8), word));
    }
  }
  return problems;
}

}  // namespace pando
