#include "bench/sim/erase_ranges.h"

#include <algorithm>
#include <set>
#include <utility>

#include "compute/client/access.h"
#include "compute/client/session_impl.h"
#include "compute/client/tree_impl.h"
#include "compute/index/key_range.h"

namespace pando {

using history::Operation;
using history::OperationKind;

RangeErasing PerformEraseRange(Session& session, const Tree& tree, const std::string& from,
                               const std::string& last) {
  RangeErasing erasing;
  erasing.erased.next = from;
  const KeyRange range = RangeOf({.from = from, .to = last, .to_inclusive = true},
                                 ImplOf(tree).context().layout.key_bytes_max());
  const auto note = [&](uint64_t erased, const KeyCut& at) {
    erasing.erased.erased = erased;
    if (at > range.low) erasing.erased.next = at.FirstAbove();
    erasing.erased.done = at >= range.high;
    return absl::OkStatus();
  };
  erasing.status = ImplOf(session).Perform(tree, {}, [&](OperationContext& context) {
    return ImplOf(tree).routed().EraseRange(context, range, note, &erasing.keys);
  });
  return erasing;
}

std::vector<Operation> EraseOperations(const std::vector<std::string>& keys, int32_t client,
                                       int64_t call_ns) {
  std::vector<Operation> operations;
  for (const std::string& key : keys) {
    Operation& o = operations.emplace_back();
    o.client = client;
    o.kind = OperationKind::kDelete;
    o.key = key;
    o.call_ns = call_ns;
  }
  return operations;
}

void SettleErases(const RangeErasing& erasing, int64_t return_ns,
                  std::vector<Operation>* operations) {
  const std::set<std::string> sure(erasing.keys.sure.begin(), erasing.keys.sure.end());
  const std::set<std::string> keys(erasing.keys.perhaps.begin(), erasing.keys.perhaps.end());
  const auto may_be = [&](const std::string& key) {
    return keys.contains(key) ||
           std::any_of(erasing.keys.elsewhere.begin(), erasing.keys.elsewhere.end(),
                       [&](const KeyRange& range) {
                         return !range.low.IsAbove(key) && range.high.IsAbove(key);
                       });
  };
  for (Operation& o : *operations) {
    const bool passed = erasing.erased.done || o.key < erasing.erased.next;
    if (may_be(o.key)) {
      o.kind = OperationKind::kClear;
      o.return_ns = return_ns;
    } else if (sure.contains(o.key) || passed) {
      o.found = sure.contains(o.key);
      o.return_ns = return_ns;
    }
  }
}

}  // namespace pando
