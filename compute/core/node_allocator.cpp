#include "compute/core/node_allocator.h"

#include <algorithm>
#include <utility>

#include "common/fabric/recoverable.h"

namespace pando {
namespace {

// Free memory is scarce where all servers together have less for the tree.
constexpr uint64_t kScarceBytes = 4 << 20;

constexpr char kAllRests[] = "all that is free on the memory servers rests until past the deadline";

}  // namespace

void ServerDoubts::Add(ServerId server) {
  if (std::find(servers_.begin(), servers_.end(), server) == servers_.end())
    servers_.push_back(server);
}

void ServerDoubts::Add(const ServerDoubts& others) {
  all_ = all_ || others.all_;
  for (const ServerId server : others.servers_) Add(server);
}

bool ServerDoubts::Has(ServerId server) const {
  return all_ || std::find(servers_.begin(), servers_.end(), server) != servers_.end();
}

void NodeAllocator::AddServer(ServerId server, uint64_t free_bytes, uint64_t life) {
  std::lock_guard lock(mutex_);
  std::erase_if(free_bytes_, [server](const auto& known) { return known.server == server; });
  free_bytes_.push_back({server, life, free_bytes});
}

void NodeAllocator::NoteGrown(uint32_t tree_id, const TreeServerList& servers) {
  std::lock_guard lock(mutex_);
  grown_[tree_id] = servers;
}

class NodeAllocator::Waiting {
 public:
  Waiting(NodeAllocator* allocator, NodePoolId id) : allocator_(*allocator), id_(id) {}
  ~Waiting() {
    if (!begun_) return;
    std::lock_guard lock(allocator_.mutex_);
    const auto pool = allocator_.pools_.find(id_);
    if (pool != allocator_.pools_.end() && pool->second.waiting > 0) --pool->second.waiting;
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // Under the allocator's mutex.
  void Begin() {
    if (!std::exchange(begun_, true)) ++allocator_.pools_[id_].waiting;
  }

 private:
  NodeAllocator& allocator_;
  const NodePoolId id_;
  bool begun_ = false;
};

uint64_t NodeAllocator::SpareNodesOf(const Pool& pool) {
  uint64_t nodes = pool.recycled.size();
  for (const Run& run : pool.runs) nodes += (run.end - run.offset) / pool.node_bytes;
  return nodes;
}

std::optional<SpareNode> NodeAllocator::TryTake(NodePoolId id, ServerId preferred, bool waited) {
  std::lock_guard lock(mutex_);
  const auto it = pools_.find(id);
  if (it == pools_.end()) return std::nullopt;
  const Pool& pool = it->second;
  if (id.is_of_cells() && !waited && pool.waiting > 0 && SpareNodesOf(pool) <= pool.waiting) {
    return std::nullopt;
  }
  std::vector<Run>& runs = it->second.runs;
  std::vector<SpareNode>& recycled = it->second.recycled;
  const auto old = std::find_if(recycled.rbegin(), recycled.rend(), [&](const SpareNode& spare) {
    return spare.address.server() == preferred;
  });
  auto run =
      std::find_if(runs.begin(), runs.end(), [&](const Run& r) { return r.server == preferred; });
  const bool has_preferred = old != recycled.rend() || run != runs.end();
  if (old != recycled.rend() || (!has_preferred && !recycled.empty())) {
    if (old != recycled.rend()) std::swap(*old, recycled.back());
    SpareNode spare = std::move(recycled.back());
    recycled.pop_back();
    ++reused_;
    return spare;
  }
  if (runs.empty()) return std::nullopt;
  if (run == runs.end()) run = std::prev(runs.end());
  SpareNode spare{.address = RemoteAddress(run->server, run->offset), .life = run->life};
  run->offset += it->second.node_bytes;
  if (run->offset == run->end) runs.erase(run);
  return spare;
}

void NodeAllocator::PutBack(NodePoolId id, SpareNode node) {
  std::lock_guard lock(mutex_);
  Pool& pool = pools_[id];
  if (Find(node.address.server()) == nullptr) {
    pool.doubts.Add(node.address.server());
    return;
  }
  if (node.old_image != nullptr) {
    --reused_;
    pool.recycled.push_back(std::move(node));
    return;
  }
  const RemoteAddress at = node.address;
  for (Run& run : pool.runs) {
    if (run.server == at.server() && run.offset == at.offset() + pool.node_bytes &&
        run.life == node.life) {
      run.offset = at.offset();
      return;
    }
  }
  pool.runs.push_back({at.server(), at.offset(), at.offset() + pool.node_bytes, node.life});
}

void NodeAllocator::Free(NodePoolId id, const Reference& node) {
  std::lock_guard lock(mutex_);
  Pool& pool = pools_[id];
  if (pool.freed.size() < kFreesQueuedMax && Find(node.address.server()) != nullptr) {
    pool.freed.push_back(node);
  } else {
    pool.doubts.Add(node.address.server());  // a sweep finds it
  }
}

void NodeAllocator::NoteLinked(NodePoolId id, const Reference& cell) {
  std::lock_guard lock(mutex_);
  Pool& pool = pools_[id];
  if (pool.linked.size() < kFreesQueuedMax) pool.linked.push_back(cell);  // or when it is closed
}

void NodeAllocator::NoteUncertain(NodePoolId id) {
  std::lock_guard lock(mutex_);
  pools_[id].doubts.AddAll();
}

void NodeAllocator::NoteUncertain(NodePoolId id, ServerId server) {
  std::lock_guard lock(mutex_);
  pools_[id].doubts.Add(server);
}

void NodeAllocator::NoteCellsDue(uint32_t tree_id) {
  std::lock_guard lock(mutex_);
  cells_due_.insert(tree_id);
}

bool NodeAllocator::TakeCellsDue(uint32_t tree_id) {
  std::lock_guard lock(mutex_);
  return cells_due_.erase(tree_id) > 0;
}

void NodeAllocator::ForgetTree(uint32_t tree_id) {
  std::lock_guard lock(mutex_);
  absl::erase_if(pools_, [tree_id](const auto& pool) { return pool.first.tree_id == tree_id; });
  grown_.erase(tree_id);
  cells_due_.erase(tree_id);
}

uint64_t NodeAllocator::nodes_reused() const {
  std::lock_guard lock(mutex_);
  return reused_;
}

NodeAllocator::FreeBytes* NodeAllocator::Find(ServerId server) {
  const auto found = std::find_if(free_bytes_.begin(), free_bytes_.end(),
                                  [server](const auto& known) { return known.server == server; });
  return found == free_bytes_.end() ? nullptr : &*found;
}

bool NodeAllocator::IsScarce(const Pool& pool) const {
  uint64_t bytes = 0;
  for (const FreeBytes& free : free_bytes_) bytes += free.bytes;
  return pool.scarce || bytes < kScarceBytes;
}

void NodeAllocator::NoteFailure(ServerId server, uint64_t life, const absl::Status& status) {
  if (!absl::IsUnavailable(status) || IsRecoverable(status)) return;
  std::lock_guard lock(mutex_);
  const FreeBytes* const known = Find(server);
  if (known == nullptr || known->life == life) Drop(server);
}

void NodeAllocator::NoteGone(ServerId server) {
  std::lock_guard lock(mutex_);
  Drop(server);
}

void NodeAllocator::Drop(ServerId server) {
  std::erase_if(free_bytes_, [server](const auto& known) { return known.server == server; });
  const auto is_of = [server](const Reference& node) { return node.address.server() == server; };
  for (auto& [id, pool] : pools_) {
    const auto is_there = [server](const auto& node) { return node.address.server() == server; };
    size_t dropped =
        std::erase_if(pool.runs, [server](const Run& run) { return run.server == server; }) +
        std::erase_if(pool.recycled, is_there) + std::erase_if(pool.freed, is_of) +
        std::erase_if(pool.held_freed, is_of);
    std::erase_if(pool.linked, is_of);
    std::erase_if(pool.held_linked, is_of);
    dropped += std::erase_if(pool.unanswered, [&](const Unanswered& one) {
      if (one.server == server) control_->Forget(one.number);
      return one.server == server;
    });
    // Should the server live all the same, a sweep finds them.
    if (dropped > 0) pool.doubts.Add(server);
  }
}

bool NodeAllocator::TakeOrphanHint(uint32_t tree_id) {
  std::lock_guard lock(mutex_);
  bool hint = false;
  for (auto& [id, pool] : pools_) {
    if (id.tree_id == tree_id) hint = std::exchange(pool.orphans, false) || hint;
  }
  return hint;
}

absl::Status NodeAllocator::Refill(OperationContext& context, NodePoolId id, uint32_t node_bytes,
                                   ServerId preferred) {
  Waiting waiting(this, id);
  bool tells_again = false;
  for (bool waited = false;; waited = true) {
    // First of all: what is freed is to rest while this caller waits.
    Flush(context, id);
    bool asks = false;
    int64_t rested_ns = 0;
    uint64_t told = 0;
    {
      std::lock_guard lock(mutex_);
      Pool& pool = pools_[id];
      told = pool.told;
      if (waited && !(pool.runs.empty() && pool.recycled.empty())) return absl::OkStatus();
      rested_ns = pool.rested_ns;
      asks = !pool.refilling && context.session.NowNs() >= rested_ns;
      pool.refilling = pool.refilling || asks;
      if (!asks) waiting.Begin();
    }
    absl::Status status;
    if (asks) {
      status = RequestNodes(context, id, node_bytes, preferred, &rested_ns);
      std::lock_guard lock(mutex_);
      Pool& pool = pools_[id];
      pool.refilling = false;
      const int64_t now_ns = context.session.NowNs();
      // All is full, but for what the servers did not know of when they said so. What is queued is
      // told once more only: a server that cannot be told would hold this caller up.
      if (absl::IsResourceExhausted(status) && rested_ns == kNeverNs &&
          (IsBeingTold(pool, told, now_ns) ||
           (!pool.freed.empty() && !std::exchange(tells_again, true)))) {
        rested_ns = now_ns + times_.allocator_look_ns;
      }
      const bool rests = absl::IsResourceExhausted(status) && rested_ns != kNeverNs;
      pool.rested_ns = rests ? rested_ns : 0;
      if (!rests) return status;
    }
    if (context.session.fenced()) return FencedError();
    if (context.expired()) return context.DeadlineError("waiting for nodes");
    if (rested_ns >= context.deadline_ns()) {
      return status.ok() ? absl::ResourceExhaustedError(kAllRests) : status;
    }
    const int64_t now_ns = context.session.NowNs();
    if (rested_ns <= now_ns) {
      context.BackOff(2);
    } else {
      context.session.scheduler().SleepUntil(
          std::min(rested_ns, now_ns + times_.allocator_look_ns));
    }
  }
}

}  // namespace pando
