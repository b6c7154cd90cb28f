#include "pando/executor.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/c/call.h"
#include "compute/c/objects.h"
#include "compute/c/sized.h"

namespace pando::c {
namespace {

constexpr pando_executor_options kExecutorDefaults = PANDO_EXECUTOR_OPTIONS_INIT;
constexpr pando_operation kOperationDefaults = PANDO_OPERATION_INIT;

static_assert(PANDO_OPERATION_GET == static_cast<int>(Operation::Kind::kGet));
static_assert(PANDO_OPERATION_PUT == static_cast<int>(Operation::Kind::kPut));
static_assert(PANDO_OPERATION_INSERT == static_cast<int>(Operation::Kind::kInsert));
static_assert(PANDO_OPERATION_UPDATE == static_cast<int>(Operation::Kind::kUpdate));
static_assert(PANDO_OPERATION_ERASE == static_cast<int>(Operation::Kind::kErase));
static_assert(PANDO_OPERATION_SCAN == static_cast<int>(Operation::Kind::kScan));
static_assert(PANDO_OPERATION_REPLACE == static_cast<int>(Operation::Kind::kReplace));
static_assert(PANDO_OPERATION_ERASE_IF == static_cast<int>(Operation::Kind::kEraseIf));
static_assert(PANDO_OPERATION_UPSERT == static_cast<int>(Operation::Kind::kUpsert));

absl::StatusOr<Operation> OperationOf(const pando_operation* given) {
  PANDO_RETURN_IF_ERROR(CheckGiven(given, "the operation"));
  PANDO_ASSIGN_OR_RETURN(const pando_operation c,
                         ReadSized(given, kOperationDefaults, "the operation"));
  if (c.kind < PANDO_OPERATION_GET || c.kind > PANDO_OPERATION_UPSERT) {
    return absl::InvalidArgumentError(absl::StrCat("there is no operation of kind ", c.kind));
  }
  Operation operation;
  operation.kind = static_cast<Operation::Kind>(c.kind);
  PANDO_RETURN_IF_ERROR(CheckBytes(c.key, "the key"));
  PANDO_RETURN_IF_ERROR(CheckBytes(c.value, "the value"));
  PANDO_RETURN_IF_ERROR(CheckBytes(c.expected, "the expected value"));
  operation.key = ViewOf(c.key);
  operation.value = ViewOf(c.value);
  operation.expected = ViewOf(c.expected);
  uint32_t function = 0;
  PANDO_RETURN_IF_ERROR(Narrow(c.function, "the function", &function));
  operation.function = static_cast<UpsertFunction>(function);
  operation.limit = c.limit;
  bool has_to = false;
  PANDO_RETURN_IF_ERROR(ReadFlag(c.has_to, "has_to", &has_to));
  if (has_to) {
    PANDO_RETURN_IF_ERROR(CheckBytes(c.to, "to"));
    operation.to = std::string(ViewOf(c.to));
  }
  PANDO_RETURN_IF_ERROR(ReadFlag(c.reverse, "reverse", &operation.reverse));
  operation.timeout_ms = c.timeout_ms;
  return operation;
}

std::vector<pando_row> RowsOf(const std::vector<KeyValue>& rows) {
  std::vector<pando_row> described;
  described.reserve(rows.size());
  for (const KeyValue& row : rows) described.push_back({BytesOf(row.key), BytesOf(row.value)});
  return described;
}

void Answer(pando_callback callback, void* context, const OperationResult& result) {
  const std::vector<pando_row> rows = RowsOf(result.rows);
  const pando_answer answer{sizeof(answer), ResultOf(result.status, result.value), rows.data(),
                            rows.size()};
  const CallbackScope scope(Inside::kExecutorCallback);
  callback(context, &answer);
}

// `job(Executor&, const TreeObject&, Operation)`.
template <From from, typename Job>
pando_code WithExecutor(pando_executor* executor, const pando_tree* tree,
                        const pando_operation* operation, const Job& job) {
  return Call<from>([&]() -> absl::Status {
    Held<ExecutorObject> held;
    Held<TreeObject> of;
    PANDO_RETURN_IF_ERROR(held.Take(executor));
    PANDO_RETURN_IF_ERROR(of.Take(tree));
    PANDO_RETURN_IF_ERROR(CheckSameClient(*held, *of));
    PANDO_ASSIGN_OR_RETURN(Operation read, OperationOf(operation));
    if (CurrentlyInside() == Inside::kProgram) held->client().LetTreesGo();
    return job(*held->executor, *of, std::move(read));
  });
}

}  // namespace
}  // namespace pando::c

using pando::c::Call;
using pando::c::From;
using pando::c::TreeObject;

extern "C" {

pando_code pando_open_executor(pando_client* client, const pando_executor_options* options,
                               pando_executor** executor) {
  return pando::c::CallMaking(executor, "executor", [&]() -> absl::Status {
    pando::c::Held<pando::c::ClientObject> held;
    PANDO_RETURN_IF_ERROR(held.Take(client));
    PANDO_ASSIGN_OR_RETURN(
        const pando_executor_options read,
        pando::c::ReadSized(options, pando::c::kExecutorDefaults, "executor options"));
    pando::Executor::Options made{.queue_max = read.queue_max};
    PANDO_RETURN_IF_ERROR(pando::c::Narrow(read.workers, "workers", &made.workers));
    PANDO_ASSIGN_OR_RETURN(std::unique_ptr<pando::Executor> created,
                           pando::Executor::Create(held->client.get(), made));
    return pando::c::Publish<pando::c::ExecutorObject>(executor, held.shared(), std::move(created));
  });
}

pando_code pando_close_executor(pando_executor* executor) {
  return Call([&] { return pando::c::Close(executor, pando::c::Kind::kExecutor); });
}

pando_code pando_submit(pando_executor* executor, const pando_tree* tree,
                        const pando_operation* operation, pando_callback callback, void* context) {
  return pando::c::WithExecutor<From::kProgramOrExecutor>(
      executor, tree, operation,
      [&](pando::Executor& workers, const TreeObject& of, pando::Operation read) -> absl::Status {
        PANDO_RETURN_IF_ERROR(
            pando::c::CheckGiven(reinterpret_cast<const void*>(callback), "the callback"));
        ++*of.submitted;
        // One less before the callback, so that whoever has the answer can close the tree.
        const absl::Status submitted = workers.Submit(
            *of.tree, std::move(read),
            [callback, context, counted = of.submitted](const pando::OperationResult& result) {
              --*counted;
              pando::c::Answer(callback, context, result);
            });
        if (!submitted.ok()) --*of.submitted;
        return submitted;
      });
}

pando_code pando_execute(pando_executor* executor, const pando_tree* tree,
                         const pando_operation* operation, pando_list** list) {
  const pando_code prepared = pando::c::CallMaking(list, "list", [] { return absl::OkStatus(); });
  if (prepared != PANDO_OK) return prepared;
  return pando::c::WithExecutor<From::kProgram>(
      executor, tree, operation,
      [&](pando::Executor& workers, const TreeObject& of, pando::Operation read) -> absl::Status {
        const bool is_scan = read.kind == pando::Operation::Kind::kScan;
        const auto result =
            std::make_shared<pando::OperationResult>(workers.Execute(*of.tree, std::move(read)));
        if (is_scan) {
          PANDO_RETURN_IF_ERROR(result->status);
          return pando::c::PublishList(pando::c::RowsOf(result->rows), result, list);
        }
        std::vector<pando_result> results = {pando::c::ResultOf(result->status, result->value)};
        return pando::c::PublishList(std::move(results), result, list);
      });
}

}  // extern "C"
