// How long erases may stay messages (rule B5; Lethe, SIGMOD'20): when what was appended, and what
// is brought to its leaf because of that.
#include <algorithm>
#include <mutex>
#include <utility>

#include "common/base/rule.h"
#include "common/wire/owner_messages.h"
#include "compute/owner/collect.h"
#include "compute/owner/member.h"

namespace pando {
namespace {

constexpr int64_t kNoTombstone = INT64_MAX;
// Notes of the time in the shortest of all deadlines.
constexpr int64_t kNotesPerDeadline = 16;
// Rounds of flushes in the shortest of all deadlines, and what they have at least, and at most
// (also if there is none): leaves that somebody holds keep the flush loop, and who waits for room,
// no longer.
constexpr int64_t kRoundsPerDeadline = 8, kRoundNsMin = 5 * kMillisecondNs, kRoundNsMax = kSecondNs;

int64_t DeleteDeadlineNs(const OwnedTree& tree) {
  return int64_t{tree.delete_persistence_ms()} * kMillisecondNs;
}

}  // namespace

int64_t Member::DeletePauseNs(int64_t longest_ns) const {
  int64_t pause_ns = longest_ns;
  for (const OwnedTree* const tree : OpenTrees()) {
    const int64_t deadline_ns = DeleteDeadlineNs(*tree);
    if (deadline_ns > 0) pause_ns = std::min(pause_ns, deadline_ns / kNotesPerDeadline);
  }
  return pause_ns;
}

int64_t Member::FlushRoundNs() const {
  const int64_t pause_ns = DeletePauseNs(kNoTombstone);
  if (pause_ns == kNoTombstone) return kRoundNsMax;
  return std::clamp(pause_ns * kNotesPerDeadline / kRoundsPerDeadline, kRoundNsMin, kRoundNsMax);
}

void Member::NoteTime() {
  const int64_t now_ns = NowNs();
  appended_.Note(now_ns, log_->next_lsn());
}

void Member::FlushOverdue(OperationContext& context) {
  if (log_->is_in_place() || !RuleHolds(Rule::kB5Age)) NoteTime();
  // The other half of the time is for all that is not overdue.
  const int64_t now_ns = NowNs();
  OperationContext half(context, now_ns + (context.deadline_ns() - now_ns) / 2);
  Lsn lowest_of_all = UINT64_MAX;
  uint64_t tombstones = 0;
  for (const auto& [tree, range] : Places()) {
    const int64_t deadline_ns = DeleteDeadlineNs(*tree);
    Lsn lowest;
    {
      std::lock_guard lock(range->partition.mutex());
      range->partition.DivideTombstones(log_->next_lsn());
      lowest = range->partition.LowestTombstone();
    }
    const auto before = [&](int64_t time_ns) {
      return appended_.Before(time_ns, log_->next_lsn());
    };
    // From half of the deadline on, so that what takes its time is in time; and then all that have
    // waited for a quarter, so that many go at once.
    const bool is_due = deadline_ns > 0 && lowest != kNoLsn &&
                        lowest < before(NowNs() - deadline_ns / 2) && RuleHolds(Rule::kB5);
    if (is_due && NowNs() >= range->overdue_again_ns &&
        !FlushTombstones(half, tree, range, before(NowNs() - deadline_ns / 4))) {
      // Somebody holds a leaf, or it is out of reach: what is dirty elsewhere has its turn.
      range->overdue_again_ns = NowNs() + deadline_ns / kNotesPerDeadline;
    }
    std::lock_guard lock(range->partition.mutex());
    tombstones += range->partition.tombstones();
    lowest = range->partition.LowestTombstone();
    if (lowest != kNoLsn) lowest_of_all = std::min(lowest_of_all, lowest);
  }
  context.cost += half.cost;
  // While the log moves, whatever is appended again is as old as any (rule W6).
  if (!log_->is_in_place() && RuleHolds(Rule::kB5Age)) appended_.NoteAppendedAgain();
  tombstones_.store(tombstones, std::memory_order_relaxed);
  oldest_tombstone_ns_.store(tombstones > 0 ? appended_.After(lowest_of_all) : kNoTombstone,
                             std::memory_order_relaxed);
  appended_.Forget(lowest_of_all);
}

bool Member::FlushTombstones(OperationContext& context, OwnedTree* tree, OwnRange* range,
                             Lsn below) {
  bool all = true;
  // Where the time ended last.
  std::string from = std::max(range->low, std::exchange(range->overdue_from, ""));
  while (!stopping_.load(std::memory_order_acquire) && !context.expired()) {
    std::vector<FlushItem> items;
    from = CollectDirty(context, range, log_->durable(), from, "",
                        {.refused = true, .tombstones = true, .below = below}, &items);
    // Leaves that cannot be reached keep no others waiting: their turn comes again in a moment.
    const absl::Status flushed = FlushItems(context, tree, range, items).status();
    all = all && flushed.ok();
    if (!flushed.ok() && (tree->leaves().fate.lost() || session_->fenced())) return false;
    if (from.empty()) return all;
    if (items.empty()) context.session.scheduler().Yield();  // very many are looked at in vain
  }
  range->overdue_from = std::move(from);
  return false;
}

uint64_t Member::OldestTombstoneMs() const {
  const int64_t oldest_ns = oldest_tombstone_ns_.load(std::memory_order_relaxed);
  if (oldest_ns == kNoTombstone) return 0;
  return static_cast<uint64_t>(std::max<int64_t>(0, NowNs() - oldest_ns) / kMillisecondNs);
}

void Member::SayDeletes(OperationContext& context, bool* told) const {
  const PendingDeletes deletes = {.tombstones = tombstones_.load(std::memory_order_relaxed),
                                  .oldest_ms = std::min(OldestTombstoneMs(), kPendingDeleteMsMax)};
  if (deletes.tombstones == 0 && !*told) return;
  const absl::Status said = control_
                                .Call(context, catalog_server_, ControlOpcode::kNoteDeletes,
                                      EncodePendingDeletes(deletes))
                                .status();
  if (said.ok()) *told = deletes.tombstones > 0;
}

}  // namespace pando
