#include "memory/memory_server.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/wire/node_messages.h"

namespace pando::memory {
namespace {

constexpr uint16_t kReplyFlag = 1;
// Kept back for the owners' own tree (rule O2): hundreds of its leaves in a chunk of 4 MiB. A
// region that is too small for as many chunks as are wanted has none to spare.
constexpr uint32_t kChunksKeptBack = 1, kChunksToKeepBackFrom = Region::kChunksWanted;

// What can be known of the sender of bytes that did not parse, so that it can match the refusal to
// its request.
ControlHeader SalvageHeader(std::string_view bytes) {
  ControlHeader header;
  if (bytes.size() < sizeof(header)) return ControlHeader{};
  std::memcpy(&header, bytes.data(), sizeof(header));
  return header.magic == kControlMagic ? header : ControlHeader{};
}

RegionOptions OfRegion(const MemoryServerOptions& options) {
  return {.server_id = options.server_id,
          .chunk_bytes = options.chunk_bytes,
          .packet_bytes = options.packet_bytes,
          .needs_crc = options.needs_crc};
}

}  // namespace

absl::Status MemoryServer::Check(const ServerMemory& memory, const MemoryServerOptions& options) {
  PANDO_RETURN_IF_ERROR(Region::Check(memory, OfRegion(options)));
  PANDO_RETURN_IF_ERROR(options.times.Validate());
  if (options.lease_ns < 0 ||
      options.lease_ns / kMicrosecondNs > static_cast<int64_t>(kLeaseUsMax) ||
      (options.lease_ns > 0 && (options.fence == nullptr || options.lease_ns < kMicrosecondNs))) {
    return absl::InvalidArgumentError(
        "a lease is 1 us to a day, on a fabric that can cut a client off");
  }
  if (options.serving_lease_ns < 0 ||
      options.serving_lease_ns / kMicrosecondNs > static_cast<int64_t>(kLeaseUsMax) ||
      (options.serving_lease_ns > 0 && options.serving_lease_ns < kMicrosecondNs)) {
    return absl::InvalidArgumentError("a serving lease is 1 us to a day, or 0: no owned trees");
  }
  if (options.life != 0 && options.server_id != 0) return absl::OkStatus();
  return absl::InvalidArgumentError("a server's id and life are above 0");
}

absl::StatusOr<std::unique_ptr<MemoryServer>> MemoryServer::Create(
    const ServerMemory& memory, const MemoryServerOptions& options) {
  PANDO_RETURN_IF_ERROR(Check(memory, options));
  PANDO_ASSIGN_OR_RETURN(Region region, Region::Format(memory, OfRegion(options)));
  MemoryServerOptions complete = options;
  if (complete.clock == nullptr) complete.clock = &RealClock();
  return std::unique_ptr<MemoryServer>(new MemoryServer(region, complete));
}

MemoryServer::MemoryServer(Region region, const MemoryServerOptions& options)
    : options_(options),
      region_(region),
      ids_(options.first_id, options.keep_id_mark),
      nodes_(&region_, options.clock, options.times),
      catalog_(&region_, &nodes_, &ids_, options.life),
      clients_((options.first_id - 1) % ClientTable::kComputeServerMax),
      trees_(options.life),
      leases_(options.lease_ns),
      fencing_(&region_, options.fence_words_per_step),
      serving_(options.is_catalog && options.lease_ns > 0 ? options.serving_lease_ns : 0,
               options.clock->NowNs()),
      extents_(&region_, &nodes_, options.clock, options.times, options.life) {
  if (options.is_catalog && region_.superblock().chunk_count >= kChunksToKeepBackFrom) {
    nodes_.KeepBack(kChunksKeptBack);
  }
}

const MemoryServer::Operation* MemoryServer::FindOperation(uint16_t opcode) {
  using Op = ControlOpcode;
  using Self = MemoryServer;
  // opcode, handler, catalog only, joined only, changes state
  static constexpr std::array<Operation, 29> kOperations = {{
      {Op::kServerInfo, &Self::OnServerInfo, false, false, false},
      {Op::kJoin, &Self::OnJoin, true, false, true},
      {Op::kAttach, &Self::OnAttach, false, false, true},
      {Op::kLeave, &Self::OnLeave, false, true, true},
      {Op::kWithdraw, &Self::OnWithdraw, false, false, true},
      {Op::kClientState, &Self::OnClientState, false, false, false},
      {Op::kPing, &Self::OnPing, false, false, false},
      {Op::kCreateTree, &Self::OnCreateTree, true, true, true},
      {Op::kOpenTree, &Self::OnOpenTree, true, false, false},
      {Op::kListTrees, &Self::OnListTrees, true, false, false},
      {Op::kDropTree, &Self::OnDropTree, false, true, true},
      {Op::kGrowTree, &Self::OnGrowTree, true, true, true},
      {Op::kListTreeServers, &Self::OnListTreeServers, true, false, false},
      {Op::kAttachTree, &Self::OnAttachTree, false, true, true},
      {Op::kDetachTree, &Self::OnDetachTree, false, true, true},
      {Op::kAllocateNodes, &Self::OnAllocateNodes, false, true, true},
      {Op::kReturnNodes, &Self::OnReturnNodes, false, true, true},
      {Op::kFreeNodes, &Self::OnFreeNodes, false, true, true},
      {Op::kSettleNodes, &Self::OnSettleNodes, false, true, true},
      {Op::kListOrphans, &Self::OnListOrphans, false, true, false},
      {Op::kStats, &Self::OnStats, false, false, false},
      {Op::kListNodes, &Self::OnListNodes, false, false, false},
      {Op::kListCells, &Self::OnListCells, false, true, false},
      {Op::kServe, &Self::OnServe, true, true, false},
      {Op::kNoteDeletes, &Self::OnNoteDeletes, true, true, false},
      {Op::kFence, &Self::OnFence, false, true, true},
      {Op::kAllocateExtent, &Self::OnAllocateExtent, false, true, true},
      {Op::kFreeExtent, &Self::OnFreeExtent, false, true, true},
      {Op::kListExtents, &Self::OnListExtents, false, false, false},
  }};
  const auto found =
      std::find_if(kOperations.begin(), kOperations.end(), [&](const Operation& operation) {
        return static_cast<uint16_t>(operation.opcode) == opcode;
      });
  return found == kOperations.end() ? nullptr : &*found;
}

std::string MemoryServer::Handle(PeerId peer, std::string_view request) {
  ++counts_.calls;
  const absl::StatusOr<ControlMessage> message = ParseMessage(request);
  if (!message.ok()) {
    ++counts_.bad_messages;
    return EncodeErrorReply(SalvageHeader(request), options_.server_id, message.status());
  }
  const ControlHeader& header = message->header;
  const Operation* operation = FindOperation(header.opcode);
  if (operation == nullptr || (header.flags & kReplyFlag) != 0) {
    ++counts_.bad_messages;
    const absl::Status status = operation == nullptr
                                    ? absl::UnimplementedError(absl::StrCat(
                                          "this memory server knows no operation ", header.opcode))
                                    : absl::InvalidArgumentError("a reply was sent as a request");
    return EncodeErrorReply(header, options_.server_id, status);
  }
  if (operation->changes_state) {
    const absl::StatusOr<const std::string*> kept = replies_[peer].Find(header, message->body);
    if (!kept.ok()) return EncodeErrorReply(header, options_.server_id, kept.status());
    if (*kept != nullptr) {
      ++counts_.repeats;
      return **kept;
    }
  }
  const absl::StatusOr<std::string> body = Execute(*operation, peer, *message);
  std::string reply = body.ok() ? EncodeReply(header, options_.server_id, *body)
                                : EncodeErrorReply(header, options_.server_id, body.status());
  if (!body.ok()) ++counts_.refused;
  if (operation->changes_state) replies_[peer].Insert(header, message->body, reply);
  return reply;
}

absl::StatusOr<std::string> MemoryServer::Execute(const Operation& operation, PeerId peer,
                                                  const ControlMessage& message) {
  PANDO_RETURN_IF_ERROR(CheckAllowed(operation, peer, message.header));
  const ClientId sender = {message.header.sender, message.header.incarnation};
  if (options_.lease_ns > 0 && clients_.Check(peer, sender).ok()) {
    leases_.Renew(peer, options_.clock->NowNs());
  }
  return (this->*operation.handler)({peer, sender, message.body});
}

absl::Status MemoryServer::CheckAllowed(const Operation& operation, PeerId peer,
                                        const ControlHeader& header) const {
  if (header.target_incarnation != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "meant for incarnation ", header.target_incarnation, "; memory servers have none"));
  }
  if (operation.catalog_only && !options_.is_catalog) {
    return absl::FailedPreconditionError(absl::StrCat(
        "memory server ", options_.server_id, " does not keep the catalog: ask the one that does"));
  }
  if (operation.joined_only) return clients_.Check(peer, {header.sender, header.incarnation});
  return absl::OkStatus();
}

void MemoryServer::OnPeerGone(PeerId peer) {
  leases_.Forget(peer);
  if (const std::optional<ClientId> dead = clients_.PeerGone(peer); dead.has_value()) {
    ++counts_.deaths;
    fencing_.Add(*dead);
  }
  // A client that was cut off is reported twice: the connection still exists the first time.
  if (!clients_.IsFenced(peer)) ++counts_.peers_gone;
  replies_.erase(peer);
  // Here and now if that goes; what fails is tried again by OnTimer().
  while (options_.fence_words_per_step == 0 && !fencing_.idle()) {
    if (!StepFencing()) break;
  }
}

void MemoryServer::FenceSilentPeers(int64_t now_ns) {
  for (const PeerId peer : leases_.Step(now_ns)) {
    clients_.Fence(peer);
    CutOff(peer);
  }
}

void MemoryServer::CutOff(PeerId peer) {
  if (!options_.fence->CutOff(peer)) return clients_.FencedTooLate(peer);
  ++counts_.fenced;
}

int64_t MemoryServer::OnTimer(int64_t now_ns) {
  for (const PeerId peer : std::exchange(to_cut_off_, {})) CutOff(peer);
  if (now_ns >= leases_.NextStepNs()) FenceSilentPeers(now_ns);
  if (!fencing_.idle() && now_ns >= next_fence_step_ns_) {
    next_fence_step_ns_ =
        now_ns + (StepFencing() ? options_.fence_step_ns : options_.times.fence_again_ns);
  }
  if (nodes_.Step()) return now_ns;  // between calls, a chunk at a time
  return std::min(leases_.NextStepNs(), fencing_.idle() ? kNeverNs : next_fence_step_ns_);
}

bool MemoryServer::StepFencing() {
  const absl::StatusOr<std::optional<ClientId>> fenced = fencing_.Step();
  if (!fenced.ok()) {
    PANDO_LOG(ERROR) << "lock words of the dead stay taken for now: " << fenced.status();
    return false;
  }
  if (fenced->has_value()) ReleaseClient(**fenced);
  return true;
}

void MemoryServer::ReleaseClient(const ClientId& client) {
  const std::vector<uint32_t> trees = trees_.TreesOf(client);
  nodes_.EndHolder(client, trees);
  for (const uint32_t tree_id : trees) {
    if (trees_.Detach(client, tree_id)) unused_trees_.insert(tree_id);
  }
  FreeUnusedTrees();
}

void MemoryServer::FreeUnusedTrees() {
  std::vector<uint32_t> trees;
  for (const uint32_t tree_id : unused_trees_) {
    if (!nodes_.IsInDoubt(tree_id)) trees.push_back(tree_id);
  }
  for (const uint32_t tree_id : trees) FreeTree(tree_id);
}

void MemoryServer::FreeTree(uint32_t tree_id) {
  unused_trees_.erase(tree_id);
  ++counts_.trees_freed;
  nodes_.FreeTree(tree_id);
  if (options_.is_catalog) catalog_.Release(tree_id);
}

ServerInfo MemoryServer::Info() const {
  ServerInfo info;
  info.superblock = region_.superblock();
  info.is_catalog = options_.is_catalog ? 1 : 0;
  info.free_bytes = nodes_.free_bytes();
  info.used_bytes = nodes_.used_bytes();
  info.lease_us = static_cast<uint64_t>(options_.lease_ns / kMicrosecondNs);
  info.life = options_.life;
  info.highest_id = trees_.highest_id();
  info.serving_lease_us = static_cast<uint64_t>(serving_.lease_ns() / kMicrosecondNs);
  return info;
}

absl::StatusOr<std::string> MemoryServer::OnServerInfo(const Request&) {
  return EncodeServerInfo(Info());
}

// A joined client's heartbeat; anybody else's question whether there is somebody.
absl::StatusOr<std::string> MemoryServer::OnPing(const Request& request) {
  if (request.sender.compute_server != 0) {
    PANDO_RETURN_IF_ERROR(clients_.Check(request.peer, request.sender));
  }
  return std::string();
}

absl::StatusOr<std::string> MemoryServer::OnStats(const Request&) {
  return EncodeCounters(Counters());
}

absl::StatusOr<std::string> MemoryServer::OnAllocateNodes(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const NodeRequest nodes, ParseNodeRequest(request.body));
  PANDO_RETURN_IF_ERROR(trees_.CheckMayGrow(request.sender, nodes.tree_id));
  const absl::StatusOr<NodeGrant> grant = nodes_.Allocate(request.sender, nodes);
  if (grant.ok()) return EncodeNodeGrant(*grant);
  const std::optional<NodeGrant> later = absl::IsResourceExhausted(grant.status())
                                             ? nodes_.AllocateLater(request.sender, nodes.pool())
                                             : std::nullopt;
  if (!later.has_value()) return grant.status();
  return EncodeNodeGrant(*later);
}

absl::StatusOr<std::string> MemoryServer::OnReturnNodes(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const NodeReturn returned, ParseNodeReturn(request.body));
  PANDO_RETURN_IF_ERROR(trees_.CheckUses(request.sender, returned.tree_id));
  PANDO_RETURN_IF_ERROR(nodes_.Return(request.sender, returned));
  return std::string();
}

absl::StatusOr<std::string> MemoryServer::OnFreeNodes(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const NodeFree freed, ParseNodeFree(request.body));
  PANDO_RETURN_IF_ERROR(trees_.CheckUses(request.sender, freed.tree_id));
  return EncodeNodesFreed(nodes_.Free(freed));
}

absl::StatusOr<std::string> MemoryServer::OnSettleNodes(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const NodeSettle settle, ParseNodeSettle(request.body));
  PANDO_RETURN_IF_ERROR(trees_.CheckUses(request.sender, settle.tree_id));
  return EncodeNodeCount(nodes_.Settle(settle));
}

absl::StatusOr<std::string> MemoryServer::OnListOrphans(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const NodeQuery query, ParseNodeQuery(request.body));
  PANDO_RETURN_IF_ERROR(trees_.CheckUses(request.sender, query.tree_id));
  return EncodeOrphanList(nodes_.ListOrphans(query));
}

absl::StatusOr<std::string> MemoryServer::OnListNodes(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const NodeQuery query, ParseNodeQuery(request.body));
  return EncodeNodeList(nodes_.ListNodes(query));
}

CounterList MemoryServer::Counters() const {
  const NodeLedger::Counts nodes = nodes_.counts();
  const PendingDeletes deletes = deletes_.Sum(
      options_.clock->NowNs(), [this](const ClientId& client) { return IsOver(client); });
  return {
      {"calls", counts_.calls},
      {"bad_messages", counts_.bad_messages},
      {"refused_calls", counts_.refused},
      {"repeated_calls", counts_.repeats},
      {"clients", clients_.joined()},
      {"clients_dead", clients_.dead()},
      {"joins", counts_.joins},
      {"attaches", counts_.attaches},
      {"leaves", counts_.leaves},
      {"deaths", counts_.deaths},
      {"fenced", counts_.fenced},
      {"fences", counts_.fences},
      {"lock_words_cleared", fencing_.words_cleared()},
      {"peers_gone", counts_.peers_gone},
      {"trees", options_.is_catalog ? catalog_.size() : trees_.in_use()},
      {"trees_created", catalog_.created()},
      {"trees_dropped", counts_.trees_dropped},
      {"trees_freed", counts_.trees_freed},
      {"chunk_bytes", region_.superblock().chunk_bytes},
      {"chunks", region_.superblock().chunk_count},
      {"chunks_free", nodes.chunks_free},
      {"chunks_used", nodes.chunks_used},
      {"chunks_kept_back", nodes_.kept_back()},
      {"chunks_back", nodes.chunks_back},
      {"chunks_again", nodes_.pool().taken_again()},
      {"chunks_exhausted", nodes_.pool().exhausted()},
      {"zeroed_bytes", nodes_.pool().zeroed_bytes()},
      {"extents", extents_.extents()},
      {"extent_bytes", extents_.bytes()},
      {"spare_log_bytes", extents_.spare_bytes()},
      {"tombstones", deletes.tombstones},
      {"oldest_tombstone_ms", deletes.oldest_ms},
      {"nodes_untouched", nodes.nodes_untouched},
      {"nodes_free", nodes.nodes_free},
      {"nodes_out", nodes.nodes_out},
      {"nodes_settled", nodes.nodes_settled},
      {"nodes_orphan", nodes.orphans},
      {"node_grants", nodes.grants},
      {"nodes_granted", nodes.nodes_granted},
      {"nodes_granted_again", nodes.nodes_granted_again},
      {"nodes_returned", nodes.nodes_returned},
      {"nodes_freed", nodes.nodes_freed},
      {"frees_ignored", nodes.frees_ignored},
  };
}

}  // namespace pando::memory
