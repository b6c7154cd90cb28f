// Every value of a tree with cells is READ, and every cell has to be somebody's.
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "compute/value/large_values.h"

namespace pando {
namespace {

constexpr size_t kLeavesAtOnce = 16;

}  // namespace

absl::Status LargeValues::Check(OperationContext& context, const CheckOptions& options,
                                CheckReport* report) {
  const auto add_problem = [&](std::string problem) {
    if (report->problems.size() < options.problems_max) {
      report->problems.push_back(std::move(problem));
    }
  };
  absl::flat_hash_set<Reference> referred_to;
  report->value_bytes = 0;
  SlotReader reader = NewSlotReader();
  reader.Start(KeyCut::Lowest(), KeyCut::Highest(tree_.layout.key_bytes_max()), /*down=*/false);
  std::vector<LeafEntry> entries;
  while (!reader.done()) {
    if (context.expired()) return context.DeadlineError("checking values");
    entries.clear();
    PANDO_RETURN_IF_ERROR(reader.Read(context, kLeavesAtOnce, [&](LeafEntry& entry) {
      entries.push_back(std::move(entry));
      return true;
    }));
    for (LeafEntry& entry : entries) {
      const std::optional<StoredValue> parsed = ParseStored(entry.value);
      if (!parsed.has_value()) {
        add_problem("a slot holds neither a value nor a reference to one");
        continue;
      }
      if (parsed->reference.has_value()) {
        const CellReference& cell = *parsed->reference;
        ++report->cells;
        report->cells_bytes += uint64_t{CellLines(entry.key.size(), cell.value_bytes)} * kLineBytes;
        if (!referred_to.insert(cell.cell).second) {
          add_problem(absl::StrCat("two keys refer to the cell at offset ",
                                   cell.cell.address.offset(), " of memory server ",
                                   cell.cell.address.server()));
        }
      }
      std::vector<bool> there;
      const absl::Status resolved = Resolve(context, {&entry, 1}, &there);
      if (absl::IsDataLoss(resolved)) {
        add_problem(std::string(resolved.message()));
        continue;
      }
      PANDO_RETURN_IF_ERROR(resolved);
      if (there[0]) report->value_bytes += entry.value.size();
    }
  }
  // What this client has freed is not on its way any more. Approximate while others write; the
  // sweep makes sure.
  tree_.environment.allocator.FlushTree(context, tree_.id());
  for (const ServerId server : tree_.environment.members.Ids()) {
    CellPlace place;
    const absl::StatusOr<std::vector<CellUse>> listed =
        ListCells(context, server, CellsListed::kAll, SIZE_MAX, &place);
    if (absl::IsUnavailable(listed.status()) && !IsRecoverable(listed.status())) continue;
    PANDO_RETURN_IF_ERROR(listed.status());
    for (const CellUse& cell : *listed) {
      const bool in_use = referred_to.erase({RemoteAddress(server, cell.offset), cell.life}) > 0;
      if (!in_use && cell.use != NodeUse::kOut) ++report->cells_unused;
    }
  }
  for (const Reference& cell : referred_to) {
    if (!options.quiet_tree) break;
    add_problem(absl::StrCat("the cell at offset ", cell.address.offset(), " of memory server ",
                             cell.address.server(), " has a value, and is free for others"));
  }
  return absl::OkStatus();
}

}  // namespace pando
