// Compares what a walk of a tree has reached with what the memory servers have on record about its
// nodes. Pure but for the function that asks them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/wire/node_messages.h"
#include "common/wire/remote_address.h"
#include "pando/check.h"

namespace pando {

// One part of a server's list (kListNodes).
using ListNodes = std::function<absl::StatusOr<NodeList>(ServerId server, uint64_t after_offset)>;

struct AccountingResult {
  NodeAccounting counts;
  // By address: what does not fit together. (On a live tree: or has changed since the walk.)
  std::map<uint64_t, std::string> suspects;
};

// `reached`: all nodes of the tree. DataLoss: a list that does not come to an end, or makes no
// sense.
absl::StatusOr<AccountingResult> AccountForNodes(const std::vector<ServerId>& servers,
                                                 uint32_t node_bytes,
                                                 const std::vector<Reference>& reached,
                                                 const ListNodes& list);

}  // namespace pando
