// Executing operations of a history with the production client.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/history/history.h"
#include "pando/client.h"

namespace pando {

// Gets and scans are no writes.
bool IsWrite(const history::Operation& operation);
// Of a write.
Write::Kind WriteKindOf(history::OperationKind kind);
UpsertFunction FunctionOf(history::UpsertKind kind);

// Inside a task of the session, or outside. Fills in what was read, and the value that refused it;
// times and `found` are the caller's.
absl::Status Perform(Session& session, const Tree& tree, history::Operation* operation);

// Of one tree, all of them writes, by one Session::WriteMany(); a status each.
std::vector<absl::Status> PerformMany(Session& session, const Tree& tree,
                                      std::span<history::Operation> operations,
                                      const OperationOptions& options = {});

// What Perform() fills in, for who has executed a write by other means. `seen`: what came back
// beside the status.
void FillIn(const absl::Status& status, const std::string& seen, history::Operation* operation);

}  // namespace pando
