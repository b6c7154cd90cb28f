#include "bench/sim/perform.h"

#include <utility>
#include <vector>

namespace pando {

using history::OperationKind;

absl::Status Perform(Session& session, const Tree& tree, history::Operation* o) {
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
    case OperationKind::kScan:
      break;
  }
  std::vector<KeyValue> rows;
  const absl::Status status = session.Scan(tree, o->key, o->limit, &rows);
  for (KeyValue& row : rows) o->rows.emplace_back(std::move(row.key), std::move(row.value));
  return status;
}

bool Conclude(const absl::Status& status, history::Operation* o) {
  const bool exists = absl::IsAlreadyExists(status) && o->kind == OperationKind::kInsert;
  const bool may_miss = o->kind == OperationKind::kGet || o->kind == OperationKind::kUpdate ||
                        o->kind == OperationKind::kDelete;
  if (!status.ok() && !exists && !(absl::IsNotFound(status) && may_miss)) return false;
  o->found = o->kind == OperationKind::kInsert ? exists : status.ok();
  return true;
}

void ForgetReads(history::Operation* o) {
  if (o->kind != OperationKind::kGet && o->kind != OperationKind::kScan) return;
  o->kind = OperationKind::kGet;
  o->value.clear();
  o->rows.clear();
}

}  // namespace pando
