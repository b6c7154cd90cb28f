// The control calls that owned trees need: extents for redo logs (rule W1), the end of a life (rule
// D2), serving leases (rule O5).
#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/rule.h"
#include "common/base/status.h"
#include "memory/memory_server.h"

namespace pando::memory {
namespace {

// Ranges of incarnations: a million members that were recovered, in the worst case.
constexpr size_t kFencedRangesMax = 1 << 20;

}  // namespace

absl::Status MemoryServer::CheckServes() const {
  const bool lacks_leases = options_.fence != nullptr && serving_.lease_ns() == 0;
  if (!lacks_leases || !RuleHolds(Rule::kO1Leases)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "owned trees need leases on this fabric: an owner that is silent could not be told from one "
      "that serves on; start memory servers with --lease_ms and --serving_lease_ms above 0");
}

absl::StatusOr<std::string> MemoryServer::OnServe(const Request& request) {
  PANDO_RETURN_IF_ERROR(CheckServes());
  if (fenced_lives_.Contains(request.sender.incarnation)) {
    return absl::FailedPreconditionError(absl::StrCat(
        request.sender.ToString(), " was fenced: others take over from it; connect again"));
  }
  serving_.Renew(request.sender, options_.clock->NowNs());
  return EncodeServingLease(static_cast<uint64_t>(serving_.lease_ns() / kMicrosecondNs));
}

absl::StatusOr<std::string> MemoryServer::OnNoteDeletes(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const PendingDeletes said, ParsePendingDeletes(request.body));
  deletes_.Take(request.sender, said, options_.clock->NowNs(),
                [this](const ClientId& client) { return IsOver(client); });
  return std::string();
}

bool MemoryServer::IsOver(const ClientId& client) const {
  return !clients_.ConnectionOf(client).has_value() && !fencing_.IsPending(client);
}

absl::Status MemoryServer::CheckMayFence(const ClientId& sender, const ClientId& client) const {
  if (client == sender) {
    return absl::InvalidArgumentError(
        absl::StrCat(client.ToString(), " cannot fence itself: it leaves, or ends"));
  }
  const uint32_t incarnation = client.incarnation, highest = trees_.highest_id();
  const bool is_made_up =
      options_.is_catalog ? ids_.IsStillToCome(incarnation)
                          : incarnation > highest && incarnation - highest >= IdSource::kMadeUpFrom;
  if (is_made_up) {
    return absl::InvalidArgumentError(
        absl::StrCat(client.ToString(), " is made up: no catalog has come so far"));
  }
  PANDO_RETURN_IF_ERROR(clients_.CheckIsNobodyElse(client));
  if (fenced_lives_.range_count() < kFencedRangesMax || fenced_lives_.Contains(incarnation)) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      "too many scattered lives of compute servers were fenced: restart the cluster");
}

absl::StatusOr<std::string> MemoryServer::OnFence(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const JoinReply identity, ParseJoinReply(request.body));
  const ClientId client = {identity.compute_server, identity.incarnation};
  PANDO_RETURN_IF_ERROR(CheckMayFence(request.sender, client));
  if (!fenced_lives_.Contains(client.incarnation)) {
    fenced_lives_.Insert(client.incarnation);
    ++counts_.fences;
  }
  const std::optional<PeerId> peer = clients_.ConnectionOf(client);
  if (peer.has_value() && options_.fence != nullptr && !clients_.IsFenced(*peer)) {
    leases_.Forget(*peer);
    clients_.Fence(*peer);
    to_cut_off_.push_back(*peer);
  }
  return EncodeFenceReply(StateOfFence(client));
}

FenceReply MemoryServer::StateOfFence(const ClientId& client) const {
  if (!IsOver(client)) {
    // Where nothing can be cut off, it is as long as its process lives.
    const bool is_soon = options_.fence != nullptr || fencing_.IsPending(client);
    return {.ask_again_ns =
                is_soon ? options_.times.rest_ask_min_ns : options_.times.fence_again_ns};
  }
  const int64_t now_ns = options_.clock->NowNs(), over_ns = serving_.OverNs(client);
  if (over_ns <= now_ns) return {.confirmed = 1};
  return {.ask_again_ns = std::clamp<int64_t>(over_ns - now_ns, options_.times.rest_ask_min_ns,
                                              kAskAgainNsMax)};
}

absl::StatusOr<std::string> MemoryServer::OnAllocateExtent(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const ExtentRequest extent, ParseExtentRequest(request.body));
  PANDO_ASSIGN_OR_RETURN(const ExtentGrant grant, extents_.Allocate(request.sender, extent.bytes,
                                                                    [this](const ClientId& holder) {
                                                                      return IsOver(holder);
                                                                    }));
  return EncodeExtentGrant(grant);
}

absl::StatusOr<std::string> MemoryServer::OnFreeExtent(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const ExtentFree freed, ParseExtentFree(request.body));
  const ClientId* const holder =
      freed.life == options_.life ? extents_.HolderOf(freed.id) : nullptr;
  if (holder == nullptr || holder->incarnation != freed.incarnation) {
    return EncodeExtentFreed(false);
  }
  // Something of a holder that has not ended may be in flight to it (rules R6, C2).
  if (*holder != request.sender && !IsOver(*holder) && RuleHolds(Rule::kW1)) {
    return absl::FailedPreconditionError(
        absl::StrCat("extent ", freed.id, " is that of ", holder->ToString(),
                     ", which has not ended here: fence it first"));
  }
  extents_.Free(freed.id);
  return EncodeExtentFreed(true);
}

absl::StatusOr<std::string> MemoryServer::OnListExtents(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const ExtentQuery query, ParseExtentQuery(request.body));
  return EncodeExtentList(extents_.List(query, [this](const ClientId& holder) {
    return IsOver(holder) ? clients_.StateOf(holder) : ClientLiveness::kJoined;
  }));
}

}  // namespace pando::memory
