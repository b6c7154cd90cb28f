// How a member's records come to their leaves, and how its log's base follows (rules B2, B4, W5).
#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "compute/owner/collect.h"
#include "compute/owner/flush.h"
#include "compute/owner/flush_ends.h"
#include "compute/owner/group_list.h"
#include "compute/owner/member.h"
#include "compute/owner/turnstile.h"

namespace pando {
namespace {

// Between two looks of the flush loop that nobody asks for.
constexpr int64_t kLookNs = 50 * kMillisecondNs;
constexpr int64_t kRoundNs = 10 * kSecondNs;
// While others flush what is left.
constexpr int64_t kBackOffChains = 16;

// What has failed otherwise is told first (flush.h).
absl::Status RefusalOf(const absl::Status& flushed) {
  return absl::IsResourceExhausted(flushed)
             ? flushed
             : absl::ResourceExhaustedError("memory servers have no room for more");
}

// Until all of these are durable. `between`: what others wait for, every so often.
absl::Status AwaitDurable(OperationContext& context, RedoLog* log,
                          const std::vector<FlushItem>& items, int64_t pause_ns,
                          absl::FunctionRef<void()> between) {
  Lsn newest = kNoLsn;
  for (const FlushItem& item : items) newest = std::max(newest, item.lsn);
  while (true) {
    const int64_t until_ns = context.session.NowNs() + pause_ns;
    OperationContext waiting(context, std::min(context.deadline_ns(), until_ns));
    absl::Status durable = log->AwaitDurable(waiting, newest);
    if (!absl::IsDeadlineExceeded(durable) || context.expired()) return durable;
    between();
  }
}

}  // namespace

// --- The background.

void Member::FlushLoop(Parking* parking) {
  {
    std::lock_guard lock(mutex_);
    flush_parking_ = parking;
  }
  NoteTime();  // before anything is appended
  bool goes_on = false;
  while (Pause(parking, NowNs() + (goes_on ? 0 : DeletePauseNs(kLookNs)))) {
    goes_on = false;
    const Turnstile::Pass pass(flushing_.get());
    if (!joined_.load(std::memory_order_acquire)) continue;  // it has left, and its log is freed
    OperationContext context(session_, NowNs() + kRoundNs);
    FlushOverdue(context);
    if (is_refusing()) TryRefused(context);
    goes_on = FlushUntilLow(context);
    WakeWriters();
  }
  std::lock_guard lock(mutex_);
  flush_parking_ = nullptr;
}

bool Member::WantsFlush() const {
  const bool is_over = dirty_bytes_.load(std::memory_order_relaxed) > LowMark();
  // With a log that has failed, what is durable is brought to the leaves all the same.
  return LogIsFull() || !log_->failure().ok() ||
         (is_over && flush_wanted_.load(std::memory_order_relaxed));
}

bool Member::FlushUntilLow(OperationContext& context) {
  bool is_wanted = false;
  const auto groups = std::make_shared<GroupList>();
  std::unique_ptr<FlushTeam::Run> team;
  while (!stopping_.load(std::memory_order_acquire) && !context.expired() && WantsFlush()) {
    FlushOverdue(context);
    // What holds the base first (rule W5).
    const Lsn base = log_->base();
    const Lsn middle = base + (log_->next_lsn() - base) / 2;
    const bool holds_base = LogIsFull() && log_->is_in_place();
    size_t gone = 0;
    if (holds_base) gone = FlushSome(context, middle, /*refused=*/false);
    // The base is known by segments of LSNs: one that reaches beyond the middle holds it, too.
    if (gone == 0) {
      if (groups->empty()) {
        team.reset();  // what it has in hand is flushed
        groups->Fill(FullestGroups(context));
        team = CallTeam(context, groups);
      }
      gone = FlushGroups(context, groups.get());
      if (gone == 0) gone = team->Join();
    }
    if (gone == 0) gone = FlushSome(context, UINT64_MAX, /*refused=*/false);
    // An erase is refused by nobody, but its leaf's server may be gone.
    const bool appends_again = holds_base && (is_refusing() || gone == 0);
    if (appends_again) gone += AppendAgain(context, middle, /*erases=*/gone == 0);
    if (gone == 0 || !AdvanceBase(context, /*exactly=*/appends_again).ok()) break;
    WakeWriters();
    // Where writers never stop this does not end by itself.
    is_wanted = flushing_->is_wanted() && RuleHolds(Rule::kB2Turn);
    if (is_wanted) break;
  }
  // Whoever passes the turnstile next finds no flush under way.
  groups->Close();
  team.reset();
  if (dirty_bytes_.load(std::memory_order_relaxed) <= LowMark()) {
    flush_wanted_.store(false, std::memory_order_relaxed);
  }
  // What was appended again may be all that holds it, and lies anywhere.
  if (log_->used_bytes() > log_->capacity_bytes() / 2) {
    (void)AdvanceBase(context, /*exactly=*/is_refusing());
  }
  return is_wanted;
}

absl::StatusOr<size_t> Member::FlushItems(OperationContext& context, OwnedTree* tree,
                                          OwnRange* range, const std::vector<FlushItem>& items) {
  if (items.empty()) return size_t{0};
  FlushCounts counts;
  FlushEnds ends(this, &context.session, range, &items);
  const auto ended = [&](size_t i, FlushResult result) {
    if (result != FlushResult::kRefused) return ends.Add(i, result);
    std::lock_guard refusing(refusing_mutex_);
    ends.Add(i, result);
    ends.EndAll();
    if (!is_refusing()) {
      const bool gone = counts.refused == counts.gone;
      std::lock_guard why(mutex_);
      refused_ = gone ? LeavesGoneError() : absl::OkStatus();  // as yet
    }
    // At once: until then blind puts bring new keys.
    is_refusing_.store(true, std::memory_order_relaxed);
  };
  // A leaf that somebody holds keeps neither others' erases nor writers waiting (rules B2, B5).
  // What needs memory that rests goes once more, with the time for that, unless erases have
  // deadlines.
  const auto until = [&](int64_t most_ns) {
    return std::min(context.deadline_ns(), context.session.NowNs() + most_ns);
  };
  const bool may_wait = DeletePauseNs(kNeverNs) == kNeverNs;
  std::vector<size_t> waiting;
  uint64_t gone = 0;
  absl::Status flushed =
      FlushToLeaves(&context.session, &tree->leaves(), until(FlushRoundNs()), items, &counts,
                    [&](size_t i, FlushResult result) {
                      const bool is_gone = std::exchange(gone, counts.gone) < counts.gone;
                      if (!may_wait || result != FlushResult::kRefused || is_gone) {
                        return ended(i, result);
                      }
                      --counts.refused;
                      waiting.push_back(i);
                    });
  ends.EndAll();
  if (context.expired()) {
    for (const size_t i : std::exchange(waiting, {})) {
      ++counts.refused;
      ended(i, FlushResult::kRefused);
    }
    ends.EndAll();
  }
  if (!waiting.empty()) {
    WakeWriters();
    std::sort(waiting.begin(), waiting.end());
    std::vector<FlushItem> once_more;
    for (const size_t i : waiting) once_more.push_back(items[i]);
    const absl::Status then =
        FlushToLeaves(&context.session, &tree->leaves(), until(kFlushNsMax), once_more, &counts,
                      [&](size_t i, FlushResult result) { ended(waiting[i], result); });
    ends.EndAll();
    if (flushed.ok() || absl::IsResourceExhausted(flushed)) flushed = then;
  }
  if (counts.refused > counts.gone) range->NoteFull();
  {
    std::lock_guard lock(mutex_);
    stats_.flushed += counts.messages;
    stats_.flushed_leaves += counts.leaves;
    stats_.refused += counts.refused;
    ++stats_.flush_rounds;
    if (counts.refused > counts.gone) refused_ = RefusalOf(flushed);
  }
  NoteRefusing();
  WakeWriters();
  if (!flushed.ok()) return flushed;
  return counts.messages;
}

std::vector<Member::Place> Member::Places() const {
  std::vector<Place> places;
  for (OwnedTree* const tree : OpenTrees()) {
    for (OwnRange* const range : tree->OwnRanges()) places.push_back({tree, range});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::pair(a.tree->id(), std::string_view(a.range->low)) <
           std::pair(b.tree->id(), std::string_view(b.range->low));
  });
  return places;
}

// In the order of keys, round and round: where the last round began most has gathered since. What
// holds the log's base goes this way, and all of a tree whose level-1 nodes are not known here.
size_t Member::FlushSome(OperationContext& context, Lsn below, bool refused) {
  const std::vector<Place> places = Places();
  if (places.empty()) return 0;
  size_t at = 0;
  while (at < places.size() &&
         (places[at].tree->id() < flush_tree_id_ ||
          (places[at].tree->id() == flush_tree_id_ && !places[at].range->high.empty() &&
           places[at].range->high <= flush_from_))) {
    ++at;
  }
  // Once round, and the first place once more from its beginning.
  for (size_t tried = 0; tried <= places.size();) {
    if (at == places.size()) {
      at = 0;
      flush_from_.clear();
    }
    const auto& [tree, range] = places[at];
    if (tree->id() != flush_tree_id_) flush_from_.clear();
    flush_tree_id_ = tree->id();
    flush_from_ = std::max(flush_from_, range->low);
    std::vector<FlushItem> items;
    std::string next = CollectDirty(context, range, log_->durable(), flush_from_, "",
                                    {.refused = refused, .below = below}, &items);
    const bool ended = next.empty();
    flush_from_ = ended ? range->high : std::move(next);
    if (ended && range->high.empty())
      ++flush_tree_id_;  // the next one is another tree's, or the first again
    if (items.empty() && !ended) {
      context.session.scheduler().Yield();  // very many may be looked at in vain
      continue;
    }
    // Of a tree that has lost what it had, others' turn comes all the same.
    const size_t flushed = FlushItems(context, tree, range, items).value_or(0);
    if (flushed > 0) return flushed;
    ++tried;
    ++at;
  }
  return 0;
}

absl::Status Member::AdvanceBase(OperationContext& whole, bool exactly) {
  if (!log_->is_in_place()) return absl::OkStatus();  // nothing becomes durable until it is
  OperationContext context(whole, std::min(whole.deadline_ns(), NowNs() + kJobNsMin));
  // The end before the first look: what is appended later is above it (rule W5).
  Lsn end = log_->next_lsn();
  Lsn lowest = adopted_.has_value() ? std::min(kept_lsn_, adopted_->since) : kept_lsn_;
  for (const auto& [tree, range] : Places()) {
    if (exactly) {
      SeeDirty(context, range,
               [&](const Partition::Seen& seen) { lowest = std::min(lowest, seen.lsn); });
    } else {
      std::lock_guard lock(range->partition.mutex());
      const Lsn of_range = range->partition.LowestDirty();
      if (of_range != kNoLsn) lowest = std::min(lowest, of_range);
    }
    if (RuleHolds(Rule::kW5End)) continue;
    context.BackOff(1);  // others append, as threads do beside the looks
    end = log_->next_lsn();
  }
  return log_->AdvanceBase(context, std::min(lowest, end));
}

// --- On request.

absl::Status Member::FlushTree(OperationContext& context, OwnedTree* tree) {
  if (!IsOpen(tree)) return absl::FailedPreconditionError("the tree is being closed");
  Turnstile::Pass pass(flushing_.get(), context.deadline_ns());
  if (!pass.ok()) return context.DeadlineError("waiting for other flushes");
  if (!IsOpen(tree)) return absl::FailedPreconditionError("the tree is being closed");
  std::string from;  // what is below has been flushed
  for (bool again = true; again;) {
    again = false;
    for (OwnRange* const range : tree->OwnRanges()) {
      if (!range->high.empty() && range->high <= from) continue;
      // Divided while others passed, it or one before it: its parts have what is left.
      again = range->IsGone();
      if (again) break;
      const absl::Status flushed = FlushRange(context, tree, range, &pass);
      again = absl::IsAborted(flushed) && range->IsGone();
      if (again) break;
      PANDO_RETURN_IF_ERROR(flushed);
      from = range->high;
    }
  }
  // Ranges may have gone for another reason.
  PANDO_RETURN_IF_ERROR(tree->leaves().fate.status());
  if (tree->dropped()) return tree->DroppedError();
  if (!joined_.load(std::memory_order_acquire)) return absl::OkStatus();
  // All is in the leaves, whatever becomes of the log: where it can be read after this member's
  // death it has these messages, or newer ones of their keys, from its base on.
  (void)AdvanceBase(context);
  return absl::OkStatus();
}

absl::Status Member::FlushRange(OperationContext& context, OwnedTree* tree, OwnRange* range,
                                Turnstile::Pass* pass) {
  Partition& partition = range->partition;
  uint64_t owing;
  {
    std::lock_guard lock(partition.mutex());
    owing = partition.owing();
  }
  // What another one waits for, or has left.
  PANDO_RETURN_IF_ERROR(FlushOwed(context, tree, range, pass, owing));
  while (true) {
    {
      std::lock_guard lock(partition.mutex());
      // If another one has said so meanwhile, what was dirty when this one came is owed, too.
      if (partition.owed() == 0) partition.Owe();
      owing = partition.owing();
      partition.DivideLsns(log_->next_lsn());  // for the log's base, soon
    }
    PANDO_RETURN_IF_ERROR(FlushOwed(context, tree, range, pass, owing));
    std::lock_guard lock(partition.mutex());
    // A range on hold is flushed so that nothing of it is dirty. What was appended again in the
    // middle of its flush (rules W5, W6) is dirty still, though its leaf has it.
    const bool is_on_hold = range->state == OwnRange::State::kWaiting && RuleHolds(Rule::kW6Flush);
    if (!is_on_hold || range->IsClean()) return absl::OkStatus();
  }
}

absl::Status Member::FlushOwed(OperationContext& context, OwnedTree* tree, OwnRange* range,
                               Turnstile::Pass* pass, uint64_t owing) {
  // Of other keys, and other trees; that is for who has the turnstile. Operations wait for a range
  // that is on hold, and the flush loop sees to the others.
  const auto flush_overdue = [&] {
    if (pass == nullptr) return;
    OperationContext some(context, std::min(context.deadline_ns(), NowNs() + kRoundNs));
    FlushOverdue(some);
  };
  // First what is durable; then the rest, with the records in hand until it is. Where one is
  // written all the time nobody who looks would find that its newest message is durable.
  bool waits = false;
  std::string from = range->low;
  while (true) {
    std::vector<FlushItem> items, late;
    bool is_done;
    {
      std::lock_guard lock(range->partition.mutex());
      is_done = range->partition.owed() == 0 || range->partition.owing() != owing;
    }
    if (is_done) return absl::OkStatus();
    // What is collected has to be flushed.
    if (!context.expired()) {
      CollectDirty(context, range, waits ? UINT64_MAX : log_->durable(), from, "",
                   {.refused = true, .owed = true, .looks_max = SIZE_MAX}, &items);
    }
    if (items.empty()) {
      if (context.expired()) return context.DeadlineError("flushing records to their leaves");
      // Round again: what is left was behind, is not durable, or is in another flush.
      const bool is_whole_round = from == range->low;
      if (is_whole_round && waits) {
        context.BackOff(kBackOffChains);
        PANDO_RETURN_IF_ERROR(LetOthersFlush(context, pass, tree, range));
      }
      waits = is_whole_round;
      from = range->low;
      continue;
    }
    from = items.back().key + '\0';
    OperationContext waiting(context, std::min(context.deadline_ns(), NowNs() + kJobNsMin));
    const absl::Status durable =
        AwaitDurable(waiting, log_.get(), items, FlushRoundNs(), flush_overdue);
    if (!durable.ok()) {
      const Lsn last = log_->durable();
      const auto first = std::stable_partition(
          items.begin(), items.end(), [last](const FlushItem& item) { return item.lsn <= last; });
      late.assign(std::move_iterator(first), std::move_iterator(items.end()));
      items.erase(first, items.end());
      FlushEnds(this, &context.session, range, &late).GiveBack();
    }
    const absl::Status flushed = FlushItems(context, tree, range, items).status();
    if (!flushed.ok()) {
      // A queue pair that broke is there again in a moment; a range on hold does not wait for that.
      const bool broke = IsRecoverable(flushed) || IsOutcomeUnknown(flushed);
      const bool goes_on = absl::IsDeadlineExceeded(flushed) || (broke && pass != nullptr);
      if (!goes_on || context.expired() || session_->fenced()) return flushed;
      if (broke) context.BackOff(kBackOffChains);
    }
    if (!durable.ok() && !absl::IsDeadlineExceeded(durable)) return durable;
    flush_overdue();
    PANDO_RETURN_IF_ERROR(LetOthersFlush(context, pass, tree, range));
  }
}

absl::Status Member::LetOthersFlush(OperationContext& context, Turnstile::Pass* pass,
                                    OwnedTree* tree, OwnRange* range) {
  if (pass == nullptr || !flushing_->is_wanted()) return absl::OkStatus();
  if (!pass->LetOthers(context.deadline_ns())) {
    return context.DeadlineError("waiting for other flushes");
  }
  if (!IsOpen(tree)) return absl::FailedPreconditionError("the tree is being closed");
  if (range->IsGone()) return absl::AbortedError("the range has changed while it was flushed");
  return absl::OkStatus();
}

}  // namespace pando
