#include <utility>

#include "compute/index/operations.h"
#include "compute/owner/map_store.h"

namespace pando {

template <typename Job>
absl::Status SharedMapStore::Run(OperationContext& whole, const Job& job) {
  whole.session.AdoptServers();
  if (tree_.fate.lost()) return tree_.fate.status();
  OperationContext part(whole, whole.deadline_ns());
  part.fate = &tree_.fate;
  const absl::Status status = job(part);
  whole.cost += part.cost;
  if (part.missing.has_value() || part.underfull.has_value() || part.sweep_due) {
    std::lock_guard lock(mutex_);
    if (part.missing.has_value()) missing_ = std::move(part.missing);
    if (part.underfull.has_value()) underfull_ = std::move(part.underfull);
    sweep_due_ = sweep_due_ || part.sweep_due;
  }
  return status;
}

absl::Status SharedMapStore::Write(OperationContext& context, const WriteOperation& operation,
                                   std::string* actual) {
  return Run(context,
             [&](OperationContext& part) { return WriteKey(part, tree_, operation, actual); });
}

absl::Status SharedMapStore::Scan(OperationContext& context, const KeyRange& range, bool reverse,
                                  size_t limit, std::vector<KeyValue>* rows) {
  return Run(context, [&](OperationContext& part) {
    return ScanKeys(part, tree_, range, reverse, limit, /*leaves_max=*/0, rows);
  });
}

void SharedMapStore::Tend(OperationContext& context) {
  std::optional<MissingSeparator> missing;
  std::optional<std::string> underfull;
  bool sweep_due = false;
  {
    std::lock_guard lock(mutex_);
    missing = std::exchange(missing_, std::nullopt);
    underfull = std::exchange(underfull_, std::nullopt);
    sweep_due = std::exchange(sweep_due_, false);
  }
  // If this fails, the next operation that is led astray notices it again.
  (void)Run(context, [&](OperationContext& part) -> absl::Status {
    if (missing.has_value()) (void)InsertSeparator(part, tree_, *std::move(missing));
    if (underfull.has_value()) (void)MergeUnderfull(part, tree_, /*level=*/0, *underfull);
    part.underfull.reset();  // not at every look: somebody may hold a lock for long
    SweepResult swept;
    return sweep_due ? SweepTree(part, tree_, /*thorough=*/false, &swept) : absl::OkStatus();
  });
}

}  // namespace pando
