// Rules K4, K8: cells of the dead, and cells that the dead took out of the tree and did not free.
// Each has its key, and the tree is asked for that, of an owned one the key's owner.
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "common/wire/node_messages.h"
#include "compute/index/holder_states.h"
#include "compute/index/operations.h"
#include "compute/value/large_values.h"

namespace pando {
namespace {

// Cells that are looked at in one go of a sweep that a session makes by itself, in front of its
// next operation: two round trips each.
constexpr size_t kLookedAtMax = 512;
// For one cell's key, at most, and no more than this part of what the sweep of a server has.
constexpr int64_t kKeyNsMax = 100 * kMillisecondNs;
constexpr int64_t kPartOfTime = 4;
// Cells for which a thorough sweep scans the tree once: some 50 MB.
constexpr size_t kScannedForMax = size_t{1} << 20;

absl::StatusOr<CellList> Ask(OperationContext& context, TreeContext& tree, ServerId server,
                             const CellQuery& query) {
  PANDO_ASSIGN_OR_RETURN(const std::string body,
                         tree.environment.control.Call(context, server, ControlOpcode::kListCells,
                                                       EncodeCellQuery(query)));
  return ParseCellList(body);
}

// Frees or settles cells of one server, many in one call.
class Decisions {
 public:
  Decisions(OperationContext& context, TreeContext& tree, ServerId server, SweepResult* result)
      : context_(context), tree_(tree), server_(server), result_(*result) {}

  absl::Status Free(const CellUse& cell) { return Add(&freed_, cell, /*frees=*/true); }
  absl::Status Settle(const CellUse& cell) { return Add(&settled_, cell, /*frees=*/false); }
  absl::Status Send() {
    for (auto& [lines, cells] : freed_) PANDO_RETURN_IF_ERROR(SendFrees(lines, &cells));
    for (auto& [lines, cells] : settled_) PANDO_RETURN_IF_ERROR(SendSettled(lines, &cells));
    return absl::OkStatus();
  }

 private:
  using BySize = std::map<uint16_t, std::vector<NodeLife>>;

  absl::Status Add(BySize* all, const CellUse& cell, bool frees) {
    std::vector<NodeLife>& cells = (*all)[cell.cell_lines];
    cells.push_back({cell.offset, cell.life});
    if (cells.size() < kNodesPerRequestMax) return absl::OkStatus();
    return frees ? SendFrees(cell.cell_lines, &cells) : SendSettled(cell.cell_lines, &cells);
  }
  absl::Status SendFrees(uint16_t lines, std::vector<NodeLife>* cells) {
    if (cells->empty()) return absl::OkStatus();
    const NodeFree request{
        .tree_id = tree_.id(), .nodes = std::exchange(*cells, {}), .cell_lines = lines};
    PANDO_ASSIGN_OR_RETURN(const std::string body, tree_.environment.control.Call(
                                                       context_, server_, ControlOpcode::kFreeNodes,
                                                       EncodeNodeFree(request)));
    PANDO_ASSIGN_OR_RETURN(const NodesFreed freed, ParseNodesFreed(body));
    result_.freed += freed.count;
    return absl::OkStatus();
  }
  absl::Status SendSettled(uint16_t lines, std::vector<NodeLife>* cells) {
    if (cells->empty()) return absl::OkStatus();
    const NodeSettle request{
        .tree_id = tree_.id(), .nodes = std::exchange(*cells, {}), .cell_lines = lines};
    PANDO_ASSIGN_OR_RETURN(
        const std::string body,
        tree_.environment.control.Call(context_, server_, ControlOpcode::kSettleNodes,
                                       EncodeNodeSettle(request)));
    PANDO_ASSIGN_OR_RETURN(const uint32_t count, ParseNodeCount(body));
    result_.settled += count;
    return absl::OkStatus();
  }

  OperationContext& context_;
  TreeContext& tree_;
  const ServerId server_;
  SweepResult& result_;
  BySize freed_, settled_;
};

}  // namespace

absl::StatusOr<std::vector<CellUse>> LargeValues::ListCells(OperationContext& context,
                                                            ServerId server, CellsListed which,
                                                            size_t max, CellPlace* place) {
  std::vector<CellUse> cells;
  while (!place->at_end && cells.size() < max) {
    if (context.expired()) return context.DeadlineError("listing cells");
    const CellQuery query{
        .tree_id = tree_.id(),
        .after_lines = place->lines,
        .after_offset = place->offset,
        .max = static_cast<uint32_t>(std::min(max - cells.size(), kListedNodesMax)),
        .which = static_cast<uint8_t>(which)};
    PANDO_ASSIGN_OR_RETURN(const CellList list, Ask(context, tree_, server, query));
    cells.insert(cells.end(), list.cells.begin(), list.cells.end());
    *place = {list.next_lines, list.next_offset, list.more == 0};
  }
  return cells;
}

absl::StatusOr<bool> LargeValues::IsReferredTo(OperationContext& context, ServerId server,
                                               const CellUse& cell, bool* gone) {
  const Reference reference = {RemoteAddress(server, cell.offset), cell.life};
  PANDO_ASSIGN_OR_RETURN(const std::string key, cells_.KeyOf(context, reference, cell.cell_lines));
  *gone = key.empty();
  if (*gone) return false;
  std::string stored;
  const absl::Status got =
      RuleHolds(Rule::kK8) ? GetSlot(context, key, &stored) : GetKey(context, tree_, key, &stored);
  if (absl::IsNotFound(got)) return false;
  PANDO_RETURN_IF_ERROR(got);
  const std::optional<StoredValue> parsed = ParseStored(stored);
  return parsed.has_value() && parsed->reference.has_value() &&
         parsed->reference->cell == reference;
}

absl::StatusOr<LargeValues::Decided> LargeValues::Decide(OperationContext& context, ServerId server,
                                                         const std::vector<CellUse>& cells,
                                                         HolderStates* holders, int64_t each_ns,
                                                         SweepResult* result) {
  Decisions decisions(context, tree_, server, result);
  Decided decided;
  for (const CellUse& cell : cells) {
    if (context.session.NowNs() + (each_ns == kNeverNs ? 0 : each_ns) >= context.deadline_ns()) {
      decided.complete = false;
      decided.not_said.Update(context.DeadlineError("sweeping cells"));
      break;
    }
    ++decided.looked_at;
    std::optional<uint64_t> asked;
    if (cell.use == NodeUse::kOrphan) {
      PANDO_ASSIGN_OR_RETURN(
          const bool dead, holders->IsDeadEverywhere(context, cell.compute_server, cell.incarnation,
                                                     &asked.emplace()));
      if (!dead) {
        ++result->left;
        decided.complete = false;
        continue;
      }
    }
    bool gone = false;
    absl::StatusOr<bool> referred = false;
    if (RuleHolds(Rule::kK4)) {
      const int64_t until_ns =
          each_ns == kNeverNs ? context.deadline_ns() : context.session.NowNs() + each_ns;
      OperationContext asking(context, until_ns);
      referred = IsReferredTo(asking, server, cell, &gone);
    }
    if (!referred.ok()) {
      if (context.session.fenced()) return referred.status();
      ++result->left;
      decided.complete = false;
      decided.not_said.Update(referred.status());
      continue;
    }
    if (*referred) {
      if (cell.use == NodeUse::kOrphan) PANDO_RETURN_IF_ERROR(decisions.Settle(cell));
      continue;
    }
    // The way down may have led over a server that the holder may still write to.
    if (asked.has_value() && *asked != context.session.generation()) {
      ++result->left;
      decided.complete = false;
      continue;
    }
    // One that was written in part has no key, and nothing ever referred to it.
    if (gone && cell.use == NodeUse::kSettled) continue;
    PANDO_RETURN_IF_ERROR(decisions.Free(cell));
  }
  PANDO_RETURN_IF_ERROR(decisions.Send());
  return decided;
}

absl::Status LargeValues::SweepAll(OperationContext& context, ServerId server,
                                   HolderStates* holders, SweepResult* result) {
  PANDO_ASSIGN_OR_RETURN(const CellList first,
                         Ask(context, tree_, server, {.tree_id = tree_.id(), .max = 1}));
  bool complete = true;
  absl::Status not_said;
  for (CellPlace place; !place.at_end;) {
    PANDO_ASSIGN_OR_RETURN(
        std::vector<CellUse> cells,
        ListCells(context, server, CellsListed::kSettled, kScannedForMax, &place));
    // What the tree refers to is not looked at one by one.
    if (!cells.empty()) PANDO_RETURN_IF_ERROR(LeaveOutReferredTo(context, server, &cells));
    PANDO_ASSIGN_OR_RETURN(const Decided decided,
                           Decide(context, server, cells, holders, kNeverNs, result));
    complete = complete && decided.complete;
    not_said.Update(decided.not_said);
    if (decided.looked_at < cells.size()) break;
  }
  PANDO_RETURN_IF_ERROR(not_said);
  return first.due != 0 && complete ? Done(context, server, first.due) : absl::OkStatus();
}

absl::Status LargeValues::SweepSome(OperationContext& context, ServerId server,
                                    HolderStates* holders, SweepResult* result) {
  // Somebody's end wants all cells looked at: one client at a time is asked to.
  PANDO_ASSIGN_OR_RETURN(const CellList first, Ask(context, tree_, server,
                                                   {.tree_id = tree_.id(), .max = 1, .takes = 1}));
  // The owner of one key may be out of reach for long: the others get their turn.
  const int64_t each_ns =
      std::min(kKeyNsMax, (context.deadline_ns() - context.session.NowNs()) / kPartOfTime);
  if (first.due == 0) {
    CellPlace place;
    PANDO_ASSIGN_OR_RETURN(const std::vector<CellUse> orphans,
                           ListCells(context, server, CellsListed::kOrphans, kLookedAtMax, &place));
    PANDO_ASSIGN_OR_RETURN(const Decided decided,
                           Decide(context, server, orphans, holders, each_ns, result));
    return decided.not_said;
  }
  Pass pass;
  {
    std::lock_guard lock(passes_mutex_);
    pass = passes_[server];
  }
  // What was looked at before that became due is looked at once more.
  if (pass.due != first.due) pass.complete = pass.due == 0;
  pass.due = first.due;
  const CellPlace from = pass.place;
  PANDO_ASSIGN_OR_RETURN(
      const std::vector<CellUse> cells,
      ListCells(context, server, CellsListed::kSettled, kLookedAtMax, &pass.place));
  PANDO_ASSIGN_OR_RETURN(const Decided decided,
                         Decide(context, server, cells, holders, each_ns, result));
  pass.complete = pass.complete && decided.complete;
  if (decided.looked_at < cells.size()) {
    pass.place = from;
    if (decided.looked_at > 0) {
      const CellUse& last = cells[decided.looked_at - 1];
      pass.place = {last.cell_lines, last.offset, false};
    }
  }
  const bool ends = pass.place.at_end;
  const bool done = ends && pass.complete;
  {
    std::lock_guard lock(passes_mutex_);
    passes_[server] = ends ? Pass() : pass;
  }
  return done ? Done(context, server, first.due) : decided.not_said;
}

absl::Status LargeValues::Done(OperationContext& context, ServerId server, uint64_t due) {
  return Ask(context, tree_, server, {.tree_id = tree_.id(), .max = 1, .done = due}).status();
}

absl::Status LargeValues::LeaveOutReferredTo(OperationContext& context, ServerId server,
                                             std::vector<CellUse>* cells) {
  absl::flat_hash_map<uint64_t, size_t> settled;
  for (size_t i = 0; i < cells->size(); ++i) {
    if ((*cells)[i].use == NodeUse::kSettled) settled.emplace((*cells)[i].offset, i);
  }
  SlotReader reader = RuleHolds(Rule::kK8) ? NewSlotReader() : SlotReader(&tree_, nullptr);
  reader.Start(KeyCut::Lowest(), KeyCut::Highest(tree_.layout.key_bytes_max()), /*down=*/false);
  constexpr size_t kLeavesAtOnce = 16;
  while (!reader.done()) {
    if (context.expired()) return context.DeadlineError("looking for cells that are in use");
    PANDO_RETURN_IF_ERROR(reader.Read(context, kLeavesAtOnce, [&](LeafEntry& entry) {
      const std::optional<StoredValue> parsed = ParseStored(entry.value);
      if (!parsed.has_value() || !parsed->reference.has_value()) return true;
      const Reference& cell = parsed->reference->cell;
      if (cell.address.server() != server) return true;
      const auto found = settled.find(cell.address.offset());
      if (found != settled.end() && (*cells)[found->second].life == cell.life) settled.erase(found);
      return true;
    }));
  }
  std::erase_if(*cells, [&](const CellUse& cell) {
    return cell.use == NodeUse::kSettled && !settled.contains(cell.offset);
  });
  return absl::OkStatus();
}

absl::Status LargeValues::Sweep(OperationContext& context, bool thorough, SweepResult* result) {
  const int64_t until_ns = SweepDeadlineNs(context, thorough);
  FlushBeforeSweep(context, tree_, until_ns);
  HolderStates holders(tree_);
  absl::Status first;
  const std::vector<ServerId> servers = tree_.environment.members.Ids();
  for (size_t i = 0; i < servers.size(); ++i) {
    const ServerId server = servers[i];
    // Of a part, what one server takes is not the others' time.
    const int64_t now_ns = context.session.NowNs();
    const auto left = static_cast<int64_t>(servers.size() - i);
    OperationContext part(context, now_ns + (until_ns - now_ns) / left);
    absl::Status status = thorough ? SweepAll(context, server, &holders, result)
                                   : SweepSome(part, server, &holders, result);
    if (absl::IsUnavailable(status) && !IsRecoverable(status)) {
      const absl::StatusOr<bool> counts = tree_.MayHaveNodesOn(context, server);
      if (counts.ok() && !*counts) status = absl::OkStatus();
    }
    if (first.ok()) first = status;
  }
  return first;
}

}  // namespace pando
