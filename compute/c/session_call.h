// What calls with a session and a tree have in common.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/c/call.h"
#include "compute/c/objects.h"
#include "compute/c/sized.h"

namespace pando::c {

// Adds up what operations cost, for a caller who wants to know.
inline void AddCost(const OperationCost& cost, pando_operation_cost* to) {
  if (to == nullptr) return;
  to->round_trips += cost.round_trips;
  to->verbs += cost.verbs;
  to->bytes_read += cost.bytes_read;
  to->bytes_written += cost.bytes_written;
}

// What a job of a session's works with.
struct Work {
  Session& session;
  const Tree& tree;
  const OperationOptions& options;
  std::string& buffer;  // empty
};

// `job(Work)` returns an absl::Status.
template <typename Job>
absl::Status WithSession(pando_session* session, const pando_tree* tree,
                         const pando_operation_options* options, const Job& job) {
  static constexpr pando_operation_options kDefaults = PANDO_OPERATION_OPTIONS_INIT;
  Held<SessionObject> held;
  Held<TreeObject> of;
  SessionUse use;
  PANDO_RETURN_IF_ERROR(held.Take(session));
  PANDO_RETURN_IF_ERROR(of.Take(tree));
  PANDO_RETURN_IF_ERROR(CheckSameClient(*held, *of));
  PANDO_ASSIGN_OR_RETURN(const pando_operation_options read,
                         ReadSized(options, kDefaults, "operation options"));
  PANDO_RETURN_IF_ERROR(use.Take(*held));
  OperationCost cost;
  OperationOptions operation{.timeout_ms = read.timeout_ms};
  if (read.cost != nullptr) operation.cost = &cost;
  held->buffer.clear();
  const absl::Status status = job(Work{*held->session, *of->tree, operation, held->buffer});
  AddCost(cost, read.cost);
  return status;
}

// Where a value goes that a write gives back. InvalidArgument, as long as nothing has been done.
inline absl::Status CheckAnswer(const Tree& tree, const void* value, size_t capacity,
                                const size_t* size) {
  if (value == nullptr && capacity == 0) return absl::OkStatus();
  PANDO_RETURN_IF_ERROR(CheckGiven(value, "the buffer"));
  PANDO_RETURN_IF_ERROR(CheckGiven(size, "where the value's size goes"));
  if (capacity >= tree.value_bytes_max()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "a buffer of ", capacity, " bytes; values of the tree have up to ", tree.value_bytes_max()));
}
inline void GiveAnswer(std::string_view answer, void* value, size_t* size) {
  if (value == nullptr) return;
  if (!answer.empty()) std::memcpy(value, answer.data(), answer.size());
  *size = answer.size();
}

}  // namespace pando::c
