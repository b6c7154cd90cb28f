#include "compute/owner/recovery.h"

#include <algorithm>
#include <iterator>
#include <thread>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/quiet_thread.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "common/fabric/recoverable.h"
#include "common/wire/control.h"
#include "compute/core/extent_calls.h"
#include "compute/core/fence_calls.h"
#include "compute/log/read_log.h"
#include "compute/owner/client_state.h"
#include "compute/owner/flush.h"

namespace pando {
namespace {

// Messages that are brought to leaves in one go: their order is that of the keys.
constexpr size_t kReplayMax = 4096;

// After a queue pair broke.
constexpr int64_t kAgainChains = 16;

bool HasLowerKey(const FlushItem& a, const FlushItem& b) { return a.key < b.key; }

RecoveryEntry NobodysClaim(StampSource& stamps) { return {.stamp = stamps.Next(), .claimant = {}}; }

absl::Status NotYet(absl::string_view why) { return absl::AbortedError(why); }

// What one memory server has to answer, and to confirm a fence. The other jobs of this member wait
// (rule O4), and may need nothing of that server. Who has taken over at once waits for a lease to
// serve, a second as a rule, and would come to its end no sooner for two attempts.
constexpr int64_t kAnswerNsMax = kSecondNs, kFenceNsMax = 2 * kSecondNs;

// So many messages are sorted in some milliseconds.
constexpr size_t kSealedAside = 20'000;

// What a broken queue pair has refused, or left unknown, is tried again: who handed the recovery
// back would begin it anew, and where one chain in a hundred breaks never come to its end.
bool GoesAgain(OperationContext& context, const absl::Status& why) {
  if (!IsOutcomeUnknown(why) && !IsRecoverable(why)) return false;
  if (context.expired() || context.session.fenced()) return false;
  context.BackOff(kAgainChains);
  return true;
}

}  // namespace

absl::Status Recovery::Begin(OperationContext& context) {
  PANDO_RETURN_IF_ERROR(Claim(context));
  PANDO_RETURN_IF_ERROR(FenceAll(context, ended_));
  PANDO_ASSIGN_OR_RETURN(ranges_, ListRangesOf(context, *parts_.map, ended_));
  std::sort(ranges_.begin(), ranges_.end(), [](const MappedRange& a, const MappedRange& b) {
    return std::tie(a.tree_id, a.low) < std::tie(b.tree_id, b.low);
  });
  return ReadMessages(context);
}

// --- D1

absl::Status Recovery::Claim(OperationContext& context) {
  const RecoveryEntry own = {.stamp = parts_.stamps->Next(), .claimant = parts_.self};
  MapChange change = ChangeEntry(ended_, std::nullopt, own);
  PANDO_RETURN_IF_ERROR(change.Settle(context, *parts_.map));
  if (change.decision() != MapChange::Decision::kDone) {
    PANDO_ASSIGN_OR_RETURN(const RecoveryEntry other, ActualEntry<RecoveryEntry>(change));
    if (other.claimant == parts_.self) {  // of an attempt before, which did not come to its end
      claimed_ = other;
      return absl::OkStatus();
    }
    if (!other.claimant.nobody()) {
      OperationContext asking = ShareOf(context, kAnswerNsMax);
      PANDO_ASSIGN_OR_RETURN(
          const ClientLiveness state,
          AskClientState(asking, *parts_.control, parts_.catalog_server, other.claimant));
      if (state == ClientLiveness::kJoined && RuleHolds(Rule::kD1)) {
        return NotYet(
            absl::StrCat(ToText(other.claimant), " takes over what ", ToText(ended_), " has left"));
      }
      // A claimant that may still bring old messages to leaves is fenced like an owner.
      if (state != ClientLiveness::kJoined) {
        PANDO_RETURN_IF_ERROR(FenceAll(context, other.claimant));
      }
    }
    change = ChangeEntry(ended_, other, own);
    PANDO_RETURN_IF_ERROR(change.Settle(context, *parts_.map));
    if (change.decision() != MapChange::Decision::kDone) {
      return NotYet(
          absl::StrCat("another compute server takes over what ", ToText(ended_), " has left"));
    }
  }
  claimed_ = own;
  return absl::OkStatus();
}

// --- D2

absl::Status Recovery::FenceAt(OperationContext& context, ServerId server, MemberId member) {
  if (IsDeclaredDead(server)) return absl::OkStatus();
  // The server remembers the fence: the next attempt goes on where this one was.
  OperationContext fencing = ShareOf(context, kFenceNsMax);
  const absl::Status fenced = AwaitFence(fencing, *parts_.control, server, member.compute_server,
                                         member.incarnation, kAnswerNsMax);
  if (absl::IsUnavailable(fenced) && parts_.is_gone(server)) return absl::OkStatus();
  if (!absl::IsDeadlineExceeded(fenced)) return fenced;
  unfenced_ = NotYet(fenced.message());
  return unfenced_;
}

OperationContext Recovery::ShareOf(OperationContext& context, int64_t longest_ns) const {
  if (parts_.loss != nullptr) longest_ns = std::min(longest_ns, parts_.loss->share_ns);
  return OperationContext(context,
                          std::min(context.deadline_ns(), context.session.NowNs() + longest_ns));
}

absl::Status Recovery::FenceAll(OperationContext& context, MemberId member) {
  // The variant has it fenced there alone.
  if (!RuleHolds(Rule::kD2)) return FenceAt(context, parts_.catalog_server, member);
  PANDO_ASSIGN_OR_RETURN(
      const ServerSet confirmed,
      FenceListed(
          parts_.catalog_server, [&] { return ListServers(context); },
          [&](ServerId server) { return FenceOnceKnown(context, server, member); }));
  // Last: until the cluster tree's servers had confirmed it, its log might still move (rule W6).
  const absl::StatusOr<LogEntry> log = FindEntry<LogEntry>(context, *parts_.map, member);
  if (absl::IsNotFound(log.status())) return absl::OkStatus();
  PANDO_RETURN_IF_ERROR(log.status());
  const ServerId of_log = log->extent.server;
  return confirmed.contains(of_log) ? absl::OkStatus() : FenceOnceKnown(context, of_log, member);
}

absl::StatusOr<ServerSet> Recovery::ListServers(OperationContext& context) {
  ServerSet servers;
  PANDO_ASSIGN_OR_RETURN(std::vector<uint32_t> trees, ListMappedTrees(context, *parts_.map));
  trees.push_back(parts_.cluster_tree_id);
  for (const uint32_t tree : trees) {
    OperationContext asking = ShareOf(context, kAnswerNsMax);
    const auto body = parts_.control->Call(asking, parts_.catalog_server,
                                           ControlOpcode::kListTreeServers, EncodeTreeId(tree));
    if (absl::IsNotFound(body.status())) continue;  // dropped: nothing of it is read any more
    if (absl::IsDeadlineExceeded(body.status())) {
      unfenced_ = NotYet(body.status().message());
      return unfenced_;
    }
    PANDO_RETURN_IF_ERROR(body.status());
    PANDO_ASSIGN_OR_RETURN(const TreeServerList on, ParseTreeServers(*body));
    for (const TreeServer& server : on) servers.insert(server.server);
  }
  return servers;
}

absl::Status Recovery::FenceOnceKnown(OperationContext& context, ServerId server, MemberId member) {
  if (IsDeclaredDead(server)) return absl::OkStatus();
  // The catalog's server is the first: whoever hurries, each attempt comes so far.
  if (server != parts_.catalog_server && parts_.is_hurried()) {
    return NotYet("the recovery goes on later");
  }
  const std::vector<ServerId> known = parts_.members->Ids();
  OperationContext looking = ShareOf(context, kAnswerNsMax);
  if (!std::binary_search(known.begin(), known.end(), server) && !looking.AwaitServer(server)) {
    unfenced_ = NotYet(absl::StrCat("memory server ", server, " is not connected, and has to ",
                                    "confirm that ", ToText(member), " can do nothing any more"));
    return unfenced_;
  }
  return FenceAt(context, server, member);
}

// --- D3

const MappedRange* Recovery::RangeOf(uint32_t tree_id, std::string_view key) const {
  const auto above = std::upper_bound(ranges_.begin(), ranges_.end(), key,
                                      [tree_id](std::string_view k, const MappedRange& range) {
                                        if (range.tree_id != tree_id)
                                          return tree_id < range.tree_id;
                                        return k < range.low;
                                      });
  if (above == ranges_.begin()) return nullptr;
  const MappedRange& range = *std::prev(above);
  return range.tree_id == tree_id && range.Covers(key) ? &range : nullptr;
}

absl::Status Recovery::ReadMessages(OperationContext& context) {
  absl::StatusOr<LogEntry> log = FindEntry<LogEntry>(context, *parts_.map, ended_);
  knows_log_ = log.ok() || absl::IsNotFound(log.status());
  if (absl::IsNotFound(log.status())) {
    if (ranges_.empty()) return absl::OkStatus();  // it was nearly done with leaving
    return Accept(context, absl::DataLossError(absl::StrCat(
                               ToText(ended_),
                               " has ranges in the cluster tree, and no log: what it had "
                               "acknowledged and not yet brought to the leaves cannot be found")));
  }
  PANDO_RETURN_IF_ERROR(log.status());
  log_ = *std::move(log);
  if (ranges_.empty()) return absl::OkStatus();
  const auto take = [this](Lsn lsn, const LogMessage& message) -> absl::Status {
    const MappedRange* const of = RangeOf(message.tree_id, message.key);
    // Of an earlier term of a range that somebody else has had since.
    if (of == nullptr || lsn < of->entry.since) return absl::OkStatus();
    messages_.Add(lsn, message);
    return absl::OkStatus();
  };
  if (parts_.loss != nullptr && !RuleHolds(Rule::kD6))
    return Accept(context, absl::DataLossError("the variant reads no log whose loss is accepted"));
  absl::Status read;
  while (true) {
    if (IsDeclaredDead(log_->extent.server)) {
      read = absl::UnavailableError("the memory server is dead, as was said");
      break;
    }
    read = ReadLog(context, log_->extent, ended_.incarnation, log_->epoch, take).status();
    if (read.ok()) {
      SealMessages(context);
      return read;
    }
    messages_.Clear();
    if (!GoesAgain(context, read)) break;
  }
  if (!RuleHolds(Rule::kD3)) {
    messages_.Seal();
    return absl::OkStatus();
  }
  return Accept(context, Annotate(read, absl::StrCat("the log of ", ToText(ended_),
                                                     " on memory server ", log_->extent.server)));
}

void Recovery::SealMessages(OperationContext& context) {
  if (parts_.event_driven || messages_.size() < kSealedAside) return messages_.Seal();
  Parking parking(&context.session.scheduler());
  absl::StatusOr<std::thread> sorter = StartQuietThread("pando-sort", [this, &parking] {
    messages_.Seal();
    parking.Unpark();
  });
  if (!sorter.ok()) return messages_.Seal();  // this member's keys wait for it
  parking.ParkUntil(kNeverNs);
  sorter->join();
}

absl::Status Recovery::Accept(const OperationContext& context, const absl::Status& why) {
  if (absl::IsDataLoss(why) || IsServerGone(why)) unread_ = why;
  if (parts_.loss == nullptr) return why;
  const auto is_over = [&] {
    const LogExtent& extent = log_->extent;
    return IsDeclaredDead(extent.server) || parts_.is_gone(extent.server) ||
           context.session.LifeOf(extent.server) != extent.server_life;
  };
  const bool lost = absl::IsDataLoss(why) || (IsServerGone(why) && log_.has_value() && is_over());
  if (!lost) return why;
  messages_.Clear();
  messages_.Seal();
  loss_ = std::exchange(unread_, absl::OkStatus());
  return absl::OkStatus();
}

// --- D4

absl::Status Recovery::CheckFits(const TreeContext& leaves,
                                 const NewestMessages::Message& message) const {
  if (message.key.size() <= leaves.layout.key_bytes_max() &&
      message.value.size() <= leaves.layout.value_bytes_max()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      "the log of ", ToText(ended_), " on memory server ", log_->extent.server,
      " has a record with a key of ", message.key.size(), " and a value of ", message.value.size(),
      " bytes, which tree '", leaves.entry.name, "' cannot have"));
}

absl::Status Recovery::Replay(OperationContext& context, TreeContext* leaves,
                              const MappedRange& range, Replayed* replayed) {
  if (!replayed->next.has_value()) {
    replayed->next = messages_.LowerBound(range.tree_id, range.low);
  }
  size_t& next = *replayed->next;
  const auto is_of_range = [&] {
    return next < messages_.size() && messages_.TreeOf(next) == range.tree_id &&
           range.Covers(messages_.At(next).key);
  };
  std::vector<FlushItem>& items = replayed->items;
  while (!items.empty() || is_of_range()) {
    for (; items.size() < kReplayMax && is_of_range(); ++next) {
      const NewestMessages::Message message = messages_.At(next);
      // Whoever wrote it: its checksum holds, and the leaf's editor takes nothing of the kind.
      const absl::Status fits = CheckFits(*leaves, message);
      if (!fits.ok()) {
        if (parts_.loss == nullptr) return fits;
        replayed->misfit = fits;
        continue;
      }
      items.push_back({.key = std::string(message.key),
                       .value = std::string(message.value),
                       .erased = message.erased,
                       .lsn = message.lsn});
    }
    PANDO_RETURN_IF_ERROR(BringToLeaves(context, leaves, &items, &replayed->refused));
    if (context.session.fenced()) return FencedError();
  }
  std::sort(replayed->refused.begin(), replayed->refused.end(), HasLowerKey);
  return absl::OkStatus();
}

absl::Status Recovery::BringToLeaves(OperationContext& context, TreeContext* leaves,
                                     std::vector<FlushItem>* items,
                                     std::vector<FlushItem>* refused) {
  // What is of unknown outcome is written again, under the locks that it was written under.
  while (true) {
    std::vector<FlushItem> left;
    FlushCounts counts;
    const absl::Status flushed = FlushToLeaves(&context.session, leaves, context.deadline_ns(),
                                               *items, &counts, [&](size_t i, FlushResult result) {
                                                 if (result == FlushResult::kDone) return;
                                                 const bool keeps = result == FlushResult::kRefused;
                                                 (keeps ? *refused : left).push_back((*items)[i]);
                                               });
    replayed_ += counts.messages;
    if (counts.refused > counts.gone) {
      refusal_ = absl::ResourceExhaustedError("memory servers have no room for more");
    } else if (counts.gone > 0 && refusal_.ok()) {
      refusal_ = absl::UnavailableError("leaves on a memory server that is gone");
    }
    // Where some were refused, what is left may have failed for another reason.
    const bool some_refused = counts.refused > 0 && left.size() < items->size();
    std::sort(left.begin(), left.end(), HasLowerKey);
    *items = std::move(left);
    if (items->empty()) return absl::OkStatus();
    if (!some_refused && !GoesAgain(context, flushed)) return flushed;
  }
}

// --- D5

absl::Status HandBackClaim(OperationContext& context, MapStore& map, StampSource& stamps,
                           MemberId ended, MemberId self) {
  const auto claim = FindEntry<RecoveryEntry>(context, map, ended);
  if (absl::IsNotFound(claim.status())) return absl::OkStatus();
  PANDO_RETURN_IF_ERROR(claim.status());
  if (claim->claimant != self) return absl::OkStatus();
  return ChangeEntry(ended, *claim, NobodysClaim(stamps)).Settle(context, map);
}

absl::Status Recovery::HandBack(OperationContext& context) {
  if (!claimed_.has_value()) return absl::OkStatus();
  return ChangeEntry(ended_, *claimed_, NobodysClaim(*parts_.stamps)).Settle(context, *parts_.map);
}

absl::Status Recovery::End(OperationContext& context) {
  if (!claimed_.has_value()) return absl::OkStatus();
  PANDO_ASSIGN_OR_RETURN(const std::vector<MappedRange> left,
                         ListRangesOf(context, *parts_.map, ended_));
  if ((!left.empty() && RuleHolds(Rule::kD5)) || !knows_log_) return HandBack(context);
  if (log_.has_value()) {
    // The extent before the entry that names it: a repeat of this finds it freed.
    PANDO_RETURN_IF_ERROR(FreeExtentOf(context));
    PANDO_RETURN_IF_ERROR(ChangeEntry(ended_, *log_, std::nullopt).Settle(context, *parts_.map));
  }
  const absl::StatusOr<MemberEntry> member = FindEntry<MemberEntry>(context, *parts_.map, ended_);
  if (member.ok()) {
    PANDO_RETURN_IF_ERROR(ChangeEntry(ended_, *member, std::nullopt).Settle(context, *parts_.map));
  } else if (!absl::IsNotFound(member.status())) {
    return member.status();
  }
  // `d` goes last: until then each step may be repeated, by this claimant or the next one (rule
  // D5).
  return ChangeEntry(ended_, *claimed_, std::nullopt).Settle(context, *parts_.map);
}

absl::Status Recovery::FreeExtentOf(OperationContext& context) {
  if (IsDeclaredDead(log_->extent.server)) return absl::OkStatus();
  OperationContext freeing = ShareOf(context, kAnswerNsMax);
  const absl::Status freed =
      FreeExtent(freeing, *parts_.control, log_->extent, ended_.incarnation).status();
  // With its memory server everything is gone.
  if (absl::IsUnavailable(freed) && parts_.is_gone(log_->extent.server)) return absl::OkStatus();
  return freed;
}

}  // namespace pando
