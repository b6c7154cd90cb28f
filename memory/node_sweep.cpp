// NodeLedger's part in what follows the end of a holder: orphans and their sweep (rule C5), and
// going through all nodes of a tree.
#include <algorithm>

#include "common/base/check.h"
#include "common/base/rule.h"
#include "memory/node_ledger.h"

namespace pando::memory {
namespace {
// Passes that find something before clients are told of it no more: what was found may be others'
// work in progress. A client that asks is shown it all the same: one that was busy each time may be
// left.
constexpr uint32_t kPassesMax = 8;
}  // namespace

uint32_t NodeLedger::OrphanHint(uint32_t tree_id, uint32_t incarnation) const {
  uint64_t orphans = 0;
  for (auto at = trees_.lower_bound(NodePoolId(tree_id));
       at != trees_.end() && at->first.tree_id == tree_id; ++at) {
    const Tree& tree = at->second;
    orphans += tree.orphans;
    if (!at->first.is_of_cells() && tree.suspect && tree.passes < kPassesMax) ++orphans;
  }
  const auto cells = cells_.find(tree_id);
  if (cells != cells_.end() && DueFor(cells->second, incarnation) != 0) ++orphans;
  return static_cast<uint32_t>(std::min<uint64_t>(orphans, UINT32_MAX));
}

void NodeLedger::CellsBecomeDue(uint32_t tree_id) {
  const auto cells = cells_.find(tree_id);
  if (cells == cells_.end()) return;
  cells->second.due = ++cells->second.last;
  cells->second.taken_until_ns = 0;
  // An ended client may have taken these out before their holders said that they were in.
  for (const NodePoolId pool : PoolsOf(tree_id)) {
    if (!pool.is_of_cells()) continue;
    for (const uint32_t index : trees_.at(pool).chunks) chunks_[index].nodes->NoteOut();
  }
}

void NodeLedger::SettleAt(NodePoolId pool, const Place& place) {
  ChunkNodes& nodes = *chunks_[place.chunk].nodes;
  const bool noted = nodes.is_noted(place.node);
  nodes.Settle(place.node);
  if (!noted || !pool.is_of_cells()) return;
  LedgerCells& cells = cells_[pool.tree_id];
  cells.due = ++cells.last;
}

void NodeLedger::BecomeSuspect(Tree& tree) {
  tree.suspect = true;
  tree.passes = 0;
  tree.pass.under_way = false;
}

void NodeLedger::CloseHolder(const ClientId& client, uint32_t tree_id, bool settled) {
  if (!settled) CellsBecomeDue(tree_id);
  for (const NodePoolId pool : PoolsOf(tree_id)) CloseHolder(client, pool, settled);
}

void NodeLedger::CloseHolder(const ClientId& client, NodePoolId pool, bool settled) {
  Tree* const tree = FindTree(pool);
  if (!settled) {  // also where it holds nothing: it may be about to write to what others hold
    BecomeSuspect(*tree);
    LedgerHolder& holder = tree->holders[client.incarnation];
    holder.compute_server = client.compute_server;
    holder.in_doubt = true;
  }
  const auto found = tree->holders.find(client.incarnation);
  if (found == tree->holders.end()) return;
  const LedgerHolder& holder = found->second;
  if (holder.in_doubt && RuleHolds(Rule::kR6)) return;
  if (holder.in_doubt) {  // the variant takes what was not written for free
    departures_.push_back({pool, client, {holder.chunks.rbegin(), holder.chunks.rend()}});
  }
  for (const uint32_t index : holder.chunks) {
    ChunkNodes& nodes = *chunks_[index].nodes;
    for (uint32_t node = 0; !holder.in_doubt && node < nodes.handed(); ++node) {
      if (nodes.IsHandedOutTo(node, client.incarnation)) SettleAt(pool, {index, node});
    }
  }
  tree->holders.erase(found);
}

void NodeLedger::EndHolder(const ClientId& client, const std::vector<uint32_t>& uses) {
  for (const uint32_t tree_id : uses) {
    Tree* const tree = FindTree(tree_id);
    if (tree != nullptr) BecomeSuspect(*tree);
    CellsBecomeDue(tree_id);
  }
  for (auto& [pool, tree] : trees_) {
    const auto found = tree.holders.find(client.incarnation);
    if (found == tree.holders.end()) continue;
    const absl::btree_set<uint32_t> held = std::move(found->second.chunks);
    tree.holders.erase(found);
    BecomeSuspect(tree);
    CellsBecomeDue(pool.tree_id);
    departures_.push_back({pool, client, {held.rbegin(), held.rend()}});
  }
}

bool NodeLedger::IsInDoubt(uint32_t tree_id) const {
  const std::vector<NodePoolId> pools = PoolsOf(tree_id);
  return std::any_of(pools.begin(), pools.end(), [this](NodePoolId pool) {
    const auto& holders = trees_.at(pool).holders;
    return std::any_of(holders.begin(), holders.end(),
                       [](const auto& holder) { return holder.second.in_doubt; });
  });
}

void NodeLedger::ExamineChunk(Tree& tree, const ClientId& client, uint32_t index) {
  ChunkNodes& nodes = *chunks_[index].nodes;
  // Downwards, so that what was never touched at the end becomes one piece again.
  for (uint32_t node = nodes.handed(); node-- > 0;) {
    if (!nodes.IsHandedOutTo(node, client.incarnation)) continue;
    if (IsWritten(tree, {index, node})) {
      nodes.Orphan(node);
      ++tree.orphans;
      tree.gone[client.incarnation] = client.compute_server;
      continue;
    }
    const uint32_t free_before = nodes.in_use(NodeUse::kFree);
    nodes.PutBack(node, 1);
    tree.free_nodes += nodes.in_use(NodeUse::kFree) - free_before;
  }
  Relist(tree, index);
}

bool NodeLedger::Step() {
  if (departures_.empty()) return false;
  Departure& departure = departures_.front();
  if (!departure.chunks.empty()) {
    const uint32_t chunk = departure.chunks.back();
    departure.chunks.pop_back();
    Tree* const tree = FindTree(departure.pool);
    // The chunk may have gone to another tree, if all of it was free.
    if (tree != nullptr && tree->chunks.contains(chunk)) {
      ExamineChunk(*tree, departure.holder, chunk);
    }
  }
  if (departure.chunks.empty()) departures_.pop_front();
  return !departures_.empty();
}

bool NodeLedger::HasDeparture(NodePoolId pool) const {
  return std::any_of(departures_.begin(), departures_.end(),
                     [&](const Departure& departure) { return departure.pool == pool; });
}

std::optional<NodeLedger::Place> NodeLedger::FirstAfter(const Tree& tree, uint64_t offset) const {
  uint32_t chunk = 0, node = 0;
  const uint64_t start = region_->superblock().chunk_offset;
  if (offset >= start) {
    const uint64_t index = (offset - start) / chunk_bytes_;
    if (index >= chunks_.size()) return std::nullopt;
    chunk = static_cast<uint32_t>(index);
    node = static_cast<uint32_t>((offset - start) % chunk_bytes_ / tree.node_bytes) + 1;
  }
  const auto found = tree.chunks.lower_bound(chunk);
  if (found == tree.chunks.end()) return std::nullopt;
  if (*found != chunk) return Place{*found, 0};
  return node < chunks_[chunk].nodes->count() ? Place{chunk, node} : Next(tree, {chunk, node});
}

std::optional<NodeLedger::Place> NodeLedger::Next(const Tree& tree, Place place) const {
  if (place.node + 1 < chunks_[place.chunk].nodes->count())
    return Place{place.chunk, place.node + 1};
  const auto next = tree.chunks.upper_bound(place.chunk);
  if (next == tree.chunks.end()) return std::nullopt;
  return Place{*next, 0};
}

uint16_t NodeLedger::ServerOf(const Tree& tree, uint32_t incarnation) const {
  const auto holder = tree.holders.find(incarnation);
  if (holder != tree.holders.end()) return holder->second.compute_server;
  // It has ended, and this chunk's turn has not come.
  const auto departure = std::find_if(
      departures_.begin(), departures_.end(),
      [incarnation](const Departure& d) { return d.holder.incarnation == incarnation; });
  return departure == departures_.end() ? 0 : departure->holder.compute_server;
}

std::optional<Orphan> NodeLedger::OrphanAt(const Tree& tree, const Place& place) const {
  const ChunkNodes& nodes = *chunks_[place.chunk].nodes;
  const NodeUse use = nodes.use(place.node);
  Orphan orphan{.offset = OffsetOf(tree, place),
                .incarnation = nodes.holder(place.node),
                .life = nodes.life(place.node)};
  if (use == NodeUse::kOrphan) {
    const auto gone = tree.gone.find(orphan.incarnation);
    orphan.compute_server = gone == tree.gone.end() ? 0 : gone->second;
    return orphan;
  }
  if (!tree.suspect || (use != NodeUse::kOut && use != NodeUse::kSettled)) return std::nullopt;
  const NodeGlance glance = Glance(tree, place);
  // An old image says dead, too: but that node is not written yet.
  if (!glance.is_node || glance.life != nodes.life(place.node)) return std::nullopt;
  if (glance.state == NodeState::kLive && !glance.has_peer) return std::nullopt;
  if (orphan.incarnation != 0) orphan.compute_server = ServerOf(tree, orphan.incarnation);
  return orphan;
}

OrphanList NodeLedger::ListOrphans(const NodeQuery& query) {
  OrphanList list;
  list.next = query.after_offset;
  Tree* const tree = FindTree(query.tree_id);
  for (uint32_t i = 0; i < kStepsOfACall && HasDeparture(query.tree_id); ++i) (void)Step();
  if (tree == nullptr || (tree->orphans == 0 && !tree->suspect && !HasDeparture(query.tree_id))) {
    return list;
  }
  const size_t wanted = std::clamp<size_t>(query.max, 1, kListedNodesMax);
  // Several clients may list at once, each from its own place: whoever is furthest takes the pass
  // on, and one that begins keeps no other's from its end.
  if (query.after_offset == 0 && !tree->pass.under_way) {
    tree->pass = {.under_way = true, .clean = true, .next = 0};
  }
  const bool follows = tree->pass.under_way && query.after_offset <= tree->pass.next;
  uint32_t examined = 0;
  std::optional<Place> place = FirstAfter(*tree, query.after_offset);
  for (; place.has_value(); place = Next(*tree, *place)) {
    if (list.orphans.size() == wanted || ++examined > kNodesExaminedMax) break;
    // Nothing is behind the last node that was handed out.
    const ChunkNodes& nodes = *chunks_[place->chunk].nodes;
    if (place->node >= nodes.handed()) place->node = nodes.count() - 1;
    const std::optional<Orphan> orphan = OrphanAt(*tree, *place);
    if (orphan.has_value()) list.orphans.push_back(*orphan);
    list.next = OffsetOf(*tree, *place);
  }
  list.more = place.has_value() ? 1 : 0;
  if (!follows || (place.has_value() && list.next <= tree->pass.next)) return list;
  tree->pass.next = list.next;
  tree->pass.clean = tree->pass.clean && list.orphans.empty() && !HasDeparture(query.tree_id);
  if (place.has_value()) return list;
  tree->pass.under_way = false;
  if (tree->pass.clean) {
    tree->suspect = false;
  } else {
    ++tree->passes;
  }
  return list;
}

NodeList NodeLedger::ListNodes(const NodeQuery& query) const {
  NodeList list;
  list.next = query.after_offset;
  const auto found = trees_.find(NodePoolId(query.tree_id));
  if (found == trees_.end()) return list;
  const Tree& tree = found->second;
  const size_t wanted = std::clamp<size_t>(query.max, 1, kListedNodesMax);
  uint32_t examined = 0;
  std::optional<Place> place = FirstAfter(tree, query.after_offset);
  for (; place.has_value(); place = Next(tree, *place)) {
    const ChunkNodes& nodes = *chunks_[place->chunk].nodes;
    NodeUseRun run{.offset = OffsetOf(tree, *place),
                   .bytes = tree.node_bytes,
                   .use = nodes.use(place->node),
                   .incarnation = nodes.holder(place->node)};
    if (run.use == NodeUse::kUntouched) {  // all to the end of the chunk
      run.bytes = uint64_t{nodes.count() - place->node} * tree.node_bytes;
      place->node = nodes.count() - 1;
    }
    NodeUseRun* const last = list.runs.empty() ? nullptr : &list.runs.back();
    const bool continues = last != nullptr && last->offset + last->bytes == run.offset &&
                           last->use == run.use && last->incarnation == run.incarnation;
    if ((!continues && list.runs.size() == wanted) || ++examined > kNodesExaminedMax) {
      // What was not looked at is left for the next call.
      break;
    }
    if (continues) {
      last->bytes += run.bytes;
    } else {
      list.runs.push_back(run);
    }
    list.next = OffsetOf(tree, *place);
  }
  list.more = place.has_value() ? 1 : 0;
  return list;
}

CellList NodeLedger::ListCells(const ClientId& asker, const CellQuery& query) {
  CellList list{.next_lines = query.after_lines, .next_offset = query.after_offset};
  const auto cells = cells_.find(query.tree_id);
  if (cells == cells_.end()) return list;
  LedgerCells& of_all = cells->second;
  if (query.done != 0 && query.done == of_all.due) of_all.due = 0;
  list.due = query.takes == 0 ? of_all.due : DueFor(of_all, asker.incarnation);
  if (list.due != 0 && query.takes != 0) {
    of_all.taken_by = asker.incarnation;
    of_all.taken_until_ns = clock_->NowNs() + times_.cells_again_ns;
  }
  const size_t wanted = std::clamp<size_t>(query.max, 1, kListedNodesMax);
  uint32_t examined = 0;
  for (auto at = trees_.lower_bound({query.tree_id, std::max<uint16_t>(query.after_lines, 1)});
       at != trees_.end() && at->first.tree_id == query.tree_id; ++at) {
    const auto& [pool, tree] = *at;
    for (uint32_t i = 0; i < kStepsOfACall && HasDeparture(pool); ++i) (void)Step();
    const bool goes_on = pool.cell_lines == query.after_lines;
    std::optional<Place> place = FirstAfter(tree, goes_on ? query.after_offset : 0);
    for (; place.has_value(); place = Next(tree, *place)) {
      if (list.cells.size() == wanted || ++examined > kNodesExaminedMax) {
        list.more = 1;
        return list;
      }
      const ChunkNodes& nodes = *chunks_[place->chunk].nodes;
      if (place->node >= nodes.handed()) place->node = nodes.count() - 1;
      list.next_lines = pool.cell_lines;
      list.next_offset = OffsetOf(tree, *place);
      const NodeUse use = nodes.use(place->node);
      const bool listed = use == NodeUse::kOrphan ||
                          (use == NodeUse::kSettled && query.which >= 1) ||
                          (use == NodeUse::kOut && query.which == 2);
      if (!listed) continue;
      CellUse cell{.cell_lines = pool.cell_lines,
                   .offset = list.next_offset,
                   .life = nodes.life(place->node),
                   .use = use,
                   .incarnation = nodes.holder(place->node)};
      if (use == NodeUse::kOrphan) {
        const auto gone = tree.gone.find(cell.incarnation);
        cell.compute_server = gone == tree.gone.end() ? 0 : gone->second;
      }
      list.cells.push_back(cell);
    }
    // What departures are left here is looked at by the next call.
    if (HasDeparture(pool)) {
      list.more = 1;
      list.next_lines = pool.cell_lines;
      list.next_offset = query.after_lines == pool.cell_lines ? query.after_offset : 0;
      return list;
    }
  }
  return list;
}

}  // namespace pando::memory
