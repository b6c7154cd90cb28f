#include "bench/owned/model_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "common/base/status.h"
#include "common/fabric/recoverable.h"

namespace pando {
namespace {

constexpr uint64_t kStepNsMax = 4'000;
constexpr uint64_t kScanPausesMax = 8;
constexpr uint64_t kLateNsMax = 60'000;

}  // namespace

void ModelStore::Pass(OperationContext& context) {
  const auto ns = static_cast<int64_t>(1 + table_.random.Uniform(kStepNsMax));
  context.session.scheduler().SleepUntil(context.session.NowNs() + ns);
}

void ModelStore::Later(int64_t within_ns, std::string key, std::string value, bool erases) {
  ++table_.late;
  ModelTable& table = table_;
  table.world.At(table.world.clock().NowNs() + within_ns,
                 [&table, key = std::move(key), value = std::move(value), erases] {
                   if (erases) {
                     table.entries.erase(key);
                   } else {
                     table.entries[key] = value;
                   }
                   table.locked = false;
                 });
}

absl::Status ModelStore::Write(OperationContext& context, const WriteOperation& operation,
                               std::string* actual) {
  Pass(context);
  if (Chance()) return MarkRecoverable(absl::UnavailableError("its queue pair broke"));
  while (table_.locked) {
    if (context.expired()) return context.DeadlineError("waiting for the lock");
    Pass(context);
  }
  if (context.expired()) return context.DeadlineError("taking the lock");
  const auto entry = table_.entries.find(std::string(operation.key));
  const bool present = entry != table_.entries.end();
  if (operation.kind == WriteKind::kInsert) {
    if (present) return absl::AlreadyExistsError("there is one");
  } else {
    if (!present) return absl::NotFoundError("there is none");
    if (entry->second != operation.expected) {
      *actual = entry->second;
      return ConditionFailedError("another value");
    }
  }
  const bool erases = operation.kind == WriteKind::kEraseIf;
  std::string key(operation.key), value(operation.value);
  if (Chance()) {
    if (table_.random.Chance(0.3)) {
      ++table_.never;
    } else {
      table_.locked = true;
      Later(static_cast<int64_t>(1 + table_.random.Uniform(kLateNsMax)), key, value, erases);
    }
    if (table_.random.Chance(0.5)) Pass(context);
    return OutcomeUnknownError("its queue pair broke");
  }
  if (erases) {
    table_.entries.erase(entry);
  } else {
    table_.entries[key] = value;
  }
  Pass(context);
  return absl::OkStatus();
}

absl::Status ModelStore::Scan(OperationContext& context, const KeyRange& range, bool reverse,
                              size_t limit, std::vector<KeyValue>* rows) {
  Pass(context);
  if (Chance()) return MarkRecoverable(absl::UnavailableError("its queue pair broke"));
  // As of several leaves: what is in front of a border is read before what is behind it.
  std::string border;
  if (!table_.entries.empty()) {
    auto at = table_.entries.begin();
    std::advance(at, table_.random.Uniform(table_.entries.size()));
    border = at->first;
  }
  rows->clear();
  for (const bool behind : {reverse, !reverse}) {
    std::vector<KeyValue> part;
    for (const auto& [key, value] : table_.entries) {
      if (range.low.IsAbove(key) || !range.high.IsAbove(key) || (key >= border) != behind) continue;
      part.push_back({key, value});
    }
    if (reverse) std::reverse(part.begin(), part.end());
    rows->insert(rows->end(), part.begin(), part.end());
    for (uint64_t i = table_.random.Uniform(kScanPausesMax); i > 0; --i) Pass(context);
  }
  if (rows->size() > limit) rows->resize(limit);
  return absl::OkStatus();
}

}  // namespace pando
