// The inside of a Client: its identity, what its sessions share, and a session of its own for
// control calls.
//
// Thread safety: all methods from any thread, outside coroutines, but for the accessors, which are
// free. Invariants:
//   1. Everything shared (locks, cache, allocator) outlives sessions and trees: both are counted,
//      and none is left when the client is destroyed (CHECKed).
//   2. The control session is used under control_mutex_ only; so are servers_ and trees_.
//   3. A session begins with the servers that are published (membership.h), not with one that is
//      just being added: members_mutex_.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/fabric.h"
#include "compute/client/deadline_mutex.h"
#include "compute/client/heartbeat.h"
#include "compute/client/member_watch.h"
#include "compute/client/tree_impl.h"
#include "compute/client/upsert_table.h"
#include "compute/core/control_channel.h"
#include "compute/core/membership.h"
#include "compute/core/node_allocator.h"
#include "compute/core/session_context.h"
#include "compute/owner/member.h"
#include "compute/route/routed_tree.h"
#include "pando/client.h"

namespace pando {

// A century: timeouts that are longer than the clock can count end then.
inline constexpr int64_t kTimeoutMsMax = int64_t{100} * 365 * 24 * 3600 * 1000;

// FailedPrecondition: the caller is a session's task, whose thread nothing may block.
absl::Status CheckMayBlock();

// InvalidArgument: names the option that cannot be. Before anybody is asked for anything: what a
// server does, or does not, hides no mistake of the caller's.
absl::Status ValidateOptions(const ClientOptions& options);

class ClientImpl {
 public:
  // Joins the cluster. `times` are the memory servers', too. With a registry it finds servers that
  // come later, and leaves out those that do not answer, saying so in `missing`. InvalidArgument
  // (options), FailedPrecondition (format, features, packet size), Unavailable.
  static absl::StatusOr<std::unique_ptr<ClientImpl>> Join(const ClientOptions& options,
                                                          std::shared_ptr<Fabric> fabric,
                                                          std::shared_ptr<Registry> registry,
                                                          std::vector<absl::Status>* missing,
                                                          const TimeConstants& times = {});
  ~ClientImpl();

  absl::StatusOr<std::shared_ptr<TreeImpl>> CreateTree(std::string_view name,
                                                       const TreeOptions& options);
  absl::StatusOr<std::shared_ptr<TreeImpl>> OpenTree(std::string_view name);
  absl::Status DropTree(std::string_view name);
  absl::StatusOr<std::vector<TreeInfo>> ListTrees();
  absl::Status TreeStatus(const TreeContext& tree);
  std::vector<ServerStatus> Servers();
  // owner.cpp: of owned trees.
  absl::StatusOr<OwnerInfo> OwnerOf(TreeImpl& tree, std::string_view key);
  absl::StatusOr<std::vector<RangeInfo>> ListRanges(TreeImpl& tree);
  absl::StatusOr<std::vector<MemberInfo>> ListMembers();
  absl::Status Leave(int64_t timeout_ms);
  void CloseTree(const TreeContext& tree);
  // owner.cpp: before that, of an owned tree that nobody uses any more.
  void GiveUpTree(OwnedTree* tree);
  // members.cpp: makes a server that has come, or come back, one of the client's. Called by the
  // member watch; on a simulated fabric, by the code that drives it. Not concurrently with
  // itself. Errors: those of Fabric::AddServer(), and why the server is none of the client's.
  absl::Status AddMember(const ServerLocation& location);

  // A session's parts, with more coroutines than the options say; RemoveSession() keeps its
  // counters.
  absl::StatusOr<std::unique_ptr<SessionContext>> NewSessionContext(int more_coroutines = 0) {
    return NewSessionContext(more_coroutines, ConnectDeadlineNs());
  }
  absl::StatusOr<std::unique_ptr<SessionContext>> NewSessionContext(int more_coroutines,
                                                                    int64_t deadline_ns);
  void RemoveSession(const SessionContext* session);

  ClientStats Stats() const;
  const ClientOptions& options() const { return options_; }
  // It was declared dead, or left (Client::fenced()); only closing it is left.
  bool fenced() const { return heartbeat_ != nullptr && heartbeat_->fenced(); }
  uint16_t compute_server_id() const { return control_channel_.compute_server(); }
  IndexEnvironment& environment() { return *environment_; }
  CheckServers check_servers() { return {control_channel_, members_.Ids()}; }
  UpsertTable& upserts() { return upserts_; }
  // nullptr: it never had an owned tree open.
  Member* member() const { return current_member_.load(std::memory_order_acquire); }

 private:
  // A server that has not answered by then is silent: while a client connects it is left out.
  static constexpr int64_t kAnswerNsMax = kSecondNs;
  struct ServerRecord {
    ServerId id = 0;
    ServerInfo info;
  };

  ClientImpl(const ClientOptions& options, std::shared_ptr<Fabric> fabric,
             std::shared_ptr<Registry> registry, const TimeConstants& times);

  absl::Status JoinCluster(std::vector<absl::Status>* missing);
  // The servers that answer; others go to `missing`.
  absl::Status ReadServerInfos(OperationContext& context, std::vector<absl::Status>* missing);
  absl::StatusOr<ServerInfo> ReadServerInfo(OperationContext& context, ServerId server);
  absl::Status CheckServer(const ServerInfo& info) const;
  // Of the server with its id, as far as it answers.
  void ReadStatus(OperationContext& context, ServerStatus* status);
  absl::Status TakeIdentity(OperationContext& context, std::vector<absl::Status>* missing);
  absl::Status PrepareHeartbeat(uint64_t seed);
  // Others get at a lock word that this client cannot free only by its death.
  void LeaveStuckWord();
  // From now on the server's lease is renewed.
  void KeepAlive(const ServerRecord& server);
  // Runs `job` in a coroutine of the control session, and what it spawns there. With the deadline
  // of the call that it is a part of, which waits for its turn no longer than that; or with one of
  // its own, from when its turn has come: for what has to be done in any case.
  using ControlJob = std::function<absl::Status(OperationContext&)>;
  absl::Status RunControl(int64_t deadline_ns, const ControlJob& job);
  absl::Status RunControl(const ControlJob& job);
  // Waits for its turn up to the deadline; then those that are asked have kAnswerNsMax at least, so
  // that what others have waited for is not taken for their silence. DeadlineExceeded of its own:
  // the turn did not come.
  absl::Status AskControl(int64_t turn_deadline_ns, const ControlJob& job);
  absl::Status RunLocked(int64_t deadline_ns, const ControlJob& job);  // under control_mutex_
  // Whether the server can become one of the client's; it hears of nobody by that.
  absl::StatusOr<ServerRecord> Examine(OperationContext& context, ServerId server);
  // There, with all `trees`. What fails is withdrawn, before the connection ends: nothing has been
  // posted to the server, and its end is not this client's (rule R8).
  absl::Status IntroduceTo(OperationContext& context, const ServerRecord& server,
                           const std::vector<std::shared_ptr<TreeImpl>>& trees,
                           const std::vector<absl::StatusOr<CatalogEntry>>& entries);
  // What a server that has refused this client says of it, else why it did. A client that is dead
  // there leaves all servers, where there are leases (rule C2).
  absl::Status WhyRefused(OperationContext& context, ServerId server, const absl::Status& refusal);
  // The tree's entry as the catalog has it now, as far as it concerns the server. NotFound: it was
  // dropped, and may have had nodes on an earlier life of the server, as the message goes on.
  absl::StatusOr<CatalogEntry> EntryFor(OperationContext& context, const TreeContext& tree,
                                        ServerId server);
  absl::Status IntroduceTree(OperationContext& context, TreeContext& tree,
                             const absl::StatusOr<CatalogEntry>& now, const ServerRecord& server);
  absl::Status AttachTo(OperationContext& context, const CatalogEntry& entry, ServerId server);
  absl::StatusOr<TreeServerList> ListTreeServers(OperationContext& context, uint32_t tree_id);
  // To all servers that are there; `entry` gets the tree's servers as they are then. DataLoss: the
  // tree has lost what it had on one. Unavailable: one of its servers has started again, and this
  // client has not taken it up yet.
  absl::Status AttachToAll(OperationContext& context, CatalogEntry* entry);
  // As `detach` says, or in doubt. What a server does not hear is kept until the tree is closed
  // again; one that `is_dropped` never is.
  void DetachFromAll(OperationContext& context, const TreeDetach& detach,
                     const ServerDoubts& doubts, bool is_dropped);
  // Before that: what this client was handed for the tree and has not used (NodeAllocator).
  ServerDoubts ReturnAll(OperationContext& context, uint32_t tree_id);
  // Until when the server is waited for that is told of an end, by the deadline. One that has not
  // answered the last time, or often, does not hold up every tree, nor the client's own end.
  int64_t ListensUntilNs(ServerId server, int64_t deadline_ns) const;
  const ServerRecord* FindRecord(ServerId server) const;
  // Waits a moment for servers of the tree that are not known yet, or not in the life that the
  // catalog knows. False: there are none.
  using ListServers = std::function<absl::StatusOr<TreeServerList>(OperationContext&)>;
  bool AwaitServers(int64_t deadline_ns, const ListServers& list);
  bool AwaitServersOf(int64_t deadline_ns, std::string_view name);
  // The parts of it: whether there are some (under control_mutex_), and the wait. False: nobody
  // looks for servers.
  bool Lacks(const TreeServerList& servers) const;
  bool AwaitLook(int64_t deadline_ns);

  // --- owner.cpp: owned trees. Outside coroutines.
  // This client is a member, from its first owned tree on.
  absl::Status EnsureMember(int64_t deadline_ns);
  // Those of its threads; an error: none of its sessions is registered.
  absl::Status AddSessions(int64_t deadline_ns, MemberParts* parts);
  absl::StatusOr<std::shared_ptr<TreeImpl>> Introduced(int64_t deadline_ns,
                                                       std::shared_ptr<TreeImpl> tree);
  // Whether the tree's owners may be asked for: outside tasks, of an owned tree of this client's.
  absl::Status CheckAsked(TreeImpl& tree) const;
  // Gives up what it owns, as far as that goes.
  void LeaveOwners();
  // `asked`: the catalog was asked for the tree, and may have it from then on.
  absl::StatusOr<std::shared_ptr<TreeImpl>> CreateAnyTree(int64_t deadline_ns,
                                                          std::string_view name,
                                                          const TreeOptions& options, bool* asked);
  int64_t ConnectDeadlineNs() const;

  absl::StatusOr<CatalogEntry> FindEntry(OperationContext& context, std::string_view name);
  // `tree` may be set where this fails: its last reference must not go in the control session.
  absl::Status Attach(OperationContext& context, CatalogEntry entry,
                      std::shared_ptr<TreeImpl>* tree);

  const ClientOptions options_;
  const std::shared_ptr<Fabric> fabric_;
  const std::shared_ptr<Registry> registry_;  // nullptr: the servers are fixed
  const TimeConstants times_;
  ControlChannel control_channel_;
  std::vector<ServerRecord> servers_;
  ServerId catalog_server_ = 0;
  JoinReply identity_;  // with the catalog's signature
  std::unique_ptr<IndexCache> cache_;
  std::unique_ptr<ValuePlaces> places_;
  std::unique_ptr<Hocl> hocl_;
  NodeAllocator allocator_;
  Membership members_;
  std::unique_ptr<IndexEnvironment> environment_;
  UpsertTable upserts_;

  DeadlineMutex control_mutex_;
  std::unique_ptr<SessionContext> control_;
  std::unique_ptr<Heartbeat> heartbeat_;                          // where there are leases
  absl::flat_hash_map<uint32_t, std::weak_ptr<TreeImpl>> trees_;  // by id; under control_mutex_
  absl::flat_hash_set<uint32_t> dropped_;                         // of these, as far as is known
  // How often servers have not answered when a tree was closed, since they last did; under
  // control_mutex_.
  absl::flat_hash_map<ServerId, int> silences_;

  mutable std::mutex sessions_mutex_;
  std::vector<const SessionContext*> sessions_;
  ClientStats finished_;  // counters of sessions that are gone
  uint64_t next_session_ = 1;

  DeadlineMutex members_mutex_;
  std::unique_ptr<MemberWatch> watch_;  // where there is a registry

  DeadlineMutex owner_mutex_;
  std::shared_ptr<TreeImpl> cluster_tree_;
  std::unique_ptr<Member> member_;  // of a client that has, or had, an owned tree open
  std::atomic<Member*> current_member_{nullptr};  // that one
};

}  // namespace pando
