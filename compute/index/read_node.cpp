#include "compute/index/read_node.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "compute/index/hold.h"

namespace pando {
namespace {

// Rule V4: torn images are read again twice at once, then after at least four chain times.
constexpr int kImmediateRetries = 2;
constexpr int64_t kBackOffFirstChains = 4;
constexpr int64_t kBackOffLastChains = 256;
// From then on each retry asks whether anybody is still at work there.
constexpr int kTriesBeforeRecovery = kImmediateRetries + 2;
// A holder of another lock does not wait for long (rule L2).
constexpr int kGlances = 8;

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
  bool suspicious() const { return tries_ >= kTriesBeforeRecovery; }

 private:
  int tries_ = 0;
  int64_t chains_ = kBackOffFirstChains;
};

absl::Status CheckKnown(const TreeContext& tree, const Reference& node, Reference* unknown) {
  *unknown = tree.Knows(node) ? Reference{} : node;
  if (unknown->is_null()) return absl::OkStatus();
  return absl::AbortedError("a memory server is to be waited for under no lock");
}

}  // namespace

namespace {

// Rule N2: the lines that ReadWindow() has not READ, to what it has: one READ of the leaf, so to
// say, which takes as long as both. kUnclear: it is not accepted.
absl::StatusOr<WindowVerdict> ReadRest(OperationContext& context, const TreeContext& tree,
                                       const Reference& leaf, std::string_view key,
                                       LocalBuffer image, const WindowRuns& window,
                                       int64_t started_ns, Chain* chain, LeafMatch* match) {
  const NodeLayout& layout = tree.layout;
  chain->Reset(leaf.address.server());
  const auto read = [&](uint32_t first, uint32_t end) {
    if (first == end) return;
    const uint32_t at = first * kLineBytes;
    chain->Read(MemorySpace::kMain, leaf.address.offset() + at,
                image.Slice(at, (end - first) * kLineBytes));
  };
  const WindowRuns::Run& run = window.runs[0];
  if (window.count == 2) {  // it goes round
    read(1, layout.header_lines());
    read(layout.header_lines() + window.runs[1].line_count, run.first_line);
    read(run.first_line + run.line_count, layout.lines());
  } else {
    read(1, run.first_line);
    read(run.first_line + run.line_count, layout.lines());
  }
  const absl::Status status = context.Await(chain);
  if (!status.ok() && !absl::IsAborted(status)) return status;
  const int64_t limit_ns = std::min(tree.read_limits.window_ns, tree.read_limits.rest_ns);
  const int64_t took_ns = chain->completed_ns() - started_ns;
  if (!status.ok() || took_ns > std::min(limit_ns, tree.read_max_ns)) {
    return WindowVerdict::kUnclear;
  }
  const NodeVerdict verdict =
      Classify(image.data, layout, Expect(tree, leaf, 0, key), tree.environment.crc, match);
  if (verdict != NodeVerdict::kAccepted) return WindowVerdict::kUnclear;
  return match->slot >= 0 ? WindowVerdict::kFound : WindowVerdict::kAbsent;
}

void NoteNear(const OperationContext& context, TreeContext& tree, std::string_view key,
              WindowVerdict verdict, const LeafMatch& match) {
  if (verdict == WindowVerdict::kUnclear) return;
  if (verdict != WindowVerdict::kFound ||
      !IsNear(tree.layout, key, static_cast<uint32_t>(match.slot))) {
    tree.near_gets.NoteFar();
  } else if (context.session.counters().chains.value() % NearGets::kNoted == 0) {
    tree.near_gets.NoteNear();
  }
}

// `await` posts the chain and waits for it.
template <typename Await>
[[gnu::always_inline]] inline absl::StatusOr<WindowVerdict> ReadWindowBy(
    OperationContext& context, TreeContext& tree, const Reference& leaf, std::string_view key,
    LocalBuffer image, LeafMatch* match, Await await) {
  ChainLease chain(&context.session.buffers());
  const uint64_t offset = leaf.address.offset();
  chain->Reset(leaf.address.server());
  const bool near = tree.near_reads && (tree.near_always || tree.near_gets.pay());
  const WindowPart part = near ? WindowPart::kNear : WindowPart::kAll;
  const WindowRuns window = WindowOf(tree.layout, key, part);
  const WindowReads reads = ReadsOf(window);
  for (uint32_t i = 0; i < reads.count; ++i) {
    const uint32_t at = reads.runs[i].first_line * kLineBytes;
    chain->Read(MemorySpace::kMain, offset + at,
                image.Slice(at, reads.runs[i].line_count * kLineBytes));
  }
  const absl::Status read = await(chain.get());
  if (!read.ok() && !absl::IsAborted(read)) return read;
  if (!read.ok() || TookLonger(tree, *chain, tree.read_limits.window_ns)) {
    return WindowVerdict::kUnclear;
  }
  const WindowVerdict verdict = ClassifyWindow(image.data, tree.layout, Expect(tree, leaf, 0, key),
                                               tree.environment.crc, match, part);
  if (tree.near_reads) NoteNear(context, tree, key, verdict, *match);
  if (verdict != WindowVerdict::kFlagged) return verdict;
  return ReadRest(context, tree, leaf, key, image, window, chain->started_ns(), chain.get(), match);
}

}  // namespace

absl::StatusOr<WindowVerdict> ReadWindow(OperationContext& context, TreeContext& tree,
                                         const Reference& leaf, std::string_view key,
                                         LocalBuffer image, LeafMatch* match) {
  return ReadWindowBy(context, tree, leaf, key, image, match,
                      [&](Chain* chain) { return context.Await(chain); });
}

absl::StatusOr<WindowVerdict> ReadWindowWith(OperationContext& context, TreeContext& tree,
                                             const Reference& leaf, std::string_view key,
                                             LocalBuffer image, LeafMatch* match, Chain* along) {
  if (along->done()) return ReadWindow(context, tree, leaf, key, image, match);
  return ReadWindowBy(context, tree, leaf, key, image, match,
                      [&](Chain* chain) { return context.AwaitWith(chain, along); });
}

absl::StatusOr<NodeVerdict> ReadLeafWith(OperationContext& context, TreeContext& tree,
                                         const Reference& leaf, std::string_view key,
                                         LocalBuffer image, LeafMatch* match, Chain* along) {
  if (along->done()) return ReadNode(context, tree, leaf, 0, key, image, match);
  {
    ChainLease chain(&context.session.buffers());
    chain->Reset(leaf.address.server());
    chain->Read(MemorySpace::kMain, leaf.address.offset(), image);
    const absl::Status read = context.AwaitWith(chain.get(), along);
    if (!read.ok() && !absl::IsAborted(read)) return read;
    if (read.ok() && !ReadTookTooLong(tree, *chain)) {
      const NodeVerdict verdict = Classify(image.data, tree.layout, Expect(tree, leaf, 0, key),
                                           tree.environment.crc, match);
      if (verdict != NodeVerdict::kTorn) return verdict;
    }
  }
  return ReadTornNode(context, tree, leaf, 0, key, image, match);
}

absl::StatusOr<NodeVerdict> ReadTornNode(OperationContext& context, TreeContext& tree,
                                         const Reference& node, uint8_t level, std::string_view key,
                                         LocalBuffer image, LeafMatch* match) {
  const NodeExpectation expectation = Expect(tree, node, level, key);
  ChainLease chain(&context.session.buffers());
  TornBackOff back_off;
  bool slow = false;
  while (true) {
    if (back_off.suspicious() && RuleHolds(Rule::kV4)) {
      PANDO_ASSIGN_OR_RETURN(const bool meant,
                             RepairIfAbandoned(context, tree, node, level, key, image));
      if (!meant) return NodeVerdict::kStale;
    }
    if (back_off.suspicious() && slow) {
      PANDO_ASSIGN_OR_RETURN(const NodeVerdict verdict,
                             ReadUnderLock(context, tree, node, expectation, image, match));
      if (verdict != NodeVerdict::kTorn) return verdict;
    }
    if (!back_off.Wait(context)) {
      return context.DeadlineError(absl::StrCat("reading node ", node.address.offset(),
                                                " of server ", node.address.server(),
                                                ", which stays inconsistent"));
    }
    PANDO_ASSIGN_OR_RETURN(const NodeVerdict verdict,
                           ReadOnce(context, tree, node, expectation, image, match, chain.get()));
    if (verdict != NodeVerdict::kTorn) return verdict;
    slow = chain->ok() && ReadTookTooLong(tree, *chain);
  }
}

absl::StatusOr<NodeVerdict> TryReadNode(OperationContext& context, const TreeContext& tree,
                                        const Reference& node, uint8_t level, std::string_view key,
                                        LocalBuffer image, Reference* unknown) {
  PANDO_RETURN_IF_ERROR(CheckKnown(tree, node, unknown));
  const NodeExpectation expectation = Expect(tree, node, level, key);
  ChainLease chain(&context.session.buffers());
  TornBackOff back_off;
  for (int glance = 1;; ++glance) {
    PANDO_ASSIGN_OR_RETURN(const NodeVerdict verdict,
                           ReadOnce(context, tree, node, expectation, image, nullptr, chain.get()));
    if (verdict != NodeVerdict::kTorn || glance == kGlances) return verdict;
    if (!back_off.Wait(context)) return verdict;
  }
}

void ReadTogether(OperationContext& context, const TreeContext& tree, absl::Span<NodeRead> reads) {
  std::vector<std::unique_ptr<ChainLease>> chains;
  std::vector<Chain*> posted;
  std::vector<const Chain*> chain_of;
  for (const NodeRead& read : reads) {
    const ServerId server = read.node.address.server();
    const auto with_room = std::find_if(posted.begin(), posted.end(), [&](const Chain* chain) {
      return chain->server() == server && chain->size() < Chain::kMaxVerbs;
    });
    Chain* chain = with_room == posted.end() ? nullptr : *with_room;
    if (chain == nullptr) {
      chains.push_back(std::make_unique<ChainLease>(&context.session.buffers()));
      chain = chains.back()->get();
      chain->Reset(server);
      posted.push_back(chain);
    }
    chain->Read(MemorySpace::kMain, read.node.address.offset(), read.image.buffer());
    chain_of.push_back(chain);
  }
  // Each chain says how it ended.
  if (!posted.empty()) (void)context.AwaitAll(posted);
  for (size_t i = 0; i < reads.size(); ++i) {
    const Chain& chain = *chain_of[i];
    reads[i].timely = chain.done() && chain.ok() && !ReadTookTooLong(tree, chain);
  }
}

absl::StatusOr<std::optional<NodeEdges>> ReadNodeEdges(OperationContext& context,
                                                       const TreeContext& tree,
                                                       const Reference& node, uint8_t level,
                                                       Reference* unknown) {
  PANDO_RETURN_IF_ERROR(CheckKnown(tree, node, unknown));
  const NodeExpectation expectation = Expect(tree, node, level, "");
  const uint32_t bytes = (2 + tree.layout.low_lines()) * kLineBytes;
  PANDO_ASSIGN_OR_RETURN(const BufferLease lines, context.session.buffers().Lease(bytes));
  ChainLease chain(&context.session.buffers());
  TornBackOff back_off;
  NodeEdges edges;
  for (int glance = 1;; ++glance) {
    chain->Reset(node.address.server());
    chain->Read(MemorySpace::kMain, node.address.offset(), lines.buffer());
    const absl::Status read = context.Await(chain.get());
    if (!read.ok() && !absl::IsAborted(read)) return read;
    if (read.ok() && !LinesTookTooLong(tree, *chain) &&
        ReadEdges(lines.data(), tree.layout, expectation, tree.environment.crc, &edges)) {
      return std::optional<NodeEdges>(std::move(edges));
    }
    if (glance == kGlances || !back_off.Wait(context)) return std::optional<NodeEdges>();
  }
}

absl::Status ReadRaw(OperationContext& context, const TreeContext& tree, RemoteAddress node,
                     LocalBuffer image) {
  ChainLease chain(&context.session.buffers());
  TornBackOff back_off;
  while (true) {
    chain->Reset(node.server());
    chain->Read(MemorySpace::kMain, node.offset(), image);
    const absl::Status read = context.Await(chain.get());
    if (read.ok() && !ReadTookTooLong(tree, *chain)) return read;
    if (!read.ok() && !absl::IsAborted(read)) return read;
    if (!back_off.Wait(context)) return context.DeadlineError("reading a node");
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
        if (LinesTookTooLong(tree, *chain)) break;
        if (record.dropped) {
          return DroppedTreeError(tree.entry.name, ", and no memory server has it in use any more");
        }
        tree.root.Store(record);
        return record;
      case RootVerdict::kStale:
        return DroppedTreeError(tree.entry.name, ", and its memory is used again");
      case RootVerdict::kTorn:
        break;
    }
    if (!back_off.Wait(context)) return context.DeadlineError("reading the root record");
  }
}

}  // namespace pando
