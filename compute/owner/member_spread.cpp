// How members come to have as much to do as each other, and their threads not to wait for each
// other (rule O13), and what they say of that.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "compute/owner/even_clocks.h"
#include "compute/owner/member.h"
#include "compute/owner/member_visit.h"
#include "compute/owner/members.h"
#include "compute/owner/turnstile.h"

namespace pando {
namespace {

// Between two looks.
constexpr int64_t kLookAtLoadNs = 250 * kMillisecondNs;
// One that does not say in time what it has to do gets nothing.
constexpr int64_t kSayLoadNs = 50 * kMillisecondNs;
// For which a range that is given or divided does not serve, at most.
constexpr int64_t kHoldNs = kSecondNs;
constexpr int64_t kFlushAheadNs = 10 * kSecondNs;
constexpr int64_t kFollowNs = 10 * kSecondNs;
// For other changes of the cluster tree: later it is looked anew who has how much to do.
constexpr int64_t kTurnNs = 5 * kSecondNs;
// Of one look.
constexpr int kStepsMax = 8;
// What has come stays so long at least.
constexpr int64_t kStaysNs = 2 * kSecondNs;

uint64_t Rounded(double rate) { return static_cast<uint64_t>(std::max(0.0, rate) + 0.5); }

}  // namespace

// --- What others hear.

LoadReport Member::ReportLoad(OwnedTree* tree, std::string_view key) const {
  LoadReport report = {.member_operations_per_s = load_.load(std::memory_order_relaxed)};
  if (!retired_.load(std::memory_order_acquire)) {
    report.takes = options_.spread_ranges ? LoadReport::kItsShare : LoadReport::kWhenAsked;
  }
  OwnRange* const own = tree->FindOwn(key);
  if (own == nullptr) return report;
  std::lock_guard lock(own->partition.mutex());
  const Partition::Amount &dirty = own->partition.dirty(), &refused = own->partition.refused();
  report.is_owner = 1;
  report.operations_per_s = Rounded(own->meter.operations_per_s());
  report.dirty_records = dirty.records + refused.records;
  report.dirty_bytes = dirty.bytes + refused.bytes;
  return report;
}

absl::Status Member::AskInService(OperationContext& context, const Other& other,
                                  const PeerRequest& request, PeerAnswer* answer) {
  // The port goes before what asks over it (~Member()).
  asking_.fetch_add(1);
  absl::Status asked = asks_end_.load()
                           ? absl::FailedPreconditionError("the client is being closed")
                           : Ask(context, other.id, other.address, request, answer);
  asking_.fetch_sub(1);
  asking_.notify_all();
  return asked.ok() ? answer->status : asked;
}

absl::StatusOr<std::vector<Member::Other>> Member::ListOthers(OperationContext& context,
                                                              uint32_t tree_id) {
  PANDO_ASSIGN_OR_RETURN(const MemberEntries<MemberEntry> members,
                         ListEntries<MemberEntry>(context, map_));
  std::vector<Other> others;
  for (const auto& [id, entry] : members) {
    if (id == self() || entry.address.empty()) continue;
    if (entry.state != MemberEntry::State::kServing || context.expired()) continue;
    Other other = {id, entry.address};
    OperationContext asking(session_, std::min(context.deadline_ns(), NowNs() + kSayLoadNs));
    PeerAnswer answer;
    const absl::Status asked = AskInService(
        asking, other, {.operation = PeerRequest::Operation::kLoad, .tree_id = tree_id}, &answer);
    // It has ended, is stopped, or has not that tree open.
    if (!asked.ok() || answer.not_owner) continue;
    const std::optional<LoadReport> report = ParseLoadReport(answer.value);
    if (!report.has_value() || report->takes == LoadReport::kNothing) continue;
    other.spreads = report->takes == LoadReport::kItsShare;
    other.operations_per_s = static_cast<double>(report->member_operations_per_s);
    others.push_back(std::move(other));
  }
  return others;
}

// --- What is done about it.

// Beside the other loops, which wait for flushes and turns: what they decide by does not, nor do
// clocks (rule T7).
void Member::MeasureLoop(Parking* parking) {
  while (Pause(parking, NowNs() + kLookAtLoadNs)) Measure();
}

void Member::LendLoop(Parking* parking) {
  while (Pause(parking, NowNs() + kLookAtLoadNs)) {
    if (!joined_.load(std::memory_order_acquire)) continue;
    for (const uint32_t tree_id : OpenTreeIds()) {
      const Visit visit(this, tree_id);
      if (visit.tree() != nullptr) LookAtLending(visit.tree());
    }
  }
}

void Member::SpreadLoop(Parking* parking) {
  const bool spreads = options_.spread_ranges && !address_.empty();
  if (!spreads && options_.ranges_min == 1) return;
  while (Pause(parking, NowNs() + kLookAtLoadNs)) {
    if (!joined_.load(std::memory_order_acquire)) continue;
    const std::vector<uint32_t> trees = OpenTreeIds();
    std::erase_if(plans_, [&](const auto& plan) {
      return std::find(trees.begin(), trees.end(), plan.first) == trees.end();
    });
    for (const uint32_t tree_id : trees) {
      const Visit visit(this, tree_id);
      if (visit.tree() == nullptr || visit.tree()->OwnRanges().empty()) continue;
      if (spreads) Spread(visit.tree());
      DivideBusiest(visit.tree());
      // Of what was divided and has not gone to others.
      OperationContext following(session_, NowNs() + kFollowNs);
      FollowRecords(following, visit.tree());
    }
  }
}

void Member::Measure() {
  const std::vector<Place> places = Places();
  const size_t bytes = bytes_.load(), enough = options_.hot_bytes - options_.hot_bytes / 16;
  EvenClocks(this, places, bytes - std::min(bytes, enough));
  for (const auto& [tree, range] : places) {
    std::lock_guard lock(range->partition.mutex());
    if (range->state != OwnRange::State::kGone) range->meter.Tick(NowNs());
  }
  SumLoads(places);
}

void Member::SumLoads(const std::vector<Place>& places) {
  double sum = 0;
  for (const auto& [tree, range] : places) {
    std::lock_guard lock(range->partition.mutex());
    if (range->state != OwnRange::State::kGone) sum += range->meter.operations_per_s();
  }
  load_.store(Rounded(sum), std::memory_order_relaxed);
}

void Member::Spread(OwnedTree* tree) {
  const auto own_load = [this] { return static_cast<double>(load_.load()); };
  if (own_load() < SpreadPlan::kOperationsMin) return;
  OperationContext looking(session_, NowNs() + kSecondNs);
  absl::StatusOr<std::vector<Other>> others = ListOthers(looking, tree->id());
  if (!others.ok()) return;
  std::erase_if(*others, [](const Other& other) { return !other.spreads; });
  const auto loads = [&others] {
    std::vector<double> all;
    for (const Other& other : *others) all.push_back(other.operations_per_s);
    return all;
  };
  if (!plans_[tree->id()].IsDue(own_load(), loads())) return;
  for (int i = 0; i < kStepsMax && !retired_.load(std::memory_order_acquire); ++i) {
    const std::vector<OwnRange*> own = tree->OwnRanges();
    std::vector<SpreadRange> ranges;
    for (OwnRange* const range : own) {
      std::lock_guard lock(range->partition.mutex());
      ranges.push_back({.operations_per_s = range->meter.operations_per_s(),
                        .may_go = NowNs() - range->came_ns >= kStaysNs,
                        .may_split = own.size() < kRangesMax &&
                                     range->meter.ChooseBorder(range->low, 0.5).has_value()});
    }
    const SpreadStep step =
        SpreadPlan::Next(own_load(), ranges, loads(), session_->random().NextDouble());
    if (step.kind == SpreadStep::Kind::kNothing) return;
    if (!Follow(tree, own[step.range], step, &(*others)[step.to]).ok()) return;
  }
}

void Member::DivideBusiest(OwnedTree* tree) {
  if (static_cast<double>(load_.load()) < SpreadPlan::kOperationsMin) return;
  for (int i = 0; i < kStepsMax && !retired_.load(std::memory_order_acquire); ++i) {
    const std::vector<OwnRange*> own = tree->OwnRanges();
    if (own.size() >= options_.ranges_min) return;
    // Where one key is most of a range, little goes to the other part, and others are next.
    OwnRange* best = nullptr;
    double best_gain = 0;
    std::string border;
    for (OwnRange* const range : own) {
      std::lock_guard lock(range->partition.mutex());
      if (range->state != OwnRange::State::kServing) continue;
      auto chosen = range->meter.ChooseBorder(range->low, 0.5);
      if (!chosen.has_value()) continue;
      const double gain =
          range->meter.operations_per_s() * std::min(chosen->below, 1 - chosen->below);
      if (gain <= best_gain) continue;
      best = range;
      best_gain = gain;
      border = std::move(chosen->key);
    }
    if (best == nullptr || !FlushAndSplit(tree, best, border).ok()) return;
    // Records follow from one partition to the next, not over two.
    OperationContext following(session_, NowNs() + kFollowNs);
    FollowRecords(following, tree);
  }
}

absl::Status Member::FlushAndSplit(OwnedTree* tree, OwnRange* range, const std::string& border) {
  OperationContext flushing(session_, NowNs() + kFlushAheadNs);
  PANDO_RETURN_IF_ERROR(FlushBelow(flushing, tree, range, border));
  OperationContext waiting(session_, NowNs() + kTurnNs);
  const Turnstile::Pass pass(turnstile_.get(), waiting.deadline_ns());
  if (!pass.ok()) return TurnError(waiting);
  OperationContext splitting(session_, NowNs() + kHoldNs);
  return SplitRange(splitting, tree, border);
}

absl::Status Member::Follow(OwnedTree* tree, OwnRange* range, const SpreadStep& step, Other* to) {
  double rate;
  std::string border;
  {
    std::lock_guard lock(range->partition.mutex());
    rate = range->meter.operations_per_s();
    const auto chosen = range->meter.ChooseBorder(range->low, step.share);
    if (chosen.has_value()) border = chosen->key;
  }
  if (step.kind == SpreadStep::Kind::kSplit) {
    if (border.empty())
      return absl::AbortedError("too few keys were used to know where to divide the range");
    return FlushAndSplit(tree, range, border);
  }
  OperationContext flushing(session_, NowNs() + kFlushAheadNs);
  PANDO_RETURN_IF_ERROR(FlushAhead(flushing, tree, range));
  {
    OperationContext waiting(session_, NowNs() + kTurnNs);
    const Turnstile::Pass pass(turnstile_.get(), waiting.deadline_ns());
    if (!pass.ok()) return TurnError(waiting);
    OperationContext giving(session_, NowNs() + kHoldNs);
    PANDO_RETURN_IF_ERROR(GiveRange(giving, tree, range, to->id));
  }
  SumLoads(Places());  // what is gone is none of it
  OperationContext telling(session_, NowNs() + kHoldNs);
  const MappedRange given = {tree->id(), range->low, range->high, {}};
  if (!Tell(telling, tree, given, *to, rate)) {
    return absl::UnavailableError("the member that should take the range does not");
  }
  to->operations_per_s += rate;
  return absl::OkStatus();
}

}  // namespace pando
