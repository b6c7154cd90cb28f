// A memory server without its transport: formats the region and answers control messages. It runs
// the same behind shm and behind the simulator, and does nothing for data operations (they are
// one-sided).
//
// Threads: the methods of ControlHandler one at a time; the region itself is accessed by everybody.
// Invariants:
//   1. Every request gets a well-formed reply; whatever is wrong with it is a status and changes
//      nothing.
//   2. A repeat of (sender, incarnation, sequence, opcode) on one connection gets the same reply
//      (rule R4).
//   3. A request of a joined compute server is accepted from the connection it joined over and from
//      no other; a connection has one identity, and with an identity key one that the catalog
//      issued.
//   4. Memory of a dropped tree is used again only when no client is attached to the tree any more,
//      after it has rested and been zeroed (rule R3).
//   5. What a dead client held is given to others only after its lock words were freed (fencing.h).
//   6. A fenced life of a compute server (rule D2) is introduced no more, and granted no serving
//      lease. That it has ended is confirmed when nothing of it is in flight here and none of its
//      lock words is left; by the catalog's server, when its serving lease is over, too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "common/auth/identity_key.h"
#include "common/base/clock.h"
#include "common/base/time_constants.h"
#include "common/fabric/server.h"
#include "common/wire/control.h"
#include "common/wire/owner_messages.h"
#include "memory/catalog.h"
#include "memory/client_table.h"
#include "memory/delete_notes.h"
#include "memory/extent_table.h"
#include "memory/fencing.h"
#include "memory/id_ranges.h"
#include "memory/id_source.h"
#include "memory/lease_table.h"
#include "memory/node_ledger.h"
#include "memory/region.h"
#include "memory/reply_cache.h"
#include "memory/serving_leases.h"
#include "memory/tree_table.h"

namespace pando::memory {

struct MemoryServerOptions {
  // 1..65535, unique in the cluster. 0 is no server: address 0 there is the null address, and where
  // a server is named (a log's, a lost one's) 0 says that there is none.
  ServerId server_id = 1;
  // Whether this server keeps the catalog and issues identities. Exactly one does; the default
  // set-up: server 1.
  bool is_catalog = true;
  // Upper bound of a chunk, a power of two: fewer control calls against less memory held idle by
  // each client.
  uint32_t chunk_bytes = 4 << 20;
  // Largest WRITE of the fabric that is whole or absent when its sender dies (rule F6).
  uint32_t packet_bytes = 4096;
  // Whether lines carry checksums (rule F1); follows from the fabric.
  bool needs_crc = false;
  // How long freed memory rests (rule R3), and the like. The clients' must be the same.
  TimeConstants times;
  // First incarnation and tree id. A catalog that starts again must begin above its earlier lives
  // (rule C0): where the last mark was that `keep_id_mark` kept. nullptr: nothing is kept.
  uint32_t first_id = 1;
  KeepIdMark keep_id_mark;
  // Tells this life of the server from others under the same id (rule R7): drawn at random where
  // there may be others. Above 0.
  uint64_t life = 1;
  // After a death: lock words looked at in one step of OnTimer(), with fence_step_ns in between. 0:
  // all at once. Others see the time between publication and the last word (rule C2) only so; the
  // simulator uses it.
  uint32_t fence_words_per_step = 0;
  int64_t fence_step_ns = 10 * kMicrosecondNs;
  // Where the fabric can cut a living client off: a client that is silent for a lease is fenced
  // (rules C1, C2). 0 and nullptr: only a connection that ends is a death.
  int64_t lease_ns = 0;
  PeerFence* fence = nullptr;
  // The catalog's server, where there are leases: how long a client that serves keys of owned trees
  // may be silent until others take them over (rule O5). Short: their keys wait for so long after
  // its end. 0: there are no owned trees.
  int64_t serving_lease_ns = kSecondNs;
  // With which the catalog's server signs identities, and the others know them (rule C0). nullptr:
  // the servers share none, and take every client's word.
  std::shared_ptr<const IdentityKey> identity_key;
  const Clock* clock = nullptr;  // nullptr: RealClock()
};

class MemoryServer : public ControlHandler {
 public:
  // InvalidArgument: sizes or options that cannot work. For who announces a server before it makes
  // it: one that cannot start is never announced.
  static absl::Status Check(const ServerMemory& memory, const MemoryServerOptions& options);
  // Formats `memory`, which is zero and passes Check().
  static absl::StatusOr<std::unique_ptr<MemoryServer>> Create(const ServerMemory& memory,
                                                              const MemoryServerOptions& options);

  std::string Handle(PeerId peer, std::string_view request) override;
  bool IsKnown(PeerId peer) const override { return clients_.AnyJoined(peer); }
  void OnPeerGone(PeerId peer) override;
  int64_t OnTimer(int64_t now_ns) override;

  const Superblock& superblock() const { return region_.superblock(); }
  ServerInfo Info() const;
  CounterList Counters() const;

 private:
  struct Request {
    PeerId peer;
    ClientId sender;
    std::string_view body;
  };
  using Handler = absl::StatusOr<std::string> (MemoryServer::*)(const Request&);
  struct Operation {
    ControlOpcode opcode;
    Handler handler;
    bool catalog_only;
    bool joined_only;
    bool changes_state;  // its replies are kept for repeats
  };
  static const Operation* FindOperation(uint16_t opcode);

  MemoryServer(Region region, const MemoryServerOptions& options);
  absl::StatusOr<std::string> Execute(const Operation& operation, PeerId peer,
                                      const ControlMessage& message);
  absl::Status CheckAllowed(const Operation& operation, PeerId peer,
                            const ControlHeader& header) const;

  absl::StatusOr<std::string> OnServerInfo(const Request& request);
  absl::StatusOr<std::string> OnJoin(const Request& request);
  absl::StatusOr<std::string> OnAttach(const Request& request);
  absl::StatusOr<std::string> OnLeave(const Request& request);
  absl::StatusOr<std::string> OnWithdraw(const Request& request);
  absl::StatusOr<std::string> OnClientState(const Request& request);
  absl::StatusOr<std::string> OnPing(const Request& request);
  absl::StatusOr<std::string> OnCreateTree(const Request& request);
  absl::StatusOr<std::string> OnOpenTree(const Request& request);
  absl::StatusOr<std::string> OnListTrees(const Request& request);
  absl::StatusOr<std::string> OnDropTree(const Request& request);
  absl::StatusOr<std::string> OnGrowTree(const Request& request);
  absl::StatusOr<std::string> OnListTreeServers(const Request& request);
  absl::StatusOr<std::string> OnAttachTree(const Request& request);
  absl::StatusOr<std::string> OnDetachTree(const Request& request);
  absl::StatusOr<std::string> OnAllocateNodes(const Request& request);
  absl::StatusOr<std::string> OnReturnNodes(const Request& request);
  absl::StatusOr<std::string> OnFreeNodes(const Request& request);
  absl::StatusOr<std::string> OnSettleNodes(const Request& request);
  absl::StatusOr<std::string> OnListOrphans(const Request& request);
  absl::StatusOr<std::string> OnListNodes(const Request& request);
  absl::StatusOr<std::string> OnListCells(const Request& request);
  absl::StatusOr<std::string> OnStats(const Request& request);
  absl::StatusOr<std::string> OnServe(const Request& request);
  absl::StatusOr<std::string> OnNoteDeletes(const Request& request);
  absl::StatusOr<std::string> OnFence(const Request& request);
  absl::StatusOr<std::string> OnAllocateExtent(const Request& request);
  absl::StatusOr<std::string> OnFreeExtent(const Request& request);
  absl::StatusOr<std::string> OnListExtents(const Request& request);

  // Nothing of that life is in flight to this server, none of its lock words is left.
  bool IsOver(const ClientId& client) const;
  absl::Status CheckMayFence(const ClientId& sender, const ClientId& client) const;
  // FailedPrecondition: this cluster has no owned trees.
  absl::Status CheckServes() const;
  FenceReply StateOfFence(const ClientId& client) const;

  void ReleaseClient(const ClientId& client);
  // False: it has to be tried again.
  bool StepFencing();
  void FenceSilentPeers(int64_t now_ns);
  // Of whom clients_ has fenced.
  void CutOff(PeerId peer);
  void FreeTree(uint32_t tree_id);
  // Of unused_trees_, those to whose memory nobody may have anything in flight (rule R6).
  void FreeUnusedTrees();

  const MemoryServerOptions options_;
  Region region_;
  IdSource ids_;
  NodeLedger nodes_;
  Catalog catalog_;
  ClientTable clients_;
  TreeTable trees_;
  absl::btree_set<uint32_t> unused_trees_;  // dropped, nobody is attached, not free yet
  LeaseTable leases_;
  Fencing fencing_;
  IdRanges fenced_lives_;           // incarnations, for ever (rule D2)
  std::vector<PeerId> to_cut_off_;  // by the next OnTimer(): the fabric is under way in a call
  ServingLeases serving_;
  DeleteNotes deletes_;
  ExtentTable extents_;
  int64_t next_fence_step_ns_ = 0;
  absl::flat_hash_map<PeerId, ReplyCache> replies_;

  struct Counts {
    uint64_t calls = 0, bad_messages = 0, refused = 0, repeats = 0;
    uint64_t joins = 0, attaches = 0, leaves = 0, deaths = 0, peers_gone = 0, fenced = 0;
    uint64_t trees_dropped = 0, trees_freed = 0, fences = 0;
  } counts_;
};

}  // namespace pando::memory
