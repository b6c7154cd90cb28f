// What the cluster tree says of owners and members, for whoever asks: a hint (rule O6).
#include <algorithm>
#include <utility>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "common/base/status.h"
#include "compute/owner/client_state.h"
#include "compute/owner/member.h"
#include "compute/owner/members.h"

namespace pando {
namespace {

// An owner that does not say in time how it is is not asked again.
constexpr int64_t kOwnerSaysNs = 200 * kMillisecondNs;

OwnerInfo InfoOf(MemberId member, std::string address) {
  return {member.compute_server, member.incarnation, std::move(address)};
}

}  // namespace

absl::StatusOr<OwnerInfo> Member::OwnerOf(OwnedTree* tree, std::string_view key,
                                          int64_t deadline_ns) {
  if (tree->FindOwn(key) != nullptr) {
    return InfoOf(self(), address_);
  }
  if (const auto known = tree->OwnerOf(key); known.has_value()) {
    return InfoOf(known->id, known->address);
  }
  OwnerInfo owner;
  PANDO_RETURN_IF_ERROR(RunBlocking(deadline_ns, [&](OperationContext& context) -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(const MappedRange range, FindRange(context, map_, tree->id(), key));
    PANDO_ASSIGN_OR_RETURN(owner, Describe(context, range.entry.owner));
    return absl::OkStatus();
  }));
  return owner;
}

absl::StatusOr<OwnerInfo> Member::Describe(OperationContext& context, MemberId member) {
  if (member.nobody()) return OwnerInfo();
  absl::StatusOr<MemberEntry> entry = FindEntry<MemberEntry>(context, map_, member);
  if (absl::IsNotFound(entry.status())) return InfoOf(member, "");  // it has ended
  PANDO_RETURN_IF_ERROR(entry.status());
  return InfoOf(member, std::move(entry->address));
}

std::optional<LoadReport> Member::AskForLoad(OperationContext& context, OwnedTree* tree,
                                             const MappedRange& range, const OwnerInfo& owner) {
  if (range.entry.owner == self()) return ReportLoad(tree, range.low);
  if (owner.address.empty()) return std::nullopt;
  const PeerRequest request = {
      .operation = PeerRequest::Operation::kLoad, .tree_id = tree->id(), .key = range.low};
  OperationContext asking(session_, std::min(context.deadline_ns(), NowNs() + kOwnerSaysNs));
  PeerAnswer answer;
  const absl::Status asked =
      AskInService(asking, {range.entry.owner, owner.address}, request, &answer);
  if (!asked.ok() || answer.not_owner) return std::nullopt;
  return ParseLoadReport(answer.value);
}

absl::StatusOr<std::vector<RangeInfo>> Member::ListRanges(OwnedTree* tree, int64_t deadline_ns) {
  std::vector<RangeInfo> ranges;
  const auto list = [&](OperationContext& context) -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(const std::vector<MappedRange> mapped,
                           pando::ListRanges(context, map_, tree->id()));
    absl::btree_map<MemberId, OwnerInfo> owners;
    absl::btree_set<MemberId> silent;
    for (const MappedRange& range : mapped) {
      const auto [owner, is_new] = owners.try_emplace(range.entry.owner);
      if (is_new) {
        PANDO_ASSIGN_OR_RETURN(owner->second, Describe(context, range.entry.owner));
      }
      RangeInfo& info =
          ranges.emplace_back(RangeInfo{range.low, range.high, owner->second, range.entry.since});
      const MemberId id = range.entry.owner;
      if (id.nobody() || silent.contains(id)) continue;
      const std::optional<LoadReport> report = AskForLoad(context, tree, range, owner->second);
      if (!report.has_value()) silent.insert(id);
      if (!report.has_value() || report->is_owner == 0) continue;
      info.is_known = true;
      info.operations_per_s = report->operations_per_s;
      info.dirty_records = report->dirty_records;
      info.dirty_bytes = report->dirty_bytes;
    }
    return absl::OkStatus();
  };
  PANDO_RETURN_IF_ERROR(RunBlocking(deadline_ns, list));
  return ranges;
}

absl::StatusOr<std::vector<MemberInfo>> Member::ListMembers(int64_t deadline_ns) {
  absl::btree_map<MemberId, MemberInfo> members;
  const auto list = [&](OperationContext& context) -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(const MemberEntries<MemberEntry> entries,
                           ListEntries<MemberEntry>(context, map_));
    for (const auto& [id, entry] : entries) members[id].identity = InfoOf(id, entry.address);
    PANDO_ASSIGN_OR_RETURN(const MemberEntries<LogEntry> logs,
                           ListEntries<LogEntry>(context, map_));
    for (const auto& [id, log] : logs) {
      MemberInfo& member = members[id];
      member.log_server = log.extent.server;
      member.log_bytes = log.extent.bytes;
    }
    PANDO_ASSIGN_OR_RETURN(const MemberEntries<RecoveryEntry> recoveries,
                           ListEntries<RecoveryEntry>(context, map_));
    for (const auto& [id, recovery] : recoveries) {
      members[id].recovering = !recovery.claimant.nobody();
    }
    PANDO_ASSIGN_OR_RETURN(const std::vector<uint32_t> trees, ListMappedTrees(context, map_));
    for (const uint32_t tree : trees) {
      PANDO_ASSIGN_OR_RETURN(const std::vector<MappedRange> mapped,
                             pando::ListRanges(context, map_, tree));
      for (const MappedRange& range : mapped) {
        if (!range.entry.owner.nobody()) ++members[range.entry.owner].ranges;
      }
    }
    for (auto& [id, member] : members) {
      if (member.identity.nobody()) member.identity = InfoOf(id, "");
      PANDO_ASSIGN_OR_RETURN(const ClientLiveness state,
                             AskClientState(context, control_, catalog_server_, id));
      member.ended = state != ClientLiveness::kJoined;
    }
    return absl::OkStatus();
  };
  PANDO_RETURN_IF_ERROR(RunBlocking(deadline_ns, list));
  std::vector<MemberInfo> infos;
  infos.reserve(members.size());
  for (auto& [id, member] : members) infos.push_back(std::move(member));
  return infos;
}

}  // namespace pando
