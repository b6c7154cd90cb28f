#include "bench/sim/perform.h"

#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"

namespace pando {

using history::OperationKind;

namespace {

Write::Kind WriteKindOf(OperationKind kind) {
  switch (kind) {
    case OperationKind::kPut:
      return Write::Kind::kPut;
    case OperationKind::kInsert:
      return Write::Kind::kInsert;
    case OperationKind::kUpdate:
      return Write::Kind::kUpdate;
    case OperationKind::kDelete:
      return Write::Kind::kErase;
    case OperationKind::kReplace:
      return Write::Kind::kReplace;
    case OperationKind::kEraseIf:
      return Write::Kind::kEraseIf;
    case OperationKind::kUpsert:
      return Write::Kind::kUpsert;
    case OperationKind::kGet:
    case OperationKind::kScan:
      break;
  }
  PANDO_CHECK(false) << "a read is no write";
}

UpsertFunction FunctionOf(history::UpsertKind kind) {
  return kind == history::UpsertKind::kAdd ? UpsertFunction::kAdd : UpsertFunction::kAppend;
}

// Where the key's value refused the operation that value is the answer.
absl::Status Refusable(history::Operation* o, const absl::Status& status, const std::string& seen) {
  if (IsConditionFailed(status)) o->actual = seen;
  return status;
}

}  // namespace

absl::Status Perform(Session& session, const Tree& tree, history::Operation* o) {
  std::string seen;
  switch (o->kind) {
    case OperationKind::kGet:
      return session.GetTo(tree, o->key, &o->value);
    case OperationKind::kPut:
      return session.Put(tree, o->key, o->value);
    case OperationKind::kInsert:
      return session.Insert(tree, o->key, o->value);
    case OperationKind::kUpdate:
      return session.Update(tree, o->key, o->value);
    case OperationKind::kDelete:
      return session.Erase(tree, o->key);
    case OperationKind::kReplace:
      return Refusable(o, session.Replace(tree, o->key, o->expected, o->value, {}, &seen), seen);
    case OperationKind::kEraseIf:
      return Refusable(o, session.EraseIf(tree, o->key, o->expected, {}, &seen), seen);
    case OperationKind::kUpsert: {
      const absl::Status status =
          session.UpsertTo(tree, o->key, FunctionOf(o->upsert), o->operand, &seen);
      if (status.ok()) o->value = seen;
      return Refusable(o, status, seen);
    }
    case OperationKind::kScan:
      break;
  }
  std::vector<KeyValue> rows;
  const absl::Status status = session.Scan(tree, o->key, o->limit, &rows);
  for (KeyValue& row : rows) o->rows.emplace_back(std::move(row.key), std::move(row.value));
  return status;
}

std::vector<absl::Status> PerformMany(Session& session, const Tree& tree,
                                      std::span<history::Operation> operations) {
  std::vector<Write> writes;
  for (const history::Operation& o : operations) {
    const bool upserts = o.kind == OperationKind::kUpsert;
    writes.push_back({.kind = WriteKindOf(o.kind),
                      .key = o.key,
                      .value = upserts ? o.operand : o.value,
                      .expected = o.expected,
                      .function = FunctionOf(o.upsert)});
  }
  std::vector<WriteResult> results = session.WriteMany(tree, writes);
  std::vector<absl::Status> statuses;
  for (size_t i = 0; i < operations.size(); ++i) {
    history::Operation& o = operations[i];
    const WriteResult& result = results[i];
    if (result.status.ok() && o.kind == OperationKind::kUpsert) o.value = result.value;
    statuses.push_back(Refusable(&o, result.status, result.value));
  }
  return statuses;
}

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
  if (circumstances.breaks && unknown) {
    ForgetReads(o);
    return Ending::kUnknown;  // was it cut off, the next one is told
  }
  // A memory server's death is told before anything is written there; what it makes uncertain ends
  // unknown.
  const bool on_the_dead = circumstances.server_death && absl::IsUnavailable(status);
  const bool full = circumstances.little_memory && absl::IsResourceExhausted(status);
  if (on_the_dead || full || (circumstances.dropped && absl::IsFailedPrecondition(status))) {
    ForgetAll(o);
    return Ending::kRefused;
  }
  if (circumstances.server_death && unknown) {
    ForgetReads(o);
    return Ending::kUnknown;
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
