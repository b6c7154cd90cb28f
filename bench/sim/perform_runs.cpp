#include "bench/sim/perform_runs.h"

#include <algorithm>
#include <string>

#include "bench/perform/perform.h"
#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/client/upsert_table.h"
#include "compute/index/write_run.h"

namespace pando {

using history::Operation;
using history::OperationKind;

namespace {

// A view of the operation.
WriteOperation ViewOf(const Operation& operation) {
  static UpsertTable* const built_in = new UpsertTable;
  const bool upserts = operation.kind == OperationKind::kUpsert;
  return {.kind = WriteKindOf(operation.kind),
          .key = operation.key,
          .value = upserts ? operation.operand : operation.value,
          .expected = operation.expected,
          .function = upserts ? built_in->Find(FunctionOf(operation.upsert)) : nullptr};
}

}  // namespace

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
      FillIn(results[next], answers[next], operation);
      if (!ended(operation, results[next])) return;
    }
  }
}

}  // namespace pando
