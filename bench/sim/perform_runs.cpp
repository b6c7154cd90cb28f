#include "bench/sim/perform_runs.h"

#include <algorithm>
#include <string>

#include "common/base/check.h"
#include "common/base/status.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/client/upsert_table.h"
#include "compute/index/write_run.h"

namespace pando {

using history::Operation;
using history::OperationKind;

namespace {

WriteKind KindOf(const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::kPut:
      return WriteKind::kPut;
    case OperationKind::kInsert:
      return WriteKind::kInsert;
    case OperationKind::kUpdate:
      return WriteKind::kUpdate;
    case OperationKind::kDelete:
      return WriteKind::kErase;
    case OperationKind::kReplace:
      return WriteKind::kReplace;
    case OperationKind::kEraseIf:
      return WriteKind::kEraseIf;
    default:
      PANDO_CHECK(operation.kind == OperationKind::kUpsert) << "no write";
      return WriteKind::kUpsert;
  }
}

// A view of the operation.
WriteOperation ViewOf(const Operation& operation) {
  static UpsertTable* const built_in = new UpsertTable;
  const bool upserts = operation.kind == OperationKind::kUpsert;
  const bool adds = operation.upsert == history::UpsertKind::kAdd;
  return {.kind = KindOf(operation),
          .key = operation.key,
          .value = upserts ? operation.operand : operation.value,
          .expected = operation.expected,
          .function = !upserts
                          ? nullptr
                          : built_in->Find(adds ? UpsertFunction::kAdd : UpsertFunction::kAppend)};
}

}  // namespace

bool IsWrite(const Operation& operation) {
  return operation.kind != OperationKind::kGet && operation.kind != OperationKind::kScan;
}

void PerformRuns(Session& session, const Tree& tree, std::vector<Operation*> operations,
                 absl::FunctionRef<bool(Operation*, const absl::Status&)> ended) {
  std::stable_sort(operations.begin(), operations.end(),
                   [](const Operation* a, const Operation* b) { return a->key < b->key; });
  std::vector<WriteOperation> views;
  for (const Operation* const operation : operations) views.push_back(ViewOf(*operation));
  std::vector<absl::Status> results(operations.size());
  std::vector<std::string> answers(operations.size());
  std::vector<RunWrite> writes;
  for (size_t i = 0; i < operations.size(); ++i) {
    writes.push_back({&views[i], &results[i], &answers[i]});
  }
  for (size_t next = 0; next < writes.size();) {
    size_t done = 0;
    const absl::Status performed =
        ImplOf(session).Perform(tree, {}, [&](OperationContext& context) {
          done = WriteRun(context, ImplOf(tree).context(), absl::MakeSpan(writes).subspan(next));
          return absl::OkStatus();
        });
    if (done == 0) {  // the session or the tree is over: nothing was begun
      done = 1;
      results[next] = performed;
    }
    for (; done > 0; --done, ++next) {
      Operation* const operation = operations[next];
      if (IsConditionFailed(results[next])) operation->actual = answers[next];
      if (operation->kind == OperationKind::kUpsert && results[next].ok()) {
        operation->value = answers[next];
      }
      if (!ended(operation, results[next])) return;
    }
  }
}

}  // namespace pando
