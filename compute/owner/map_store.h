// Where the map is kept: the few operations on the cluster tree that it is made of.
//
// All run inside a coroutine of the context's session, and end at its deadline. They may be refused
// (rule L5: Unavailable, IsRecoverable()) or have an unknown outcome, which is MapChange's matter.
#pragma once

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compute/core/session_context.h"
#include "compute/index/key_range.h"
#include "compute/index/tree_context.h"
#include "compute/index/write_operation.h"
#include "pando/client.h"

namespace pando {

class MapStore {
 public:
  virtual ~MapStore() = default;
  // As WriteKey() (compute/index/operations.h): decided under the lock of the key's leaf.
  virtual absl::Status Write(OperationContext& context, const WriteOperation& operation,
                             std::string* actual) = 0;
  // As ScanKeys(): the entries that were there throughout, each as it was at some moment.
  virtual absl::Status Scan(OperationContext& context, const KeyRange& range, bool reverse,
                            size_t limit, std::vector<KeyValue>* rows) = 0;
};

// The map in the cluster tree, or any shared tree of its shape. Thread-safe: one a client. The
// contexts may be those of operations on other trees.
class SharedMapStore final : public MapStore {
 public:
  // Outlives the store.
  explicit SharedMapStore(TreeContext* tree) : tree_(*tree) {}

  absl::Status Write(OperationContext& context, const WriteOperation& operation,
                     std::string* actual) override;
  absl::Status Scan(OperationContext& context, const KeyRange& range, bool reverse, size_t limit,
                    std::vector<KeyValue>* rows) override;

  // Repairs what operations have noticed of the tree (rules S3, M1, C5), best effort. The service
  // calls it now and then.
  void Tend(OperationContext& context);

 private:
  template <typename Job>
  absl::Status Run(OperationContext& whole, const Job& job);

  TreeContext& tree_;
  std::mutex mutex_;
  // The last of each; others are noticed again.
  std::optional<MissingSeparator> missing_;
  std::optional<std::string> underfull_;
  bool sweep_due_ = false;
};

// Scan() that is repeated while it is refused.
absl::Status ReadMap(OperationContext& context, MapStore& store, const KeyRange& range,
                     bool reverse, size_t limit, std::vector<KeyValue>* rows);

}  // namespace pando
