// The whole content of a tree: filled before a run, written down around it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "bench/workload/keys.h"
#include "bench/ycsb/plan.h"
#include "pando/client.h"

namespace pando::bench {

// All records of the plan into an empty tree. Value of record n: the n-th of the writer that is no
// client. `loaded` is told now and then how many of them there are.
absl::Status BulkLoadRecords(const Plan& plan, const Keys& keys, Session* session, const Tree& tree,
                             absl::FunctionRef<void(uint64_t)> loaded);

// JSON lines of "key" and "value" (both hex), ascending.
absl::Status DumpTree(Session* session, const Tree& tree, const std::string& file);

// The smallest key above `key` that a tree with this key_bytes_max can hold; empty if there is
// none.
std::string Successor(std::string key, uint32_t key_bytes_max);

}  // namespace pando::bench
