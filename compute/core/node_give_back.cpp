// NodeAllocator's part in what goes back to memory servers: frees, cells that are linked now, spare
// nodes of a tree that is closed.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "common/base/status.h"
#include "compute/core/node_allocator.h"

namespace pando {
namespace {

// A busy machine does not answer at once.
constexpr int64_t kMomentNs = 20 * kMillisecondNs;

// By server: requests are of one server and at most kNodesPerRequestMax nodes.
void ForEachRequest(std::vector<Reference>* nodes, absl::FunctionRef<void(size_t, size_t)> send) {
  std::stable_sort(nodes->begin(), nodes->end(), [](const Reference& a, const Reference& b) {
    return a.address.server() < b.address.server();
  });
  for (size_t first = 0; first < nodes->size();) {
    size_t next = first;
    while (next < nodes->size() && next - first < kNodesPerRequestMax &&
           (*nodes)[next].address.server() == (*nodes)[first].address.server()) {
      ++next;
    }
    send(first, next);
    first = next;
  }
}

// NodeSettle or NodeFree: of nodes [first, next).
template <typename Request>
Request OfNodes(NodePoolId id, const std::vector<Reference>& nodes, size_t first, size_t next) {
  Request request{.tree_id = id.tree_id, .nodes = {}, .cell_lines = id.cell_lines};
  for (; first < next; ++first) {
    request.nodes.push_back({nodes[first].address.offset(), nodes[first].life});
  }
  return request;
}

}  // namespace

int64_t NodeAllocator::AskNs() const { return kAskedAttempts * times_.call_attempt_ns; }

bool NodeAllocator::IsSilent(ServerId server, int64_t now_ns) const {
  std::lock_guard lock(mutex_);
  return !Answers(server, now_ns);
}

bool NodeAllocator::Answers(ServerId server, int64_t now_ns) const {
  const auto known = std::find_if(free_bytes_.begin(), free_bytes_.end(),
                                  [server](const auto& one) { return one.server == server; });
  return known == free_bytes_.end() || known->silent_until_ns <= now_ns;
}

int64_t NodeAllocator::AskUntilNs(OperationContext& context, int64_t shares) const {
  const int64_t now_ns = context.session.NowNs();
  const int64_t left_ns = std::max<int64_t>(context.deadline_ns() - now_ns, 0);
  const int64_t share_ns = std::max(left_ns / shares, std::min(left_ns, kMomentNs));
  return now_ns + std::min(share_ns, AskNs());
}

void NodeAllocator::NoteAnswer(OperationContext& context, const TreeServer& on,
                               const absl::Status& answer, int64_t begun_ns, int64_t until_ns) {
  const bool is_answer = answer.ok() || absl::IsResourceExhausted(answer);
  if (!is_answer && !absl::IsDeadlineExceeded(answer)) return;
  std::lock_guard lock(mutex_);
  FreeBytes* const known = Find(on.server);
  if (known == nullptr || known->life != on.life) return;
  if (is_answer) {
    known->silent_until_ns = known->unanswered_ns = 0;
    return;
  }
  // Who is late itself, such as a process that was stopped, has not asked for longer.
  const int64_t now_ns = context.session.NowNs();
  known->unanswered_ns += std::max<int64_t>(std::min(now_ns, until_ns) - begun_ns, 0);
  if (known->unanswered_ns >= AskNs()) known->silent_until_ns = now_ns + kSilentAsks * AskNs();
}

bool NodeAllocator::IsBeingTold(const Pool& pool, uint64_t told, int64_t now_ns) const {
  if (pool.telling > 0 || pool.told != told) return true;
  // Of a server that was silent, and has just answered.
  return std::any_of(pool.held_freed.begin(), pool.held_freed.end(),
                     [&](const Reference& node) { return Answers(node.address.server(), now_ns); });
}

void NodeAllocator::FlushIfMany(OperationContext& context, NodePoolId id) {
  {
    std::lock_guard lock(mutex_);
    const auto found = pools_.find(id);
    if (found == pools_.end()) return;
    Pool& pool = found->second;
    const bool any_held = !pool.held_freed.empty() || !pool.held_linked.empty();
    if (pool.freed.empty() && pool.linked.empty() && !any_held) return;
    const int64_t now_ns = context.session.NowNs();
    if (pool.flushed_ns == 0) pool.flushed_ns = now_ns;
    const bool sent_lately = now_ns - pool.flushed_ns < times_.free_flush_ns;
    const bool many = std::max(pool.freed.size(), pool.linked.size()) >= kNodesPerRequestMax;
    if (!many && sent_lately && !(IsScarce(pool) && !pool.freed.empty())) return;
  }
  Flush(context, id);
}

std::vector<NodePoolId> NodeAllocator::PoolsOf(uint32_t tree_id) const {
  std::lock_guard lock(mutex_);
  std::vector<NodePoolId> pools;
  for (const auto& [id, pool] : pools_) {
    if (id.tree_id == tree_id) pools.push_back(id);
  }
  std::sort(pools.begin(), pools.end());  // the same in each run of a seed
  return pools;
}

void NodeAllocator::FlushTree(OperationContext& context, uint32_t tree_id) {
  for (const NodePoolId id : PoolsOf(tree_id)) Flush(context, id);
}

void NodeAllocator::Flush(OperationContext& context, NodePoolId id) {
  std::vector<Reference> freed, linked;
  {
    std::lock_guard lock(mutex_);
    const auto pool = pools_.find(id);
    if (pool == pools_.end()) return;
    pool->second.flushed_ns = context.session.NowNs();
    TakeQueued(&pool->second, context.session.NowNs(), &freed, &linked);
    if (freed.empty() && linked.empty()) return;
    if (!freed.empty()) ++pool->second.telling;
  }
  const bool was_told = !freed.empty();
  ForEachRequest(&linked,
                 [&](size_t first, size_t next) { SendLinked(context, id, linked, first, next); });
  ForEachRequest(&freed,
                 [&](size_t first, size_t next) { SendFrees(context, id, freed, first, next); });
  if (!was_told) return;
  std::lock_guard lock(mutex_);
  const auto pool = pools_.find(id);  // the tree may have been closed, and opened again
  if (pool != pools_.end() && pool->second.telling > 0) --pool->second.telling;
}

void NodeAllocator::TakeQueued(Pool* pool, int64_t now_ns, std::vector<Reference>* freed,
                               std::vector<Reference>* linked) {
  const auto answers = [&](const Reference& node) {
    return Answers(node.address.server(), now_ns);
  };
  const auto take = [&](std::vector<Reference>* queued, std::vector<Reference>* held,
                        std::vector<Reference>* taken) {
    taken->swap(*queued);
    // Together with what was held: of a server that answers again that is told, too.
    taken->insert(taken->end(), held->begin(), held->end());
    const auto silent = std::stable_partition(taken->begin(), taken->end(), answers);
    held->assign(silent, taken->end());
    taken->erase(silent, taken->end());
    if (held->size() <= kFreesQueuedMax) return;
    for (size_t i = kFreesQueuedMax; i < held->size(); ++i) {
      pool->doubts.Add((*held)[i].address.server());  // a sweep finds them
    }
    held->resize(kFreesQueuedMax);
  };
  take(&pool->freed, &pool->held_freed, freed);
  take(&pool->linked, &pool->held_linked, linked);
}

absl::StatusOr<std::string> NodeAllocator::Tell(OperationContext& context, ServerId server,
                                                ControlOpcode opcode, std::string_view body,
                                                int64_t until_ns) {
  const int64_t begun_ns = context.session.NowNs();
  OperationContext asking(context, until_ns);
  context.session.AdoptServers();
  const uint64_t life = context.session.LifeOf(server);
  // A return that is executed twice takes back what was granted in between.
  const bool is_return = opcode == ControlOpcode::kReturnNodes;
  uint32_t unanswered = 0;
  absl::StatusOr<std::string> answer =
      control_->Call(asking, server, opcode, body, is_return ? &unanswered : nullptr);
  if (unanswered != 0) control_->Forget(unanswered);
  NoteAnswer(context, {server, life}, answer.status(), begun_ns, until_ns);
  NoteFailure(server, life, answer.status());
  return answer;
}

absl::StatusOr<std::string> NodeAllocator::TellOf(OperationContext& context, ServerId server,
                                                  ControlOpcode opcode, std::string_view body) {
  if (IsSilent(server, context.session.NowNs())) {
    return absl::DeadlineExceededError("it does not answer");
  }
  return Tell(context, server, opcode, body, AskUntilNs(context, kTellShares));
}

void NodeAllocator::SendLinked(OperationContext& context, NodePoolId id,
                               const std::vector<Reference>& linked, size_t first, size_t next) {
  const ServerId server = linked[first].address.server();
  const absl::StatusOr<std::string> body =
      TellOf(context, server, ControlOpcode::kSettleNodes,
             EncodeNodeSettle(OfNodes<NodeSettle>(id, linked, first, next)));
  if (body.ok()) return;
  for (; first < next; ++first) NoteLinked(id, linked[first]);
}

void NodeAllocator::SendFrees(OperationContext& context, NodePoolId id,
                              const std::vector<Reference>& freed, size_t first, size_t next) {
  const ServerId server = freed[first].address.server();
  const uint64_t life = context.session.LifeOf(server);
  const absl::StatusOr<std::string> body =
      TellOf(context, server, ControlOpcode::kFreeNodes,
             EncodeNodeFree(OfNodes<NodeFree>(id, freed, first, next)));
  if (!body.ok()) {  // whether it has happened or not: it may be said again (rule R4)
    for (; first < next; ++first) Free(id, freed[first]);
    return;
  }
  const absl::StatusOr<NodesFreed> done = ParseNodesFreed(*body);
  if (done.ok()) SetFreeBytes(server, life, done->free_bytes);
  std::lock_guard lock(mutex_);
  if (const auto pool = pools_.find(id); pool != pools_.end()) ++pool->second.told;
}

std::vector<NodeAllocator::Request> NodeAllocator::ReturnsOf(
    NodePoolId id, uint32_t node_bytes, std::vector<Run> runs,
    const std::vector<SpareNode>& recycled) {
  for (const SpareNode& spare : recycled) {
    const uint64_t offset = spare.address.offset();
    runs.push_back({spare.address.server(), offset, offset + node_bytes, spare.life});
  }
  std::stable_sort(runs.begin(), runs.end(),
                   [](const Run& a, const Run& b) { return a.server < b.server; });
  std::vector<Request> requests;
  for (size_t first = 0; first < runs.size();) {
    const ServerId server = runs[first].server;
    NodeReturn returned{.tree_id = id.tree_id, .cell_lines = id.cell_lines};
    for (; first < runs.size() && runs[first].server == server &&
           returned.runs.size() < kRunsPerRequestMax;
         ++first) {
      const Run& run = runs[first];
      returned.runs.push_back({.offset = run.offset, .bytes = run.end - run.offset});
    }
    requests.push_back({server, ControlOpcode::kReturnNodes, EncodeNodeReturn(returned)});
  }
  return requests;
}

void NodeAllocator::ReturnGrant(OperationContext& context, NodePoolId id, uint32_t node_bytes,
                                std::vector<Run> runs, const std::vector<SpareNode>& recycled) {
  for (const Request& request : ReturnsOf(id, node_bytes, std::move(runs), recycled)) {
    const auto taken = TellOf(context, request.server, request.opcode, request.body);
    if (!taken.ok()) NoteUncertain(id, request.server);
  }
}

ServerDoubts NodeAllocator::ReturnAll(OperationContext& context, uint32_t tree_id,
                                      const ListensUntil& until) {
  ServerDoubts doubts;
  std::map<ServerId, std::vector<Request>> by_server;  // the same order in each run of a seed
  const auto add = [&](Request request) {
    by_server[request.server].push_back(std::move(request));
  };
  for (const NodePoolId id : PoolsOf(tree_id)) {
    Pool pool;
    {
      std::lock_guard lock(mutex_);
      const auto it = pools_.find(id);
      if (it == pools_.end()) continue;
      pool = std::move(it->second);
      pools_.erase(it);
    }
    doubts.Add(pool.doubts);
    for (const Unanswered& one : pool.unanswered) {
      control_->Forget(one.number);
      doubts.Add(one.server);
    }
    std::move(pool.held_linked.begin(), pool.held_linked.end(), std::back_inserter(pool.linked));
    std::move(pool.held_freed.begin(), pool.held_freed.end(), std::back_inserter(pool.freed));
    ForEachRequest(&pool.linked, [&](size_t first, size_t next) {
      add({pool.linked[first].address.server(), ControlOpcode::kSettleNodes,
           EncodeNodeSettle(OfNodes<NodeSettle>(id, pool.linked, first, next))});
    });
    ForEachRequest(&pool.freed, [&](size_t first, size_t next) {
      add({pool.freed[first].address.server(), ControlOpcode::kFreeNodes,
           EncodeNodeFree(OfNodes<NodeFree>(id, pool.freed, first, next))});
    });
    for (Request& request : ReturnsOf(id, pool.node_bytes, std::move(pool.runs), pool.recycled)) {
      add(std::move(request));
    }
  }
  {
    std::lock_guard lock(mutex_);
    grown_.erase(tree_id);
  }
  // One that does not answer takes no time from the others, and leaves half of it to say that the
  // tree is closed.
  const int64_t now_ns = context.session.NowNs();
  const int64_t all_until_ns = now_ns + std::max<int64_t>(context.deadline_ns() - now_ns, 0) / 2;
  Scheduler& scheduler = context.session.scheduler();
  Parking told(&scheduler);
  size_t left = by_server.size();
  for (const auto& [id, all] : by_server) {
    const int64_t until_ns = until == nullptr ? all_until_ns : until(id, all_until_ns);
    scheduler.Spawn([&, server = id, requests = &all, until_ns] {
      for (const Request& request : *requests) {
        const absl::Status told =
            Tell(context, server, request.opcode, request.body, until_ns).status();
        if (told.ok()) continue;
        doubts.Add(server);
        // One that refuses this may take the others.
        if (absl::IsDeadlineExceeded(told) || absl::IsUnavailable(told)) break;
      }
      if (--left == 0) told.Unpark();
    });
  }
  while (left > 0) told.ParkUntil(kNeverNs);
  return doubts;
}

}  // namespace pando
