// LargeValues' part in what goes from key to key: reading on, erasing a range, loading a tree.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/value/large_values.h"

namespace pando {
namespace {

// Entries whose values are READ together by one who may want only a few; doubled each time.
constexpr size_t kResolvedFirst = 4, kResolvedMax = 64;
// Entries of a bulk load whose cells are written together.
constexpr size_t kLoadedMax = 64;
constexpr size_t kLoadedBytesMax = 256 << 10;

}  // namespace

absl::Status LargeReader::Read(OperationContext& context, size_t leaves_max, Take take) {
  entries_.clear();
  slots_.Start(at_, end_, down_);
  PANDO_RETURN_IF_ERROR(slots_.Read(context, leaves_max, [this](LeafEntry& entry) {
    entries_.push_back(std::move(entry));
    return true;
  }));
  size_t together = kResolvedFirst;
  for (size_t first = 0; first < entries_.size();) {
    const size_t count = std::min(together, entries_.size() - first);
    const auto some = absl::MakeSpan(entries_).subspan(first, count);
    const absl::Status resolved = values_.Resolve(context, some, &there_);
    // What was given stays given: then it has moved less far.
    if (!resolved.ok()) return first > 0 ? absl::OkStatus() : resolved;
    for (size_t i = 0; i < count; ++i) {
      const KeyCut behind = KeyCut::At(some[i].key, /*after=*/!down_, tree_.layout.key_bytes_max());
      at_ = behind;
      if (there_[i] && !take(some[i])) return absl::OkStatus();
    }
    first += count;
    together = std::min(together * 2, kResolvedMax);
  }
  at_ = slots_.at();
  return absl::OkStatus();
}

absl::Status LargeValues::EraseRange(OperationContext& context, const KeyRange& range,
                                     NoteErased note, ErasedKeys* keys) {
  LeafReader reader(&tree_);
  std::vector<std::string> found;
  uint64_t erased = 0;
  reader.Start(range.low, range.high, /*down=*/false);
  while (!reader.done()) {
    if (context.expired()) return context.DeadlineError("erasing a range");
    found.clear();
    const KeyCut before = reader.at();
    PANDO_RETURN_IF_ERROR(reader.Read(context, 1, [&found](LeafEntry& entry) {
      found.push_back(std::move(entry.key));
      return true;
    }));
    const absl::Status status = EraseKeys(context, found, &erased, keys);
    // Emptied leaves are merged on the way.
    if (context.underfull.has_value()) {
      const std::string low = *std::exchange(context.underfull, std::nullopt);
      (void)MergeUnderfull(context, tree_, /*level=*/0, low);
    }
    // Of a leaf that it is not done with, too, it says what it has erased.
    const absl::Status told = note(erased, status.ok() ? reader.at() : before);
    PANDO_RETURN_IF_ERROR(status);
    PANDO_RETURN_IF_ERROR(told);
  }
  return absl::OkStatus();
}

absl::Status LargeValues::EraseKeys(OperationContext& context,
                                    const std::vector<std::string>& erased_keys, uint64_t* erased,
                                    ErasedKeys* keys) {
  std::vector<WriteOperation> operations;
  std::vector<absl::Status> results(erased_keys.size());
  std::vector<RunWrite> writes;
  for (const std::string& key : erased_keys) {
    operations.push_back({.kind = WriteKind::kErase, .key = key, .value = {}});
  }
  for (size_t i = 0; i < operations.size(); ++i) {
    writes.push_back({&operations[i], &results[i], nullptr});
  }
  absl::Status first;
  for (size_t next = 0; next < writes.size() && first.ok();) {
    const auto rest = absl::MakeConstSpan(writes).subspan(next);
    const size_t end = next + WriteRun(context, rest, /*later=*/nullptr);
    for (; next < end; ++next) {
      if (results[next].ok()) {
        ++*erased;
        if (keys != nullptr) keys->sure.push_back(erased_keys[next]);
      } else if (!absl::IsNotFound(results[next]) && first.ok()) {
        first = results[next];
      }
    }
  }
  return first;
}

absl::Status LargeValues::BulkLoad(OperationContext& context, NextEntry next) {
  const TreeShape& shape = tree_.entry.shape;
  std::vector<KeyValue> entries;
  std::vector<CellStore::NewValue> cells;
  size_t given = 0;
  bool ended = false;
  CellRuns written;
  const auto fill = [&]() -> absl::Status {
    entries.clear();
    cells.clear();
    given = 0;
    for (size_t bytes = 0; entries.size() < kLoadedMax && bytes < kLoadedBytesMax && !ended;) {
      KeyValue entry;
      PANDO_ASSIGN_OR_RETURN(const bool is_one, next(&entry));
      ended = !is_one;
      if (ended) break;
      if (entry.value.size() > shape.value_bytes_max) {
        return absl::InvalidArgumentError(absl::StrCat("bulk load: a value of ", entry.value.size(),
                                                       " bytes; the tree takes 0..",
                                                       shape.value_bytes_max));
      }
      bytes += entry.value.size();
      entries.push_back(std::move(entry));
    }
    for (const KeyValue& entry : entries) {
      // A key that does not fit is refused by whoever gets it.
      if (entry.value.size() > shape.inline_value_bytes_max && !entry.key.empty() &&
          entry.key.size() <= tree_.layout.key_bytes_max()) {
        cells.push_back({.key = entry.key, .value = entry.value, .reference = {}});
      }
    }
    PANDO_RETURN_IF_ERROR(cells_.WriteAll(context, absl::MakeSpan(cells)));
    for (const CellStore::NewValue& cell : cells) {
      written.Add(cell.reference.cell,
                  static_cast<uint16_t>(CellLines(cell.key.size(), cell.value.size())));
    }
    std::string stored;
    auto cell = cells.begin();
    for (KeyValue& entry : entries) {
      if (cell != cells.end() && cell->key.data() == entry.key.data()) {
        StoreReference((cell++)->reference, &stored);
      } else {
        StoreInline(std::string_view(entry.value).substr(0, shape.inline_value_bytes_max), &stored);
      }
      entry.value = stored;
    }
    return absl::OkStatus();
  };
  const auto take = [&](KeyValue* entry) -> absl::StatusOr<bool> {
    if (given == entries.size() && !ended) PANDO_RETURN_IF_ERROR(fill());
    if (given == entries.size()) return false;
    *entry = std::move(entries[given++]);
    return true;
  };
  const absl::Status loaded =
      owned_ != nullptr ? owned_->BulkLoad(context, take) : BulkLoadTree(context, tree_, take);
  if (IsOutcomeUnknown(loaded)) {
    // They are this client's until it closes the tree: linked, or nobody knows.
    if (!written.empty()) cells_.NoteUncertain();
  } else if (!loaded.ok()) {
    cells_.FreeAll(context, written);  // nothing of the load is in the tree (rule K1)
  }
  return loaded;
}

}  // namespace pando
