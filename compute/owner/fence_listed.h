// Every memory server that a member could reach confirms that its life is over (rule D2).
#pragma once

#include "absl/container/btree_set.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/fabric.h"

namespace pando {

using ServerSet = absl::btree_set<ServerId>;

// `fence` asks one server, and returns when that has confirmed; `list` says on which servers trees
// have nodes now. The catalog's server is asked first: no tree grows onto another server for the
// member from then on. Others' trees do, though, and the member may be connected there: a node that
// it has READ on a server that had not confirmed yet may name one. So the list is made again, until
// all that it names had confirmed before: whatever the member knows of is on these then.
//
// Returns those that have confirmed, or the first error of the two functions.
absl::StatusOr<ServerSet> FenceListed(ServerId catalog_server,
                                      absl::FunctionRef<absl::StatusOr<ServerSet>()> list,
                                      absl::FunctionRef<absl::Status(ServerId)> fence);

}  // namespace pando
