#include "bench/owned/map_play.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "compute/owner/members.h"

namespace pando {
namespace {

constexpr size_t kRangesMax = 6;  // of a member
constexpr MemberId kNobody = {};

bool EndsBefore(const MappedRange& a, const std::string& low) {
  return !a.high.empty() && a.high <= low;
}

std::string ToText(const MappedRange& range) {
  return absl::StrCat("[", absl::CHexEscape(range.low), ", ", absl::CHexEscape(range.high), ") of ",
                      ToText(range.entry.owner));
}

}  // namespace

void MapGhost::Problem(std::string what) {
  if (problems_.size() < 5) problems_.push_back(std::move(what));
}

void MapGhost::Serves(MemberId member, const MappedRange& range) {
  ++served_;
  if (range.entry.owner != member)
    Problem(absl::StrCat("a term of somebody else: ", ToText(range)));
  for (const auto& [high, other] : serving_) {
    if (EndsBefore(other.second, range.low) || EndsBefore(range, other.second.low)) continue;
    Problem(absl::StrCat("two owners: ", ToText(range), " and ", ToText(other.second)));
  }
  // The nearest border below it that is surely there; a nearer one that may be.
  const auto above = range.high.empty() ? borders_.end() : borders_.lower_bound(range.high);
  const std::string sure = above == borders_.begin() ? "" : *std::prev(above);
  if (range.low != sure && (range.low < sure || !perhaps_.contains(range.low))) {
    Problem(absl::StrCat("its lower border is not that of the map, ", absl::CHexEscape(sure), ": ",
                         ToText(range)));
  }
  serving_[range.high] = {member, range};
}

void MapGhost::Stops(MemberId member, const std::string& high) {
  const auto served = serving_.find(high);
  if (served == serving_.end() || served->second.first != member) {
    return Problem("somebody stops what he does not serve");
  }
  serving_.erase(served);
}

void MapGhost::Ends(MemberId member) {
  std::erase_if(serving_, [&](const auto& served) { return served.second.first == member; });
}

void MapGhost::CheckMap(const std::vector<MappedRange>& map) {
  std::string border;
  std::set<std::string> seen;
  for (const MappedRange& range : map) {
    if (range.low != border) Problem(absl::StrCat("a gap below ", ToText(range)));
    border = range.high;
    seen.insert(range.high);
    const auto served = serving_.find(range.high);
    const bool is_served = served != serving_.end();
    if (is_served == range.entry.owner.nobody() ||
        (is_served && !(served->second.second == range))) {
      Problem(absl::StrCat("the map has ", ToText(range), ", served it is ",
                           is_served ? ToText(served->second.second) : "by nobody"));
    }
  }
  if (map.empty() || !border.empty()) Problem("the map has no upper end");
  for (const std::string& was : borders_) {
    if (!seen.contains(was)) Problem(absl::StrCat("a border is gone: ", absl::CHexEscape(was)));
  }
  if (seen.size() != map.size()) Problem("an entry is there twice");
}

void MapMember::Explain(const absl::Status& status, const char* what) {
  ++refused;
  if (IsRecoverable(status) || absl::IsDeadlineExceeded(status) || IsOutcomeUnknown(status)) return;
  // The broken variant says that.
  if (absl::IsUnavailable(status)) return;
  ghost_.Problem(absl::StrCat(what, ": ", status.ToString()));
}

void MapMember::Join(OperationContext& context) {
  member_ = {stamps_.Next(), MemberEntry::State::kServing, "somewhere"};
  log_ = {stamps_.Next(), 1, 1, 4096 * uint64_t{id_.compute_server}, 4096, 1};
  PANDO_CHECK_OK(ChangeEntry(id_, std::nullopt, log_).Settle(context, store_));
  PANDO_CHECK_OK(ChangeEntry(id_, std::nullopt, member_).Settle(context, store_));
  PANDO_CHECK_OK(OpenRanges(context, store_, kPlayTree, stamps_,
                            [](OperationContext&) -> absl::StatusOr<bool> { return true; }));
}

void MapMember::Step(OperationContext& context, Act act) {
  if (!change_.has_value()) {
    Begin(context, act);
    begun += change_.has_value() ? 1 : 0;
  }
  if (change_.has_value()) Settle(context);
}

void MapMember::Begin(OperationContext& context, Act act) {
  if (act == Act::kAny) act = static_cast<Act>(random_.Uniform(4));
  if (act == Act::kClaim) return Claim(context);
  if (act == Act::kFind) {
    const std::string key(1 + random_.Uniform(2), static_cast<char>('a' + random_.Uniform(26)));
    const auto range = FindRange(context, store_, kPlayTree, key);
    if (!range.ok()) return Explain(range.status(), "finding a range");
    if (!range->Covers(key)) ghost_.Problem("FindRange() found another key's range");
    return;
  }
  if (own_.empty()) return;
  const size_t which = random_.Uniform(own_.size());
  changed_ = own_[which];
  if (act == Act::kSplit) return Split();
  act_ = Act::kGiveUp;
  own_.erase(own_.begin() + static_cast<ptrdiff_t>(which));
  ghost_.Stops(id_, changed_.high);
  change_ = RangeChange::GiveUp(changed_, kNobody, stamps_.Next());
}

void MapMember::Claim(OperationContext& context) {
  auto ranges = ListRanges(context, store_, kPlayTree);
  if (!ranges.ok()) return Explain(ranges.status(), "listing ranges");
  std::erase_if(*ranges, [](const MappedRange& range) { return !range.entry.owner.nobody(); });
  if (ranges->empty() || own_.size() >= kRangesMax) return;
  act_ = Act::kClaim;
  next_lsn_ += random_.Uniform(3);
  change_ = RangeChange::Claim((*ranges)[random_.Uniform(ranges->size())], id_, next_lsn_,
                               stamps_.Next());
}

void MapMember::Split() {
  std::string border(1 + random_.Uniform(2), static_cast<char>('a' + random_.Uniform(26)));
  border.back() = static_cast<char>('a' + random_.Uniform(26));
  const bool inside = border > changed_.low && (changed_.high.empty() || border < changed_.high);
  if (!inside || own_.size() >= kRangesMax) return;
  act_ = Act::kSplit;
  ghost_.MayDivide(border);
  change_ = RangeChange::Split(changed_, border, stamps_.Next());
}

void MapMember::Settle(OperationContext& context) {
  const absl::Status status = change_->Settle(context, store_);
  if (status.ok()) {
    Conclude();
  } else {
    Explain(status, "changing the map");
    if (IsOutcomeUnknown(status)) {
      ++uncertain;
      return;
    }
    TakeBack();
  }
  change_.reset();
}

void MapMember::TakeBack() {
  if (act_ == Act::kSplit) ghost_.NeverDivides(change_->lower().high);
  if (act_ != Act::kGiveUp) return;
  own_.push_back(changed_);
  ghost_.Serves(id_, changed_);
}

void MapMember::Conclude() {
  change_->won() ? ++won : ++lost;
  if (act_ == Act::kClaim && change_->won()) {
    own_.push_back(change_->range());
    ghost_.Serves(id_, change_->range());
  } else if (act_ == Act::kSplit) {
    if (!change_->won()) return ghost_.Problem("a living member's range was divided by another");
    ghost_.Stops(id_, changed_.high);
    ghost_.Divides(change_->lower().high);
    std::erase_if(own_, [&](const MappedRange& own) { return own == changed_; });
    for (const MappedRange& part : {change_->lower(), change_->range()}) {
      own_.push_back(part);
      ghost_.Serves(id_, part);
    }
  }
}

std::optional<MapChange::Decision> MapMember::SettleEntry(OperationContext& context,
                                                          MapChange* change) {
  const absl::Status status = change->Settle(context, store_);
  if (status.ok()) return change->decision();
  Explain(status, "changing a member's entry");
  return std::nullopt;
}

bool MapMember::Leave(OperationContext& context) {
  if (member_.state != MemberEntry::State::kLeaving) {
    MemberEntry leaving = member_;
    leaving.state = MemberEntry::State::kLeaving;
    leaving.stamp = stamps_.Next();
    if (!entry_change_.has_value()) entry_change_ = ChangeEntry(id_, member_, leaving);
    if (!SettleEntry(context, &*entry_change_).has_value()) return false;
    PANDO_CHECK(Parse(entry_change_->desired(), &member_).ok());
    entry_change_.reset();
  }
  while (change_.has_value() || !own_.empty()) {
    if (context.expired()) return false;
    Step(context, Act::kGiveUp);
  }
  for (MapChange erase :
       {ChangeEntry(id_, member_, std::nullopt), ChangeEntry(id_, log_, std::nullopt)}) {
    if (!SettleEntry(context, &erase).has_value()) return false;
  }
  return true;
}

bool MapMember::AdoptAll(OperationContext& context, MemberId dead) {
  while (true) {
    if (change_.has_value()) {
      Settle(context);
      if (change_.has_value() || context.expired()) return false;
    }
    const auto ranges = ListRangesOf(context, store_, dead);
    if (!ranges.ok()) {
      Explain(ranges.status(), "listing the ranges of one that has ended");
      return false;
    }
    if (ranges->empty()) return true;
    act_ = Act::kClaim;  // what follows is the same
    change_ = RangeChange::Adopt(ranges->front(), id_, ++next_lsn_, stamps_.Next());
  }
}

bool MapMember::Recover(OperationContext& context, MemberId dead, const std::set<MemberId>& ended) {
  if (!recovery_.has_value()) {
    if (!entry_change_.has_value()) {
      const RecoveryEntry mine = {stamps_.Next(), id_};
      entry_change_ = ChangeEntry(dead, std::nullopt, mine);
    }
    auto decision = SettleEntry(context, &*entry_change_);
    if (!decision.has_value()) return false;
    RecoveryEntry entry;
    if (*decision == MapChange::Decision::kOther) {
      PANDO_CHECK_OK(Parse(entry_change_->actual(), &entry));
      entry_change_.reset();
      if (!entry.claimant.nobody() && !ended.contains(entry.claimant)) return true;  // his work
      const RecoveryEntry mine = {stamps_.Next(), id_};
      entry_change_ = ChangeEntry(dead, entry, mine);
      return false;
    }
    if (*decision == MapChange::Decision::kGone) {
      entry_change_.reset();
      return false;
    }
    PANDO_CHECK_OK(Parse(entry_change_->desired(), &entry));
    recovery_ = entry;
    entry_change_.reset();
  }
  if (!AdoptAll(context, dead)) return false;
  if (const auto log = FindEntry<LogEntry>(context, store_, dead); log.ok()) {
    MapChange erase = ChangeEntry(dead, *log, std::nullopt);
    if (!SettleEntry(context, &erase).has_value()) return false;
  }
  if (const auto member = FindEntry<MemberEntry>(context, store_, dead); member.ok()) {
    MapChange erase = ChangeEntry(dead, *member, std::nullopt);
    if (!SettleEntry(context, &erase).has_value()) return false;
  }
  MapChange erase = ChangeEntry(dead, *recovery_, std::nullopt);
  if (!SettleEntry(context, &erase).has_value()) return false;
  recovery_.reset();
  return true;
}

}  // namespace pando
