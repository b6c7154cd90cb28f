// Which records go to their leaves first: those of the level-1 node below which most are dirty
// (rule B2), the child with most messages of a Bε-tree's root.
//
// Whoever flushes takes the last group of one list: this member's session, and those of its team
// (ClientOptions::flush_threads). The member's session stays at the flushes' turnstile until all of
// them have come to their end.
//
// A group has no fewer dirty records than were counted until its turn comes: flushes are at one
// turnstile, and nothing else but an erase's deadline and a refusal makes fewer of them. What never
// gathers many goes as what holds the log's base (rule W5), or as tombstones (rule B5).
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "common/base/rule.h"
#include "compute/index/write_run.h"
#include "compute/owner/collect.h"
#include "compute/owner/group_list.h"
#include "compute/owner/member.h"

namespace pando {
namespace {

// Where a level-1 node is not cached it is READ, at most once for so many dirty records: far less
// than what their leaves cost. Where more of them are not, it goes in the order of keys, whose
// flushes bring them to the cache.
constexpr size_t kRecordsADescent = 1024;
// Between two looks at what else the session has to do.
constexpr size_t kGroupsAtOnce = 128;
constexpr size_t kGroupsMax = 1 << 16;

}  // namespace

std::vector<DirtyGroup> Member::FullestGroups(OperationContext& context) {
  const std::vector<Place> places = Places();
  size_t dirty = 0;
  for (const auto& [tree, range] : places) {
    std::lock_guard lock(range->partition.mutex());
    dirty += range->partition.dirty().records;
  }
  size_t descents = dirty / kRecordsADescent;
  std::vector<DirtyGroup> groups;
  for (const Place& place : places) {
    if (!AddGroups(context, place, &descents, &groups)) return {};
  }
  if (!RuleHolds(Rule::kB2)) return groups;  // the variant has no fullest ones
  std::stable_sort(groups.begin(), groups.end(),
                   [](const DirtyGroup& a, const DirtyGroup& b) { return a.records < b.records; });
  return groups;
}

bool Member::AddGroups(OperationContext& context, const Place& place, size_t* descents,
                       std::vector<DirtyGroup>* groups) {
  const auto& [tree, range] = place;
  std::string from = range->low;
  while (true) {
    // Nodes below which nothing is dirty are not looked at.
    bool any = false;
    {
      std::lock_guard lock(range->partition.mutex());
      range->partition.Scan(from, "", /*reverse=*/false, [&](const Partition::Seen& seen) {
        any = true;
        from = seen.key;
        return false;
      });
    }
    if (!any) return true;
    std::optional<std::string> to = NextGroup(context, tree->leaves(), from);
    if (!to.has_value() && *descents > 0) {
      --*descents;
      (void)LeadTo(context, tree->leaves(), from);
      to = NextGroup(context, tree->leaves(), from);
    }
    if (!to.has_value() || groups->size() == kGroupsMax) return false;
    const bool is_last = to->empty() || (!range->high.empty() && *to >= range->high);
    DirtyGroup group = {.tree = tree, .range = range, .from = from, .to = *to, .records = 0};
    {
      std::lock_guard lock(range->partition.mutex());
      group.records = range->partition.CountDirty(from, *to);
      range->Charge(context.session, /*records=*/1);
    }
    groups->push_back(std::move(group));
    if (is_last) return true;
    from = *std::move(to);
    if (groups->size() % kGroupsAtOnce == 0) context.session.scheduler().Yield();
  }
}

size_t Member::FlushGroups(OperationContext& context, GroupList* groups) {
  while (true) {
    std::optional<DirtyGroup> group = groups->Take(/*range=*/nullptr, SIZE_MAX);
    if (!group.has_value()) return 0;
    OwnedTree* const tree = group->tree;
    OwnRange* const range = group->range;
    std::vector<FlushItem> items;
    // Groups as a whole, where they fit, so that no leaf is written twice.
    while (group.has_value()) {
      group->from =
          CollectDirty(context, range, log_->durable(), group->from, group->to, {}, &items);
      if (!group->from.empty()) {
        groups->PutBack(*std::move(group));
        break;
      }
      const size_t room = kFlushRoundMax - std::min(items.size(), kFlushRoundMax);
      group = groups->Take(range, items.empty() ? SIZE_MAX : room);
    }
    std::sort(items.begin(), items.end(),
              [](const FlushItem& a, const FlushItem& b) { return a.key < b.key; });
    const size_t flushed = FlushItems(context, tree, range, items).value_or(0);
    if (flushed > 0) return flushed;
    if (context.expired()) return 0;
    context.session.scheduler().Yield();  // very many may be looked at in vain
  }
}

std::unique_ptr<FlushTeam::Run> Member::CallTeam(OperationContext& context,
                                                 std::shared_ptr<GroupList> groups) {
  const auto work = [this, groups = std::move(groups),
                     deadline_ns = context.deadline_ns()](SessionContext* session) {
    OperationContext own(session, deadline_ns);
    size_t flushed = 0;
    for (size_t some = 1; some > 0 && WantsFlush(); flushed += some) {
      some = FlushGroups(own, groups.get());
    }
    return flushed;
  };
  return std::make_unique<FlushTeam::Run>(team_.get(), &context.session.scheduler(), work);
}

}  // namespace pando
