#include "compute/core/node_allocator.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"

namespace pando {

void NodeAllocator::AddServer(ServerId server, uint64_t free_bytes) {
  std::lock_guard lock(mutex_);
  free_bytes_.emplace_back(server, free_bytes);
}

std::optional<RemoteAddress> NodeAllocator::TryTake(uint32_t tree_id, ServerId preferred) {
  std::lock_guard lock(mutex_);
  const auto it = pools_.find(tree_id);
  if (it == pools_.end() || it->second.runs.empty()) return std::nullopt;
  std::vector<Run>& runs = it->second.runs;
  auto run = std::find_if(runs.begin(), runs.end(),
                          [preferred](const Run& r) { return r.server == preferred; });
  if (run == runs.end()) run = std::prev(runs.end());
  const RemoteAddress node(run->server, run->offset);
  run->offset += it->second.node_bytes;
  if (run->offset == run->end) runs.erase(run);
  return node;
}

void NodeAllocator::PutBack(uint32_t tree_id, RemoteAddress node) {
  std::lock_guard lock(mutex_);
  Pool& pool = pools_[tree_id];
  for (Run& run : pool.runs) {
    if (run.server == node.server() && run.offset == node.offset() + pool.node_bytes) {
      run.offset = node.offset();
      return;
    }
  }
  pool.runs.push_back({node.server(), node.offset(), node.offset() + pool.node_bytes});
}

std::vector<ServerId> NodeAllocator::ServersByFreeSpace(ServerId preferred) {
  std::lock_guard lock(mutex_);
  std::stable_sort(free_bytes_.begin(), free_bytes_.end(), [&](const auto& a, const auto& b) {
    if (a.second != b.second) return a.second > b.second;
    return a.first == preferred && b.first != preferred;
  });
  std::vector<ServerId> servers;
  for (const auto& [server, free] : free_bytes_) servers.push_back(server);
  return servers;
}

absl::Status NodeAllocator::RequestChunk(OperationContext& context, uint32_t tree_id,
                                         uint32_t node_bytes, ServerId preferred) {
  absl::Status exhausted = absl::ResourceExhaustedError("no memory server has a free chunk");
  for (const ServerId server : ServersByFreeSpace(preferred)) {
    const absl::StatusOr<std::string> body =
        control_->Call(context, server, ControlOpcode::kAllocateChunk,
                       EncodeChunkRequest({.tree_id = tree_id, .node_bytes = node_bytes}));
    if (absl::IsResourceExhausted(body.status()) || absl::IsUnavailable(body.status())) {
      exhausted = body.status();
      std::lock_guard lock(mutex_);
      for (auto& [id, free] : free_bytes_) {
        if (id == server) free = 0;
      }
      continue;
    }
    PANDO_RETURN_IF_ERROR(body.status());
    PANDO_ASSIGN_OR_RETURN(const ChunkGrant grant, ParseChunkGrant(*body));
    if (grant.bytes == 0 || grant.bytes % node_bytes != 0 || grant.offset % 64 != 0) {
      return absl::DataLossError(
          absl::StrCat("memory server ", server, " granted a malformed chunk"));
    }
    std::lock_guard lock(mutex_);
    Pool& pool = pools_[tree_id];
    pool.node_bytes = node_bytes;
    pool.runs.push_back({server, grant.offset, grant.offset + grant.bytes});
    for (auto& [id, free] : free_bytes_) {
      if (id == server) free = grant.free_bytes;
    }
    return absl::OkStatus();
  }
  return exhausted;
}

absl::Status NodeAllocator::Refill(OperationContext& context, uint32_t tree_id, uint32_t node_bytes,
                                   ServerId preferred) {
  bool waited = false;
  while (true) {
    {
      std::lock_guard lock(mutex_);
      Pool& pool = pools_[tree_id];
      if (!pool.refilling) {
        if (waited && !pool.runs.empty()) return absl::OkStatus();
        pool.refilling = true;
        break;
      }
    }
    waited = true;
    if (context.expired()) return context.DeadlineError("waiting for a chunk");
    context.BackOff(2);
  }
  const absl::Status status = RequestChunk(context, tree_id, node_bytes, preferred);
  std::lock_guard lock(mutex_);
  pools_[tree_id].refilling = false;
  return status;
}

void NodeAllocator::ReturnAll(OperationContext& context, uint32_t tree_id) {
  std::vector<Run> runs;
  {
    std::lock_guard lock(mutex_);
    const auto it = pools_.find(tree_id);
    if (it == pools_.end()) return;
    runs = std::move(it->second.runs);
    pools_.erase(it);
  }
  for (const Run& run : runs) {
    // Best effort: what is not returned is found again when the client's chunks are swept.
    (void)control_->Call(context, run.server, ControlOpcode::kReturnChunk,
                         EncodeChunkGrant({.offset = run.offset, .bytes = run.end - run.offset}));
  }
}

}  // namespace pando
