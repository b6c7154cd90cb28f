#include "memory/node_ledger.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/wire/node_layout.h"

namespace pando::memory {
namespace {

// Into how many parts a rest is divided, at least, by what its end is rounded up to.
constexpr int64_t kGrainsOfARest = 4;

}  // namespace

NodeLedger::NodeLedger(Region* region, const Clock* clock, const TimeConstants& times)
    : region_(region),
      clock_(clock),
      times_(times),
      rest_ns_(RuleHolds(Rule::kR3) ? times.freed_rest_ns : 0),
      cell_rest_ns_(std::min(times.cell_rest_ns, rest_ns_)),
      chunk_bytes_(region->superblock().chunk_bytes),
      pool_(region, clock, rest_ns_),
      chunks_(region->superblock().chunk_count) {}

absl::Status NodeLedger::CheckNodeBytes(NodePoolId pool, uint32_t node_bytes) const {
  if (pool.is_of_cells()) {
    if (node_bytes == pool.cell_lines * kLineBytes && node_bytes <= chunk_bytes_) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("no cells of ", node_bytes, " bytes in chunks of ", chunk_bytes_));
  }
  if (node_bytes < kNodeBytesMin || node_bytes > kNodeBytesMax || node_bytes % kLineBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("node size ", node_bytes, " must be a multiple of ", kLineBytes, " between ",
                     kNodeBytesMin, " and ", kNodeBytesMax));
  }
  const auto tree = trees_.find(pool);
  if (tree != trees_.end() && tree->second.node_bytes != node_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("tree ", pool.tree_id, " has nodes of ",
                                                   tree->second.node_bytes, " bytes here, not of ",
                                                   node_bytes));
  }
  return absl::OkStatus();
}

uint64_t NodeLedger::KeptBackFrom(uint32_t tree_id) const {
  if ((tree_id != 0 && tree_id == kept_back_for_) || !RuleHolds(Rule::kO2Reserve)) return 0;
  const auto its = trees_.find(NodePoolId(kept_back_for_));
  const uint64_t has = its == trees_.end() ? 0 : its->second.chunks.size();
  return kept_back_max_ - std::min<uint64_t>(kept_back_max_, has);
}

NodeLedger::Tree* NodeLedger::FindTree(NodePoolId pool) {
  const auto tree = trees_.find(pool);
  return tree == trees_.end() ? nullptr : &tree->second;
}

std::vector<NodePoolId> NodeLedger::PoolsOf(uint32_t tree_id) const {
  std::vector<NodePoolId> pools;
  for (auto at = trees_.lower_bound(NodePoolId(tree_id));
       at != trees_.end() && at->first.tree_id == tree_id; ++at) {
    pools.push_back(at->first);
  }
  return pools;
}

uint64_t NodeLedger::OffsetOf(const Tree& tree, const Place& place) const {
  return region_->ChunkOffset(place.chunk) + uint64_t{place.node} * tree.node_bytes;
}

NodeGlance NodeLedger::Glance(const Tree& tree, const Place& place) const {
  std::array<std::byte, kLineBytes> line;
  region_->Read(OffsetOf(tree, place), line.data(), kLineBytes);
  return GlanceAtNode(line.data());
}

bool NodeLedger::IsWritten(const Tree& tree, const Place& place) const {
  return Glance(tree, place).life == chunks_[place.chunk].nodes->life(place.node);
}

std::optional<NodeLedger::Place> NodeLedger::Find(const Tree& tree, NodePoolId pool,
                                                  uint64_t offset) const {
  const uint64_t start = region_->superblock().chunk_offset;
  if (offset < start || (offset - start) / chunk_bytes_ >= chunks_.size()) return std::nullopt;
  const auto chunk = static_cast<uint32_t>((offset - start) / chunk_bytes_);
  const uint64_t in_chunk = (offset - start) % chunk_bytes_;
  if (chunks_[chunk].nodes == nullptr || chunks_[chunk].pool != pool ||
      in_chunk % tree.node_bytes != 0) {
    return std::nullopt;
  }
  const auto node = static_cast<uint32_t>(in_chunk / tree.node_bytes);
  if (node >= chunks_[chunk].nodes->handed()) return std::nullopt;
  return Place{chunk, node};
}

absl::Status NodeLedger::AddChunk(NodePoolId pool, uint32_t node_bytes) {
  PANDO_ASSIGN_OR_RETURN(const ChunkPool::Taken taken,
                         pool_.Take(node_bytes, KeptBackFrom(pool.tree_id)));
  Chunk& chunk = chunks_[taken.chunk];
  PANDO_CHECK(chunk.nodes == nullptr);
  chunk.pool = pool;
  // No rest becomes much longer by being rounded up.
  const int64_t grain_ns =
      std::clamp<int64_t>(RestOf(pool) / kGrainsOfARest, 1, times_.rest_grain_ns);
  chunk.nodes = std::make_unique<ChunkNodes>(static_cast<uint32_t>(chunk_bytes_ / node_bytes),
                                             taken.life, taken.zero, grain_ns);
  Tree& tree = trees_[pool];
  if (pool.is_of_cells()) cells_.try_emplace(pool.tree_id);
  tree.node_bytes = node_bytes;
  tree.chunks.insert(taken.chunk);
  tree.partial.insert(taken.chunk);
  return absl::OkStatus();
}

void NodeLedger::Relist(Tree& tree, uint32_t index) {
  Chunk& chunk = chunks_[index];
  const auto keep = [&](absl::btree_set<uint32_t>* list, bool listed) {
    if (listed) {
      list->insert(index);
    } else {
      list->erase(index);
    }
  };
  const bool goes_back = chunk.nodes->all_free();
  keep(&tree.partial, !goes_back && chunk.nodes->handed() < chunk.nodes->count());
  keep(&tree.with_free, !goes_back && chunk.nodes->has_free());
  if (!goes_back) return;
  tree.free_nodes -= chunk.nodes->in_use(NodeUse::kFree);
  tree.chunks.erase(index);
  for (auto& [incarnation, holder] : tree.holders) holder.chunks.erase(index);
  pool_.GiveBack(index, chunk.nodes->written(), chunk.nodes->newest_life());
  chunk = Chunk{};
  ++events_.chunks_back;
}

void NodeLedger::TakeRested(Tree& tree, const ClientId& holder, uint32_t nodes_max,
                            NodeGrant* grant) {
  const int64_t now_ns = clock_->NowNs();
  uint32_t examined = 0;
  std::vector<uint32_t> visited;
  for (const uint32_t index : tree.with_free) {
    if (nodes_max == 0 || ++examined > kChunksExaminedMax) break;
    ChunkNodes& nodes = *chunks_[index].nodes;
    std::vector<uint32_t> taken;
    while (taken.size() < nodes_max) {
      const std::optional<uint32_t> node = nodes.TakeRested(now_ns, holder.incarnation);
      if (!node.has_value()) break;
      taken.push_back(*node);
    }
    if (taken.empty()) continue;
    visited.push_back(index);
    nodes_max -= static_cast<uint32_t>(taken.size());
    std::sort(taken.begin(), taken.end());
    for (const uint32_t node : taken) {
      const uint64_t offset = OffsetOf(tree, {index, node});
      const NodeRun run = {offset, tree.node_bytes, nodes.has_image(node), nodes.life(node)};
      NodeRun* const last = grant->runs.empty() ? nullptr : &grant->runs.back();
      if (last != nullptr && last->offset + last->bytes == offset &&
          last->recycled == run.recycled && last->life == run.life) {
        last->bytes += tree.node_bytes;
      } else {
        grant->runs.push_back(run);
      }
    }
    tree.free_nodes -= taken.size();
    events_.nodes_granted += taken.size();
    events_.nodes_granted_again += taken.size();
  }
  for (const uint32_t index : visited) {
    tree.holders[holder.incarnation].chunks.insert(index);
    Relist(tree, index);
  }
}

void NodeLedger::TakeUntouched(Tree& tree, const ClientId& holder, uint32_t nodes_max,
                               NodeGrant* grant) {
  if (tree.partial.empty()) return;
  const uint32_t index = *tree.partial.begin();
  ChunkNodes& nodes = *chunks_[index].nodes;
  uint32_t count = nodes.count() - nodes.handed();
  // Old images have to be read, so that whole chunks of them are no favour; and the last chunk is
  // everybody's.
  const uint32_t tree_id = chunks_[index].pool.tree_id;
  if (!nodes.zero() || tree_id == kept_back_for_ || pool_.free_chunks() <= KeptBackFrom(tree_id)) {
    count = std::min(count, nodes_max);
  }
  const uint32_t first = nodes.TakeUntouched(count, holder.incarnation);
  grant->runs.push_back({OffsetOf(tree, {index, first}), uint64_t{count} * tree.node_bytes,
                         static_cast<uint8_t>(nodes.zero() ? 0 : 1), nodes.life(first)});
  events_.nodes_granted += count;
  tree.holders[holder.incarnation].chunks.insert(index);
  Relist(tree, index);
}

absl::StatusOr<NodeGrant> NodeLedger::Allocate(const ClientId& holder, const NodeRequest& request) {
  const NodePoolId pool = request.pool();
  PANDO_RETURN_IF_ERROR(CheckNodeBytes(pool, request.node_bytes));
  const auto nodes_max = std::clamp<uint32_t>(
      request.nodes_max, 1,
      request.tree_id == kept_back_for_ ? kKeptBackNodesMax : static_cast<uint32_t>(kGrantRunsMax));
  NodeGrant grant;
  Tree* tree = FindTree(pool);
  if (tree != nullptr) {
    TakeRested(*tree, holder, nodes_max, &grant);
    if (grant.runs.empty()) TakeUntouched(*tree, holder, nodes_max, &grant);
  }
  for (uint32_t i = 0; grant.runs.empty() && i < kStepsOfACall && HasDeparture(pool); ++i) {
    (void)Step();
    TakeRested(*tree, holder, nodes_max, &grant);
    if (grant.runs.empty()) TakeUntouched(*tree, holder, nodes_max, &grant);
  }
  if (grant.runs.empty()) {
    PANDO_RETURN_IF_ERROR(AddChunk(pool, request.node_bytes));
    tree = FindTree(pool);
    TakeUntouched(*tree, holder, nodes_max, &grant);
  }
  tree->holders[holder.incarnation].compute_server = holder.compute_server;
  ++events_.grants;
  grant.free_bytes = FreeBytes(*tree);
  grant.orphans = OrphanHint(pool.tree_id, holder.incarnation);
  return grant;
}

std::optional<NodeGrant> NodeLedger::AllocateLater(const ClientId& holder, NodePoolId pool) const {
  int64_t rested_ns = pool_.rested_ns(KeptBackFrom(pool.tree_id));
  const auto tree = trees_.find(pool);
  NodeGrant grant;
  if (tree != trees_.end()) {
    grant.free_bytes = FreeBytes(tree->second);
    grant.orphans = OrphanHint(pool.tree_id, holder.incarnation);
    uint32_t examined = 0;
    for (const uint32_t index : tree->second.with_free) {
      if (++examined > kChunksExaminedMax) break;
      rested_ns = std::min(rested_ns, chunks_[index].nodes->rested_ns());
    }
  }
  // The next call looks at what ended holders had.
  if (HasDeparture(pool)) rested_ns = std::min(rested_ns, clock_->NowNs());
  if (rested_ns == kNeverNs) return std::nullopt;
  grant.rested_in_ns =
      std::clamp<int64_t>(rested_ns - clock_->NowNs(), times_.rest_ask_min_ns, kRestNsMax);
  return grant;
}

absl::StatusOr<NodeLife> NodeLedger::AllocateNode(uint32_t tree_id, uint32_t node_bytes) {
  PANDO_RETURN_IF_ERROR(CheckNodeBytes(tree_id, node_bytes));
  Tree* tree = FindTree(tree_id);
  if (tree == nullptr || tree->partial.empty()) {
    PANDO_RETURN_IF_ERROR(AddChunk(tree_id, node_bytes));
    tree = FindTree(tree_id);
  }
  const uint32_t chunk = *tree->partial.begin();
  const Place place = {chunk, chunks_[chunk].nodes->TakeUntouched(1, 0)};
  chunks_[chunk].nodes->Settle(place.node);
  Relist(*tree, chunk);
  return NodeLife{OffsetOf(*tree, place), chunks_[chunk].nodes->life(place.node)};
}

absl::Status NodeLedger::Return(const ClientId& holder, const NodeReturn& returned) {
  Tree* const tree = FindTree(returned.pool());
  const auto refuse = [&](const NodeRun& run, absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("cannot take back ", run.bytes,
                                                   " bytes at offset ", run.offset, " of tree ",
                                                   returned.tree_id, ": ", why));
  };
  std::vector<NodeRun> runs = returned.runs;
  std::sort(runs.begin(), runs.end(),
            [](const NodeRun& a, const NodeRun& b) { return a.offset < b.offset; });
  std::vector<std::pair<Place, uint32_t>> places;
  for (size_t i = 0; i < runs.size(); ++i) {
    const NodeRun& run = runs[i];
    if (tree == nullptr) return refuse(run, "it has no nodes here");
    if (i > 0 && runs[i - 1].offset + runs[i - 1].bytes > run.offset) return refuse(run, "twice");
    const std::optional<Place> first = Find(*tree, returned.pool(), run.offset);
    if (!first.has_value() || run.bytes % tree->node_bytes != 0) return refuse(run, "no nodes");
    const ChunkNodes& nodes = *chunks_[first->chunk].nodes;
    const uint64_t count = run.bytes / tree->node_bytes;
    if (count > nodes.handed() - first->node) return refuse(run, "never handed out");
    for (uint32_t node = first->node; node < first->node + count; ++node) {
      if (!nodes.IsHandedOutTo(node, holder.incarnation)) {
        return refuse(run, absl::StrCat("not handed to ", holder.ToString()));
      }
      if (IsWritten(*tree, {first->chunk, node})) return refuse(run, "written: free the nodes");
    }
    places.emplace_back(*first, static_cast<uint32_t>(count));
  }
  // From the end, so that what was handed out in one piece becomes one piece again.
  for (size_t i = places.size(); i-- > 0;) {
    const auto& [place, count] = places[i];
    ChunkNodes& nodes = *chunks_[place.chunk].nodes;
    const uint32_t free_before = nodes.in_use(NodeUse::kFree);
    nodes.PutBack(place.node, count);
    tree->free_nodes += nodes.in_use(NodeUse::kFree) - free_before;
    events_.nodes_returned += count;
  }
  for (const auto& [place, count] : places) {
    if (chunks_[place.chunk].nodes != nullptr) Relist(*tree, place.chunk);
  }
  return absl::OkStatus();
}

void NodeLedger::StopBeingOrphan(Tree& tree, const Place& place) {
  if (chunks_[place.chunk].nodes->use(place.node) != NodeUse::kOrphan) return;
  if (--tree.orphans == 0) tree.gone.clear();
}

bool NodeLedger::Shows(const Tree& tree, NodePoolId pool, const Place& place, uint32_t life,
                       NodeState state) const {
  const ChunkNodes& nodes = *chunks_[place.chunk].nodes;
  const NodeUse use = nodes.use(place.node);
  if (use == NodeUse::kFree || use == NodeUse::kUntouched) return false;
  if (!RuleHolds(Rule::kR4Look)) return true;  // the variant takes the caller's word
  const NodeGlance glance = Glance(tree, place);
  return nodes.life(place.node) == life && glance.is_node && glance.tree_id == pool.tree_id &&
         glance.life == life && glance.state == state;
}

void NodeLedger::FreeAt(Tree& tree, const Place& place) {
  StopBeingOrphan(tree, place);
  Chunk& chunk = chunks_[place.chunk];
  chunk.nodes->Free(place.node, clock_->NowNs() + RestOf(chunk.pool));
  ++tree.free_nodes;
  ++events_.nodes_freed;
  Relist(tree, place.chunk);
}

NodesFreed NodeLedger::Free(const NodeFree& freed) {
  uint32_t done = 0;
  const NodePoolId pool = freed.pool();
  const NodeState state = pool.is_of_cells() ? NodeState::kLive : NodeState::kDead;
  Tree* const tree = FindTree(pool);
  for (const NodeLife& node : freed.nodes) {
    const std::optional<Place> place =
        tree == nullptr ? std::nullopt : Find(*tree, pool, node.offset);
    if (!place.has_value() || !Shows(*tree, pool, *place, node.life, state)) continue;
    FreeAt(*tree, *place);
    ++done;
  }
  events_.frees_ignored += freed.nodes.size() - done;
  return {.count = done, .free_bytes = tree == nullptr ? 0 : FreeBytes(*tree)};
}

uint32_t NodeLedger::Settle(const NodeSettle& settle) {
  uint32_t done = 0;
  const NodePoolId pool = settle.pool();
  Tree* const tree = FindTree(pool);
  for (const NodeLife& node : settle.nodes) {
    const std::optional<Place> place =
        tree == nullptr ? std::nullopt : Find(*tree, pool, node.offset);
    if (!place.has_value() || !Shows(*tree, pool, *place, node.life, NodeState::kLive) ||
        chunks_[place->chunk].nodes->use(place->node) == NodeUse::kSettled) {
      continue;
    }
    StopBeingOrphan(*tree, *place);
    SettleAt(pool, *place);
    ++done;
  }
  return done;
}

void NodeLedger::FreeTree(uint32_t tree_id) {
  for (const NodePoolId pool : PoolsOf(tree_id)) {
    const auto tree = trees_.find(pool);
    for (const uint32_t index : tree->second.chunks) {
      pool_.GiveBack(index, true, chunks_[index].nodes->newest_life());
      chunks_[index] = Chunk{};
    }
    trees_.erase(tree);
  }
  cells_.erase(tree_id);
  std::erase_if(departures_,
                [&](const Departure& departure) { return departure.pool.tree_id == tree_id; });
}

NodeLedger::Counts NodeLedger::counts() const {
  Counts counts = events_;
  counts.chunks_free = pool_.free_chunks();
  counts.chunks_used = chunks_.size() - counts.chunks_free;
  for (const Chunk& chunk : chunks_) {
    if (chunk.nodes == nullptr) continue;
    counts.nodes_untouched += chunk.nodes->in_use(NodeUse::kUntouched);
    counts.nodes_free += chunk.nodes->in_use(NodeUse::kFree);
    counts.nodes_out += chunk.nodes->in_use(NodeUse::kOut);
    counts.nodes_settled += chunk.nodes->in_use(NodeUse::kSettled);
    counts.orphans += chunk.nodes->in_use(NodeUse::kOrphan);
  }
  return counts;
}

}  // namespace pando::memory
