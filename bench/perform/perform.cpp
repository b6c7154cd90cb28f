#include "bench/perform/perform.h"

#include <string>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/status.h"

namespace pando {

using history::OperationKind;

bool IsWrite(const history::Operation& operation) {
  return operation.kind != OperationKind::kGet && operation.kind != OperationKind::kScan;
}

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
    case OperationKind::kClear:
      break;
  }
  PANDO_CHECK(false) << "no write of one key";
}

UpsertFunction FunctionOf(history::UpsertKind kind) {
  return kind == history::UpsertKind::kAdd ? UpsertFunction::kAdd : UpsertFunction::kAppend;
}

void FillIn(const absl::Status& status, const std::string& seen, history::Operation* o) {
  if (IsConditionFailed(status)) o->actual = seen;
  if (status.ok() && o->kind == OperationKind::kUpsert) o->value = seen;
}

absl::Status Perform(Session& session, const Tree& tree, history::Operation* o) {
  std::string seen;
  absl::Status status;
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
      status = session.Replace(tree, o->key, o->expected, o->value, {}, &seen);
      break;
    case OperationKind::kEraseIf:
      status = session.EraseIf(tree, o->key, o->expected, {}, &seen);
      break;
    case OperationKind::kUpsert:
      status = session.UpsertTo(tree, o->key, FunctionOf(o->upsert), o->operand, &seen);
      break;
    case OperationKind::kScan: {
      std::vector<KeyValue> rows;
      status = session.Scan(tree, o->key, o->limit, &rows);
      for (KeyValue& row : rows) o->rows.emplace_back(std::move(row.key), std::move(row.value));
      return status;
    }
    case OperationKind::kClear:
      PANDO_CHECK(false) << "a clear is of a range of keys";
  }
  FillIn(status, seen, o);
  return status;
}

std::vector<absl::Status> PerformMany(Session& session, const Tree& tree,
                                      std::span<history::Operation> operations,
                                      const OperationOptions& options) {
  std::vector<Write> writes;
  for (const history::Operation& o : operations) {
    writes.push_back({.kind = WriteKindOf(o.kind),
                      .key = o.key,
                      .value = o.kind == OperationKind::kUpsert ? o.operand : o.value,
                      .expected = o.expected,
                      .function = FunctionOf(o.upsert)});
  }
  std::vector<WriteResult> results = session.WriteMany(tree, writes, options);
  std::vector<absl::Status> statuses;
  for (size_t i = 0; i < operations.size(); ++i) {
    FillIn(results[i].status, results[i].value, &operations[i]);
    statuses.push_back(std::move(results[i].status));
  }
  return statuses;
}

}  // namespace pando
