// How long erases may stay messages (rule B5; Lethe, SIGMOD'20): when what was appended, and what
// is brought to its leaf because of that.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <mutex>
#include <utility>

#include "common/wire/owner_messages.h"
#include "compute/owner/collect.h"
#include "compute/owner/member.h"

namespace pando {
namespace {

constexpr int64_t kNoTombstone = INT64_MAX;
// Notes of the time in the shortest of all deadlines.
constexpr int64_t kMarksPerDeadline = 16;
// And how many are kept: beyond, every second one goes.
constexpr size_t kMarksMax = 256;
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
    if (deadline_ns > 0) pause_ns = std::min(pause_ns, deadline_ns / kMarksPerDeadline);
  }
  return pause_ns;
}

int64_t Member::FlushRoundNs() const {
  const int64_t pause_ns = DeletePauseNs(kNoTombstone);
  if (pause_ns == kNoTombstone) return kRoundNsMax;
  return std::clamp(pause_ns * kMarksPerDeadline / kRoundsPerDeadline, kRoundNsMin, kRoundNsMax);
}

void Member::NoteTime() {
  const int64_t now_ns = NowNs();  // before the LSN: whatever has that, or a higher one, is younger
  const Lsn next = log_->next_lsn();
  if (!marks_.empty() && marks_.back().lsn == next) marks_.pop_back();  // nothing came since
  marks_.push_back({next, now_ns});
  if (marks_.size() <= kMarksMax) return;
  for (size_t i = 1; i < marks_.size() / 2; ++i) marks_[i] = marks_[2 * i];
  marks_.resize(marks_.size() / 2);
}

int64_t Member::AppendedAfter(Lsn lsn) const {
  const auto mark = std::upper_bound(marks_.begin(), marks_.end(), lsn,
                                     [](Lsn of, const TimeMark& other) { return of < other.lsn; });
  return mark == marks_.begin() ? 0 : std::prev(mark)->time_ns;
}

Lsn Member::AppendedBefore(int64_t time_ns) const {
  const auto mark =
      std::lower_bound(marks_.begin(), marks_.end(), time_ns,
                       [](const TimeMark& other, int64_t of) { return other.time_ns < of; });
  return mark == marks_.end() ? log_->next_lsn() : mark->lsn;
}

void Member::FlushOverdue(OperationContext& context) {
  if (log_->is_in_place()) NoteTime();
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
    // From half of the deadline on, so that what takes its time is in time; and then all that have
    // waited for a quarter, so that many go at once.
    const bool is_due =
        deadline_ns > 0 && lowest != kNoLsn && lowest < AppendedBefore(NowNs() - deadline_ns / 2);
    if (is_due && NowNs() >= range->overdue_again_ns &&
        !FlushTombstones(half, tree, range, AppendedBefore(NowNs() - deadline_ns / 4))) {
      // Somebody holds a leaf, or it is out of reach: what is dirty elsewhere has its turn.
      range->overdue_again_ns = NowNs() + deadline_ns / kMarksPerDeadline;
    }
    std::lock_guard lock(range->partition.mutex());
    tombstones += range->partition.tombstones();
    lowest = range->partition.LowestTombstone();
    if (lowest != kNoLsn) lowest_of_all = std::min(lowest_of_all, lowest);
  }
  context.cost += half.cost;
  // While the log moves, whatever is appended again is as old as any (rule W6).
  if (!log_->is_in_place() && !marks_.empty()) marks_.resize(1);
  tombstones_.store(tombstones, std::memory_order_relaxed);
  oldest_tombstone_ns_.store(tombstones > 0 ? AppendedAfter(lowest_of_all) : kNoTombstone,
                             std::memory_order_relaxed);
  // What is older than all of them nobody will ask for.
  size_t useless = 0;
  while (useless + 1 < marks_.size() && marks_[useless + 1].lsn <= lowest_of_all) ++useless;
  marks_.erase(marks_.begin(), marks_.begin() + static_cast<std::ptrdiff_t>(useless));
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
