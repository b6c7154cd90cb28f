// NodeAllocator's part in what it asks of memory servers: requests for nodes, and what they grant.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/node_glance.h"
#include "common/wire/node_image.h"
#include "compute/core/node_allocator.h"

namespace pando {
namespace {

// Old images that one Refill() reads and keeps, and how much of them in one go.
constexpr uint32_t kOldImageBytesMax = 256 << 10;
constexpr uint32_t kReadBytes = 64 << 10;
constexpr uint32_t kReadsMax = 8;
constexpr uint32_t kRecycledMax = 64;
static_assert(kRecycledMax <= kGrantRunsMax);

int64_t CeilMilliseconds(int64_t ns) { return (ns + kMillisecondNs - 1) / kMillisecondNs; }

absl::StatusOr<NodeGrant> GrantOf(const absl::StatusOr<std::string>& body) {
  if (!body.ok()) return body.status();
  return ParseNodeGrant(*body);
}

}  // namespace

absl::Status NodeAllocator::GrowOnto(OperationContext& context, NodePoolId id, const TreeServer& on,
                                     const NodeGrant& grant) {
  const uint32_t tree_id = id.tree_id;
  if (grow_ == nullptr) return absl::OkStatus();
  {
    std::lock_guard lock(mutex_);
    const TreeServerList& known = grown_[tree_id];
    if (std::find(known.begin(), known.end(), on) != known.end()) return absl::OkStatus();
  }
  // The answer may have lain here while the server started again: what it has granted is gone.
  context.session.AdoptServers();
  if (on.life == 0 || context.session.LifeOf(on.server) != on.life) {
    NoteUncertain(tree_id, on.server);  // or the next life has granted it: of that one nobody asked
    return absl::UnavailableError(
        absl::StrCat("memory server ", on.server, " started again meanwhile"));
  }
  absl::Status status = grow_(context, {tree_id, on});
  if (status.ok()) {
    std::lock_guard lock(mutex_);
    grown_[tree_id].push_back(on);
    return status;
  }
  std::vector<Run> runs;
  for (const NodeRun& run : grant.runs) {
    runs.push_back({on.server, run.offset, run.offset + run.bytes});
  }
  ReturnGrant(context, id, 0, std::move(runs), {});
  return status;
}

std::vector<ServerId> NodeAllocator::ServersByFreeSpace(ServerId preferred) {
  std::lock_guard lock(mutex_);
  std::stable_sort(free_bytes_.begin(), free_bytes_.end(), [&](const auto& a, const auto& b) {
    if (a.bytes != b.bytes) return a.bytes > b.bytes;
    return a.server == preferred && b.server != preferred;
  });
  std::vector<ServerId> servers;
  for (const FreeBytes& free : free_bytes_) servers.push_back(free.server);
  return servers;
}

uint32_t NodeAllocator::TakeUnanswered(NodePoolId id, ServerId server) {
  std::lock_guard lock(mutex_);
  std::vector<Unanswered>& all = pools_[id].unanswered;
  const auto found = std::find_if(all.begin(), all.end(),
                                  [server](const auto& one) { return one.server == server; });
  if (found == all.end()) return 0;
  const uint32_t number = found->number;
  all.erase(found);
  return number;
}

absl::StatusOr<std::string> NodeAllocator::Ask(OperationContext& asking, NodePoolId id,
                                               ServerId server, std::string_view request) {
  while (true) {
    uint32_t number = TakeUnanswered(id, server);
    const bool is_late = number != 0;
    absl::StatusOr<std::string> body =
        control_->Call(asking, server, ControlOpcode::kAllocateNodes, request, &number);
    if (number != 0) {
      std::lock_guard lock(mutex_);
      if (Find(server) == nullptr) {
        control_->Forget(number);  // it has gone meanwhile: nobody asks it again
        pools_[id].doubts.Add(server);
      } else {
        pools_[id].unanswered.push_back({server, number});
      }
      return body;
    }
    if (!is_late) return body;
    const absl::StatusOr<NodeGrant> grant = GrantOf(body);
    if (grant.ok() && !grant->runs.empty()) return body;
    // That there was nothing at that time says nothing of now. What came of it may not be known.
    if (!grant.ok() && !absl::IsResourceExhausted(grant.status())) NoteUncertain(id, server);
  }
}

absl::Status NodeAllocator::RequestNodes(OperationContext& context, NodePoolId id,
                                         uint32_t node_bytes, ServerId preferred,
                                         int64_t* rested_ns) {
  *rested_ns = kNeverNs;
  absl::Status failed = absl::UnavailableError("no memory server is left");
  const uint32_t nodes_max = std::clamp<uint32_t>(kOldImageBytesMax / node_bytes, 1, kRecycledMax);
  const std::string request = EncodeNodeRequest({.tree_id = id.tree_id,
                                                 .node_bytes = node_bytes,
                                                 .nodes_max = nodes_max,
                                                 .cell_lines = id.cell_lines});
  std::vector<ServerId> servers = ServersByFreeSpace(preferred);
  std::stable_partition(servers.begin(), servers.end(), [&](ServerId server) {
    return !IsSilent(server, context.session.NowNs());
  });
  bool is_late = false;
  for (const ServerId server : servers) {
    context.session.AdoptServers();
    // The life that has come does not know a tree that was lost with the one before.
    PANDO_RETURN_IF_ERROR(context.CheckFate());
    const uint64_t life = context.session.LifeOf(server);
    const int64_t begun_ns = context.session.NowNs();
    const int64_t until_ns =
        servers.size() == 1 ? context.deadline_ns() : AskUntilNs(context, kRequestShares);
    OperationContext asking(context, until_ns);
    const absl::StatusOr<std::string> body = Ask(asking, id, server, request);
    NoteAnswer(context, {server, life}, body.status(), begun_ns, until_ns);
    NoteFailure(server, life, body.status());
    const absl::StatusOr<NodeGrant> grant = GrantOf(body);
    // Nodes may have been handed out all the same.
    if (absl::IsDataLoss(grant.status())) NoteUncertain(id, server);
    if (absl::IsDeadlineExceeded(body.status()) && !context.expired()) {
      is_late = true;
      continue;
    }
    if (absl::IsResourceExhausted(body.status()) || absl::IsUnavailable(body.status())) {
      // One that is full is the better reason: it may have room again.
      if (!absl::IsResourceExhausted(failed)) failed = body.status();
      SetFreeBytes(server, life, 0);
      continue;
    }
    PANDO_RETURN_IF_ERROR(grant.status());
    if (!grant->runs.empty()) {
      absl::Status taken = GrowOnto(context, id, {server, life}, *grant);
      if (taken.ok()) taken = TakeGrant(context, id, node_bytes, {server, life}, *grant);
      if (!absl::IsUnavailable(taken)) return taken;
      if (!absl::IsResourceExhausted(failed)) failed = std::move(taken);
      continue;
    }
    *rested_ns = std::min(*rested_ns, context.session.NowNs() + grant->rested_in_ns);
    failed = absl::ResourceExhaustedError(
        absl::StrCat("memory server ", server, " is full for the moment: what was freed rests for ",
                     CeilMilliseconds(grant->rested_in_ns), " ms more"));
    SetFreeBytes(server, life, 0);
    std::lock_guard lock(mutex_);
    pools_[id].orphans = pools_[id].orphans || grant->orphans > 0;
  }
  if (is_late) {
    // It may have room, and the others again soon. Its request goes on under the same number.
    *rested_ns = context.session.NowNs();
    failed = absl::ResourceExhaustedError("not all memory servers have answered");
  }
  std::lock_guard lock(mutex_);
  pools_[id].scarce = true;
  return failed;
}

absl::Status NodeAllocator::TakeGrant(OperationContext& context, NodePoolId id, uint32_t node_bytes,
                                      const TreeServer& on, const NodeGrant& grant) {
  const ServerId server = on.server;
  std::vector<Run> runs;
  std::vector<SpareNode> recycled;
  for (const NodeRun& run : grant.runs) {
    const uint64_t nodes = run.bytes / node_bytes;
    const bool has_image = run.recycled != 0 && !id.is_of_cells();
    if (run.bytes % node_bytes != 0 || (has_image && nodes > kRecycledMax)) {
      NoteUncertain(id, server);
      return absl::DataLossError(
          absl::StrCat("memory server ", server, " granted malformed nodes"));
    }
    if (!has_image) runs.push_back({server, run.offset, run.offset + run.bytes, run.life});
    for (uint64_t i = 0; has_image && i < nodes; ++i) {
      recycled.push_back(
          {.address = RemoteAddress(server, run.offset + i * node_bytes), .life = run.life});
    }
  }
  const absl::Status read = ReadOldImages(context, node_bytes, &recycled);
  if (!read.ok()) {
    NoteFailure(server, on.life, read);
    ReturnGrant(context, id, node_bytes, std::move(runs), recycled);
    return read;
  }
  for (const SpareNode& spare : recycled) {
    if (LifeNewer(spare.life, LifeOf(spare.old_image.get()))) continue;
    NoteUncertain(id, server);  // it is not what the server takes it for: nobody is to use it
    return absl::DataLossError(absl::StrCat("memory server ", server, " granted node ",
                                            spare.address.offset(), " for life ", spare.life,
                                            ", which it has had already"));
  }
  std::lock_guard lock(mutex_);
  FreeBytes* const granted = Find(server);
  if (granted == nullptr || granted->life != on.life) {
    pools_[id].doubts.Add(server);  // as in GrowOnto()
    return absl::UnavailableError(absl::StrCat("memory server ", server, " died"));
  }
  granted->bytes = grant.free_bytes;
  Pool& pool = pools_[id];
  pool.node_bytes = node_bytes;
  pool.scarce = false;
  pool.runs.insert(pool.runs.end(), runs.begin(), runs.end());
  pool.recycled.insert(pool.recycled.end(), std::make_move_iterator(recycled.begin()),
                       std::make_move_iterator(recycled.end()));
  pool.orphans = pool.orphans || grant.orphans > 0;
  return absl::OkStatus();
}

absl::Status NodeAllocator::ReadOldImages(OperationContext& context, uint32_t node_bytes,
                                          std::vector<SpareNode>* spares) {
  if (spares->empty()) return absl::OkStatus();
  const size_t batch = std::clamp<uint32_t>(kReadBytes / node_bytes, 1, kReadsMax);
  PANDO_ASSIGN_OR_RETURN(const BufferLease buffer, context.session.buffers().Lease(
                                                       static_cast<uint32_t>(batch) * node_bytes));
  ChainLease chain(&context.session.buffers());
  for (size_t first = 0; first < spares->size();) {
    const size_t count = std::min(batch, spares->size() - first);
    chain->Reset((*spares)[first].address.server());
    for (size_t i = 0; i < count; ++i) {
      chain->Read(MemorySpace::kMain, (*spares)[first + i].address.offset(),
                  buffer.Slice(static_cast<uint32_t>(i) * node_bytes, node_bytes));
    }
    const absl::Status read = context.Await(chain.get());
    // Nobody writes there: whatever the fabric says of the READ's speed, it can be repeated.
    if (absl::IsAborted(read) && !context.expired()) continue;
    PANDO_RETURN_IF_ERROR(read);
    for (size_t i = 0; i < count; ++i, ++first) {
      std::unique_ptr<std::byte[]>& image = (*spares)[first].old_image;
      image = std::make_unique<std::byte[]>(node_bytes);
      std::memcpy(image.get(), buffer.data() + i * node_bytes, node_bytes);
    }
  }
  return absl::OkStatus();
}

}  // namespace pando
