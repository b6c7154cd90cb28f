#include "compute/owner/map_change.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "compute/owner/cluster_entries.h"

namespace pando {
namespace {

// What broke is opened again in far more than a chain's time; a lock's holder ends in less.
constexpr int64_t kAgainChains = 16;

}  // namespace

MapChange MapChange::Insert(std::string key, std::string desired) {
  return {WriteKind::kInsert, std::move(key), "", std::move(desired)};
}

MapChange MapChange::Replace(std::string key, std::string expected, std::string desired) {
  PANDO_CHECK(expected != desired) << "a value of this change tells it from others";
  return {WriteKind::kReplace, std::move(key), std::move(expected), std::move(desired)};
}

MapChange MapChange::EraseIf(std::string key, std::string expected) {
  return {WriteKind::kEraseIf, std::move(key), std::move(expected), ""};
}

MapChange::Decision MapChange::decision() const {
  PANDO_CHECK(decided());
  return *decision_;
}

absl::Status MapChange::Decide(Decision decision) {
  decision_ = decision;
  return absl::OkStatus();
}

absl::Status MapChange::DecideBy(std::string actual) {
  // No value is empty, so that nothing is an erase's own.
  if (!desired_.empty() && actual == desired_) return Decide(Decision::kDone);
  actual_ = std::move(actual);
  return Decide(Decision::kOther);
}

absl::Status MapChange::Undecided(const absl::Status& why) const {
  return OutcomeUnknownError(absl::StrCat("changing ", DescribeKey(key_),
                                          " of the cluster tree: not decided yet, settle it before "
                                          "anything else of its tree: ",
                                          why.ToString()));
}

absl::Status MapChange::LookAtPresent(OperationContext& context, MapStore& store) {
  // Replaces nothing, as no value is empty; but it says under the lock what is there.
  std::string actual;
  const absl::Status status =
      store.Write(context, {.kind = WriteKind::kReplace, .key = key_}, &actual);
  if (status.ok() || IsConditionFailed(status)) return DecideBy(std::move(actual));
  // Erased since: insert again.
  return absl::IsNotFound(status) ? absl::AbortedError("the entry came and went") : status;
}

absl::Status MapChange::Try(OperationContext& context, MapStore& store) {
  if (uncertain_ && !RuleHolds(Rule::kO3)) return SettleByRead(context, store);
  std::string actual;
  const absl::Status status = store.Write(
      context, {.kind = kind_, .key = key_, .value = desired_, .expected = expected_}, &actual);
  if (status.ok()) return Decide(Decision::kDone);
  if (IsConditionFailed(status)) return DecideBy(std::move(actual));
  if (absl::IsAlreadyExists(status)) return LookAtPresent(context, store);
  if (absl::IsNotFound(status)) {
    return Decide(kind_ == WriteKind::kEraseIf ? Decision::kDone : Decision::kGone);
  }
  if (!IsOutcomeUnknown(status)) return status;
  uncertain_ = true;
  return status;
}

absl::Status MapChange::Settle(OperationContext& context, MapStore& store) {
  while (!decided()) {
    const absl::Status status = Try(context, store);
    if (status.ok() || absl::IsFailedPrecondition(status)) return status;
    const bool again = IsOutcomeUnknown(status) || IsRecoverable(status) || absl::IsAborted(status);
    if (!again || context.expired()) {
      if (uncertain_) return Undecided(status);
      // What came and went is no end of an operation's.
      return absl::IsAborted(status) ? context.DeadlineError("inserting into the cluster tree")
                                     : Annotate(status, DescribeKey(key_));
    }
    context.BackOff(kAgainChains);
  }
  return absl::OkStatus();
}

absl::Status MapChange::SettleByRead(OperationContext& context, MapStore& store) {
  std::vector<KeyValue> rows;
  PANDO_RETURN_IF_ERROR(
      ReadMap(context, store, {{key_, false}, {key_, true}}, /*reverse=*/false, 1, &rows));
  const std::string found = rows.empty() ? "" : rows[0].value;
  if (found != expected_) return DecideBy(found);
  uncertain_ = false;
  return absl::UnavailableError("it has not happened, says a READ");
}

absl::Status ReadMap(OperationContext& context, MapStore& store, const KeyRange& range,
                     bool reverse, size_t limit, std::vector<KeyValue>* rows) {
  while (true) {
    const absl::Status status = store.Scan(context, range, reverse, limit, rows);
    if (!IsRecoverable(status)) return status;
    if (context.expired()) return Annotate(status, "reading the cluster tree");
    context.BackOff(kAgainChains);
  }
}

}  // namespace pando
