// Nodes for a client's splits, handed out by memory servers, and nodes that nothing refers to any
// more on their way back (rules R3, R4).
//
// Thread safety: any session. TryTake(), PutBack(), Free() and the Note...() never wait, so they
// may be called under a node lock; the others make control calls and may not (rule L2). Invariants:
//   1. A node is handed out once until it comes back through PutBack().
//   2. A spare node comes with what is in its memory (its old image): nobody else writes it until
//      it is linked, so that what Refill() has read stays true. One that may have been written does
//      not come back (rule R6; compute/index/write_back.h, AbandonNode()).
//   3. A freed node is dead in memory, which is not touched again; the server decides whether the
//      free counts (rule R4).
//   4. Nothing of a server that has died is handed out, or asked for.
//   5. Cells (rule K2) are handed out and freed as nodes are, by the pool of their size, but have
//      no old image and are not dead when they are freed.
//   6. Before a node is handed out the catalog knows that the tree may have nodes on that life of
//      its server (rule R7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "common/base/time_constants.h"
#include "common/wire/control.h"
#include "common/wire/node_messages.h"
#include "compute/core/control_channel.h"

namespace pando {

// A node that its holder may format: with `life`, sealed over OldImage() (rules F2, F3). Move-only.
struct SpareNode {
  RemoteAddress address;
  uint32_t life = 0;                       // that the node gets (rule R5)
  std::unique_ptr<std::byte[]> old_image;  // null: all zero

  Reference reference() const { return {address, life}; }
  // What to seal over. `zero`: an image whose versions are zero still, such as the new one itself.
  const std::byte* OldImage(const std::byte* zero) const {
    return old_image == nullptr ? zero : old_image.get();
  }
};

// Of a tree: the memory servers to which its client may have a WRITE in flight, or of whose nodes
// it does not know whether they are linked (rule R6).
class ServerDoubts {
 public:
  void Add(ServerId server);
  void AddAll() { all_ = true; }  // it is not known which
  void Add(const ServerDoubts& others);
  bool Has(ServerId server) const;
  bool empty() const { return !all_ && servers_.empty(); }

 private:
  bool all_ = false;
  std::vector<ServerId> servers_;
};

class NodeAllocator {
 public:
  // Tells the catalog that a tree grows onto a server (ControlOpcode::kGrowTree).
  using Grow = std::function<absl::Status(OperationContext& context, const TreeGrowth& growth)>;

  // Without `grow` nobody is told: for tests of single servers.
  explicit NodeAllocator(ControlChannel* control, const TimeConstants& times = {},
                         Grow grow = nullptr)
      : control_(control), times_(times), grow_(std::move(grow)) {}

  // What a life of a server has free; kept up to date from grants. From now on nothing of an
  // earlier one is handed out (rule R8).
  void AddServer(ServerId server, uint64_t free_bytes, uint64_t life = 0);
  // What the catalog knows of the tree: it need not be told again.
  void NoteGrown(uint32_t tree_id, const TreeServerList& servers);

  // A node on `preferred` if this client has one there, else anywhere; recycled ones first. Empty:
  // Refill() first.
  // Of cells, as many as there are callers in Refill() are left to these: who comes from there has
  // `waited`. Else one session's operations take whatever its own requests bring, for seconds.
  std::optional<SpareNode> TryTake(NodePoolId pool, ServerId preferred, bool waited = false);
  // Gives a node back to which no WRITE was ever posted.
  void PutBack(NodePoolId pool, SpareNode node);
  // Nothing refers to this node any more, and it is dead: it goes back to its server, some time
  // later.
  void Free(NodePoolId pool, const Reference& node);
  // The cell has been referred to (rule K2): its server is told, some time later.
  void NoteLinked(NodePoolId pool, const Reference& cell);
  // A WRITE that was to link a spare node failed after it may have been posted: nobody here knows
  // whether the node is the tree's. Somebody has to sweep.
  void NoteUncertain(NodePoolId pool);
  // The same of nodes of this server alone: nothing refers to them, and nothing that is in flight
  // to another server will.
  void NoteUncertain(NodePoolId pool, ServerId server);
  // A cell was taken out of the tree, and which one is not known (rule K7): once the tree is closed
  // somebody has to look for it.
  void NoteCellsDue(uint32_t tree_id);
  // Whether that was said since the last call (closing a tree).
  bool TakeCellsDue(uint32_t tree_id);
  // A chain or call to this life of the server ended so. Unavailable: it is gone, with all that is
  // spare there. It says nothing of another life.
  void NoteFailure(ServerId server, uint64_t life, const absl::Status& status);
  // Whatever life was known of the server is over.
  void NoteGone(ServerId server);

  // Sends what is queued to be freed; what cannot be sent stays queued. FlushIfMany: only if a
  // batch has come together, or nothing was sent for a second, or memory is scarce: then others
  // wait for it. For callers that have just freed something and may wait.
  void Flush(OperationContext& context, NodePoolId pool);
  void FlushIfMany(OperationContext& context, NodePoolId pool);
  // Flush() of the tree's nodes and cells.
  void FlushTree(OperationContext& context, uint32_t tree_id);

  // Gets more nodes for the tree from the server with the most free memory (`preferred` where
  // equal), of those that answer. Where all are full, but freed memory rests (rule R3), it waits
  // for that, and for what this client has freed to get there. One that has not answered may have
  // room: all are asked again then, until the deadline. ResourceExhausted: nothing rests, or not
  // until the deadline. Concurrent callers share one request.
  absl::Status Refill(OperationContext& context, NodePoolId pool, uint32_t node_bytes,
                      ServerId preferred);
  // Whether a server has said since the last call that nodes of the tree wait for a sweep there.
  bool TakeOrphanHint(uint32_t tree_id);

  // Nodes that were taken and had been used before.
  uint64_t nodes_reused() const;

  // Returns spare nodes and frees to their servers (closing a tree), to all at the same time, and
  // leaves half of the time that there is. On servers without a doubt whatever this client was
  // handed and has not given back is linked. No doubt is kept here: one of which its server does
  // not hear now is noted again. `until`: how long one is waited for that may be given less time.
  using ListensUntil = std::function<int64_t(ServerId server, int64_t deadline_ns)>;
  ServerDoubts ReturnAll(OperationContext& context, uint32_t tree_id,
                         const ListensUntil& until = nullptr);
  // The tree is closed, and never opened again.
  void ForgetTree(uint32_t tree_id);

 private:
  // Frees sent in one call, and kept while no server takes them.
  static constexpr size_t kFreesQueuedMax = 64 * kNodesPerRequestMax;

  struct Run {  // spare nodes that are all zero
    ServerId server = 0;
    uint64_t offset = 0;
    uint64_t end = 0;
    uint32_t life = 0;
  };
  struct Request {
    ServerId server = 0;
    ControlOpcode opcode;
    std::string body;
  };
  // A request for nodes that a server has not answered in time. What it has granted nobody can use
  // before it is asked again under that number: until then that server is in doubt.
  struct Unanswered {
    ServerId server = 0;
    uint32_t number = 0;
  };
  struct Pool {
    uint32_t node_bytes = 0;
    std::vector<Run> runs;
    std::vector<SpareNode> recycled;
    std::vector<Reference> freed;
    std::vector<Reference> linked;  // cells
    // The same of servers that do not answer: apart, so that they keep those of others from
    // nothing.
    std::vector<Reference> held_freed, held_linked;
    std::vector<Unanswered> unanswered;
    uint32_t telling = 0;  // calls of Flush() that are under way
    uint64_t told = 0;     // how often a server has taken frees
    bool refilling = false;
    uint32_t waiting = 0;    // callers of Refill() that have not got anything yet
    bool scarce = false;     // the last request found all servers full
    int64_t rested_ns = 0;   // nothing is available before
    int64_t flushed_ns = 0;  // when frees were sent, or the first one was queued
    ServerDoubts doubts;
    bool orphans = false;
  };

  // A caller of Refill() that waits, from its first Begin() on.
  class Waiting;

  struct FreeBytes {
    ServerId server;
    uint64_t life;
    uint64_t bytes;
    int64_t silent_until_ns = 0;  // it did not answer: not asked until then, if others can be
    int64_t unanswered_ns = 0;    // for how long it was asked since it has last answered
  };
  static uint64_t SpareNodesOf(const Pool& pool);
  FreeBytes* Find(ServerId server);  // of one that lives, under mutex_; else null
  void Drop(ServerId server);        // all that is spare there, under mutex_

  // A server may hang, or be stopped, while others have room: it is asked for some attempts of a
  // call, not for as long as its caller has; and then not again for some times as long. Callers
  // with less time than that give it a share, so that others are asked as well; what it was asked
  // in vain adds up.
  static constexpr int64_t kAskedAttempts = 3, kSilentAsks = 5;
  static constexpr int64_t kRequestShares = 2, kTellShares = 4;  // requests come after telling
  int64_t AskNs() const;
  // Who has but a moment asks one server: several grants are of no use to it.
  int64_t AskUntilNs(OperationContext& context, int64_t shares) const;
  bool IsSilent(ServerId server, int64_t now_ns) const;
  bool Answers(ServerId server, int64_t now_ns) const;  // the same, under mutex_
  // How a call of [begun_ns, until_ns) to this life of the server has ended.
  void NoteAnswer(OperationContext& context, const TreeServer& on, const absl::Status& answer,
                  int64_t begun_ns, int64_t until_ns);
  // Of what is freed something may have come to a server, or still comes, since `told`. Under
  // mutex_.
  bool IsBeingTold(const Pool& pool, uint64_t told, int64_t now_ns) const;
  // What is to be told now. Under mutex_.
  void TakeQueued(Pool* pool, int64_t now_ns, std::vector<Reference>* freed,
                  std::vector<Reference>* linked);
  absl::StatusOr<std::string> Tell(OperationContext& context, ServerId server, ControlOpcode opcode,
                                   std::string_view body, int64_t until_ns);
  // A call for which nobody has to wait, of something that stays queued where it fails.
  absl::StatusOr<std::string> TellOf(OperationContext& context, ServerId server,
                                     ControlOpcode opcode, std::string_view body);

  // All servers once. ResourceExhausted: `rested_ns` is when to ask again, which is at once where
  // one has not answered; kNeverNs: all have, and nothing rests.
  absl::Status RequestNodes(OperationContext& context, NodePoolId id, uint32_t node_bytes,
                            ServerId preferred, int64_t* rested_ns);
  // A request for nodes; first of all what an earlier one has brought too late for its caller.
  absl::StatusOr<std::string> Ask(OperationContext& asking, NodePoolId id, ServerId server,
                                  std::string_view request);
  uint32_t TakeUnanswered(NodePoolId id, ServerId server);  // its number; 0: there is none
  // Rule R7. An error: the nodes that were granted have been given back, or are uncertain.
  absl::Status GrowOnto(OperationContext& context, NodePoolId id, const TreeServer& on,
                        const NodeGrant& grant);
  // Sends the frees [first, next) of one server.
  void SendFrees(OperationContext& context, NodePoolId id, const std::vector<Reference>& freed,
                 size_t first, size_t next);
  void SendLinked(OperationContext& context, NodePoolId id, const std::vector<Reference>& linked,
                  size_t first, size_t next);
  std::vector<NodePoolId> PoolsOf(uint32_t tree_id) const;
  absl::Status TakeGrant(OperationContext& context, NodePoolId id, uint32_t node_bytes,
                         const TreeServer& on, const NodeGrant& grant);
  absl::Status ReadOldImages(OperationContext& context, uint32_t node_bytes,
                             std::vector<SpareNode>* spares);
  // Spare nodes on their way back.
  static std::vector<Request> ReturnsOf(NodePoolId id, uint32_t node_bytes, std::vector<Run> runs,
                                        const std::vector<SpareNode>& recycled);
  // Of what was granted and cannot be used. Where it is not taken back, it is uncertain.
  void ReturnGrant(OperationContext& context, NodePoolId id, uint32_t node_bytes,
                   std::vector<Run> runs, const std::vector<SpareNode>& recycled);
  std::vector<ServerId> ServersByFreeSpace(ServerId preferred);
  // As that life of it has said.
  void SetFreeBytes(ServerId server, uint64_t life, uint64_t bytes) {
    std::lock_guard lock(mutex_);
    FreeBytes* const known = Find(server);
    if (known != nullptr && known->life == life) known->bytes = bytes;
  }
  bool IsScarce(const Pool& pool) const;

  ControlChannel* const control_;
  const TimeConstants times_;
  const Grow grow_;
  mutable std::mutex mutex_;
  uint64_t reused_ = 0;
  absl::flat_hash_map<NodePoolId, Pool> pools_;
  absl::flat_hash_map<uint32_t, TreeServerList> grown_;  // by tree; the catalog knows of it
  absl::flat_hash_set<uint32_t> cells_due_;              // trees
  std::vector<FreeBytes> free_bytes_;                    // of the servers that live
};

}  // namespace pando
