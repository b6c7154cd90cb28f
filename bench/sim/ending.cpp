#include "bench/sim/ending.h"

#include "common/base/status.h"
#include "common/fabric/recoverable.h"

namespace pando {

using history::OperationKind;

bool Conclude(const absl::Status& status, history::Operation* o) {
  const bool exists = absl::IsAlreadyExists(status) && o->kind == OperationKind::kInsert;
  const bool may_miss = o->kind == OperationKind::kGet || o->kind == OperationKind::kUpdate ||
                        o->kind == OperationKind::kDelete || o->kind == OperationKind::kReplace ||
                        o->kind == OperationKind::kEraseIf;
  const bool refused = (absl::IsNotFound(status) && may_miss) || IsConditionFailed(status);
  if (!status.ok() && !exists && !refused) return false;
  o->found = o->kind == OperationKind::kInsert ? exists : status.ok();
  return true;
}

void ForgetReads(history::Operation* o) {
  if (o->kind != OperationKind::kGet && o->kind != OperationKind::kScan) return;
  o->kind = OperationKind::kGet;
  o->value.clear();
  o->rows.clear();
}

void ForgetAll(history::Operation* o) {
  o->kind = OperationKind::kGet;
  ForgetReads(o);
}

Ending Explain(const absl::Status& status, const Circumstances& circumstances,
               history::Operation* o) {
  if (Conclude(status, o)) return Ending::kConcluded;
  const bool unknown = IsOutcomeUnknown(status);
  if (circumstances.breaks && absl::IsUnavailable(status) && IsRecoverable(status)) {
    ForgetAll(o);
    return Ending::kRefused;
  }
  if ((circumstances.breaks || circumstances.owners_end) && unknown) {
    ForgetReads(o);
    return Ending::kUnknown;  // was it cut off, the next one is told
  }
  // A memory server's death is told before anything is written there; what it makes uncertain ends
  // unknown.
  const bool on_the_dead = (circumstances.server_death && absl::IsUnavailable(status)) ||
                           (circumstances.lost && absl::IsDataLoss(status));
  const bool full = circumstances.little_memory && absl::IsResourceExhausted(status);
  if (on_the_dead || full || (circumstances.dropped && absl::IsFailedPrecondition(status))) {
    ForgetAll(o);
    return Ending::kRefused;
  }
  if (circumstances.server_death && unknown) {
    ForgetReads(o);
    return Ending::kUnknown;
  }
  // Of an owner that was cut off and does not know it yet, nothing has happened (rule T6).
  if (circumstances.owners_end && absl::IsUnavailable(status)) {
    ForgetAll(o);
    return Ending::kRefused;
  }
  if (circumstances.leases && absl::IsFailedPrecondition(status)) {
    ForgetAll(o);
    return Ending::kCutOff;
  }
  if (circumstances.leases && (unknown || absl::IsUnavailable(status))) {
    ForgetReads(o);
    return Ending::kCutOff;
  }
  return Ending::kProblem;
}

}  // namespace pando
