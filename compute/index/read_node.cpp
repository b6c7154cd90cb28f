#include "compute/index/read_node.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando {
namespace {

// Rule V4: torn images are read again twice at once, then after at least four chain times.
constexpr int kImmediateRetries = 2;
constexpr int64_t kBackOffFirstChains = 4;
constexpr int64_t kBackOffLastChains = 256;
// Rule F2: a line's entry version comes around after 256 writes; half of that is safe.
constexpr int64_t kWritesPerLap = 128;
// Rule R3: half of what freed memory rests.
constexpr int64_t kReadNsMax = 500 * kMillisecondNs;

// Waits between READs of something torn.
class TornBackOff {
 public:
  // False: the deadline has passed.
  bool Wait(OperationContext& context) {
    context.session.counters().torn_retries.Add();
    if (context.expired()) return false;
    if (++tries_ > kImmediateRetries) {
      context.BackOff(chains_);
      chains_ = std::min(chains_ * 2, kBackOffLastChains);
    }
    return true;
  }

 private:
  int tries_ = 0;
  int64_t chains_ = kBackOffFirstChains;
};

}  // namespace

bool ReadTookTooLong(const TreeContext& tree, const Chain& chain) {
  const int64_t took_ns = chain.completed_ns() - chain.posted_ns();
  if (took_ns > kReadNsMax) return true;
  const int64_t interval_ns = tree.environment.capabilities.min_write_interval_ns;
  return interval_ns != 0 && took_ns > kWritesPerLap * interval_ns;
}

absl::StatusOr<NodeVerdict> ReadNode(OperationContext& context, const TreeContext& tree,
                                     const Reference& node, uint8_t level, std::string_view key,
                                     LocalBuffer image, LeafMatch* match) {
  const NodeExpectation expectation = Expect(tree, node, level, key);
  ChainLease chain(&context.session.buffers());
  TornBackOff back_off;
  while (true) {
    chain->Reset(node.address.server());
    chain->Read(MemorySpace::kMain, node.address.offset(), image);
    const absl::Status read = context.Await(chain.get());
    if (!read.ok() && !absl::IsAborted(read)) [[unlikely]]
      return read;
    if (read.ok() && !ReadTookTooLong(tree, *chain)) [[likely]] {
      const NodeVerdict verdict =
          Classify(image.data, tree.layout, expectation, tree.environment.crc, match);
      if (verdict != NodeVerdict::kTorn) [[likely]]
        return verdict;
    }
    if (!back_off.Wait(context)) {
      return context.DeadlineError(absl::StrCat("reading node ", node.address.offset(),
                                                " of server ", node.address.server(),
                                                ", which stays inconsistent"));
    }
  }
}

absl::StatusOr<RootRecord> ReadRoot(OperationContext& context, TreeContext& tree) {
  const RemoteAddress address = tree.entry.root_record;
  PANDO_ASSIGN_OR_RETURN(const BufferLease line, context.session.buffers().Lease(kLineBytes));
  ChainLease chain(&context.session.buffers());
  TornBackOff back_off;
  while (true) {
    chain->Reset(address.server());
    chain->Read(MemorySpace::kMain, address.offset(), line.buffer());
    const absl::Status read = context.Await(chain.get());
    if (!read.ok() && !absl::IsAborted(read)) return read;
    RootRecord record;
    switch (!read.ok() ? RootVerdict::kTorn
                       : DecodeRootRecord(line.data(), tree.id(), tree.environment.crc, &record)) {
      case RootVerdict::kAccepted:
        if (ReadTookTooLong(tree, *chain)) break;
        tree.root.Store(record);
        return record;
      case RootVerdict::kStale:
        return absl::NotFoundError(absl::StrCat("tree '", tree.entry.name, "' is gone"));
      case RootVerdict::kTorn:
        break;
    }
    if (!back_off.Wait(context)) return context.DeadlineError("reading the root record");
  }
}

}  // namespace pando
