#include "compute/client/client_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/wire/control.h"
#include "common/wire/lock_word.h"

namespace pando {
namespace {

constexpr int kControlCoroutines = 1024;  // one a server, made when needed
// One waits for what it spawns.
constexpr int kControlPrepared = 2;
// Of any session, as far as it needs so many: those that wait for the session's end (an executor's
// keeper, a member's loops), and some that they wait for.
constexpr int kPreparedCoroutines = 12;
constexpr uint64_t kOwnerBytesMin = 64 << 10;  // of memory, and of log
constexpr int kServiceThreadsMax = 64, kFlushThreadsMax = 16;
constexpr int64_t kLendAfterMsMax = 24 * 3600 * 1000;
// Beyond it a clock that looks for clean records hardly finds one.
constexpr int kDirtyPercentMax = 90;
constexpr uint32_t kDeletePersistenceMsMin = 10;
// Seeds of a client's parts, derived from one.
constexpr uint64_t kCacheSeed = 0x100, kHeartbeatSeed = 0x101;

ClientOptions Bounded(ClientOptions options) {
  options.connect_timeout_ms = std::min(options.connect_timeout_ms, kTimeoutMsMax);
  return options;
}

// What Attach() says of an owned tree before there is a member.
absl::Status NeedsMember() {
  return absl::FailedPreconditionError("an owned tree, and this client owns nothing yet");
}

// Packets and nodes are the caller's.
TreeShape ShapeOf(const TreeOptions& options) {
  TreeShape shape{.key_bytes_max = options.key_bytes_max,
                  .value_bytes_max = options.value_bytes_max,
                  .node_bytes = options.node_bytes,
                  .packet_bytes = UINT32_MAX};
  uint32_t inlined = options.inline_value_bytes_max;
  if (inlined == 0) {
    inlined =
        options.value_bytes_max <= kValueBytesLimit ? kValueBytesLimit : kStoredReferenceBytes - 1;
  }
  shape.has_cells = options.value_bytes_max > inlined;
  if (shape.has_cells) shape.inline_value_bytes_max = inlined;
  return shape;
}

}  // namespace

absl::Status ValidateOptions(const ClientOptions& options) {
  if (options.coroutines_per_session < 1 || options.coroutines_per_session > 4096) {
    return absl::InvalidArgumentError("coroutines_per_session must be 1..4096");
  }
  if (options.handover_max < 0 || options.combine_max < 1) {
    return absl::InvalidArgumentError("handover_max must be >= 0 and combine_max >= 1");
  }
  if (options.hot_bytes < kOwnerBytesMin || options.log_bytes < kOwnerBytesMin) {
    return absl::InvalidArgumentError(
        absl::StrCat("hot_bytes and log_bytes must be at least ", kOwnerBytesMin));
  }
  const auto is_between = [](const char* name, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(name, " must be ", low, "..", high));
  };
  PANDO_RETURN_IF_ERROR(
      is_between("service_threads", options.service_threads, 1, kServiceThreadsMax));
  PANDO_RETURN_IF_ERROR(is_between("flush_threads", options.flush_threads, 1, kFlushThreadsMax));
  PANDO_RETURN_IF_ERROR(is_between("dirty_percent", options.dirty_percent, 1, kDirtyPercentMax));
  PANDO_RETURN_IF_ERROR(is_between("ranges_min", options.ranges_min, 1, Member::kRangesMax));
  PANDO_RETURN_IF_ERROR(is_between("lend_after_ms", options.lend_after_ms, -1, kLendAfterMsMax));
  if (options.operation_timeout_ms < 1 || options.connect_timeout_ms < 1) {
    return absl::InvalidArgumentError("timeouts must be at least 1 ms");
  }
  return absl::OkStatus();
}

TreeImpl::~TreeImpl() {
  PANDO_CHECK(Scheduler::Current() == nullptr) << "trees are closed outside a session's tasks";
  if (is_introduced_) client_.GiveUpTree(routed_.owned());
  client_.CloseTree(context());
}

ClientImpl::ClientImpl(const ClientOptions& options, std::shared_ptr<Fabric> fabric,
                       std::shared_ptr<Registry> registry, const TimeConstants& times)
    : options_(Bounded(options)),
      fabric_(std::move(fabric)),
      registry_(std::move(registry)),
      times_(times),
      control_channel_(times.call_attempt_ns),
      allocator_(
          &control_channel_, times, [this](OperationContext& context, const TreeGrowth& growth) {
            return control_channel_
                .Call(context, catalog_server_, ControlOpcode::kGrowTree, EncodeTreeGrowth(growth))
                .status();
          }) {}

absl::StatusOr<std::unique_ptr<ClientImpl>> ClientImpl::Join(const ClientOptions& options,
                                                             std::shared_ptr<Fabric> fabric,
                                                             std::shared_ptr<Registry> registry,
                                                             std::vector<absl::Status>* missing,
                                                             const TimeConstants& times) {
  PANDO_RETURN_IF_ERROR(ValidateOptions(options));
  PANDO_RETURN_IF_ERROR(times.Validate());
  if (fabric->servers().empty()) return absl::UnavailableError("no memory server is connected");
  std::unique_ptr<ClientImpl> client(
      new ClientImpl(options, std::move(fabric), std::move(registry), times));
  PANDO_RETURN_IF_ERROR(client->JoinCluster(missing));
  if (options.owner) {
    PANDO_RETURN_IF_ERROR(client->EnsureMember(client->ConnectDeadlineNs()));
    PANDO_RETURN_IF_ERROR(client->member_->Join(client->ConnectDeadlineNs()));
  }
  return client;
}

absl::Status ClientImpl::JoinCluster(std::vector<absl::Status>* missing) {
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<Endpoint> endpoint, fabric_->Connect(0, 0));
  const uint64_t seed = options_.seed != 0 ? options_.seed : endpoint->random_seed();
  cache_ = std::make_unique<IndexCache>(options_.index_cache_bytes, DeriveSeed(seed, kCacheSeed));
  places_ = std::make_unique<ValuePlaces>(options_.value_places_bytes);
  control_ = std::make_unique<SessionContext>(std::move(endpoint), &cache_->epochs(),
                                              kControlCoroutines, DeriveSeed(seed, 0));
  PANDO_RETURN_IF_ERROR(control_->Prepare(kControlPrepared));
  PANDO_RETURN_IF_ERROR(
      RunControl([&](OperationContext& context) { return ReadServerInfos(context, missing); }));
  PANDO_RETURN_IF_ERROR(PrepareHeartbeat(DeriveSeed(seed, kHeartbeatSeed)));
  PANDO_RETURN_IF_ERROR(
      RunControl([&](OperationContext& context) { return TakeIdentity(context, missing); }));
  const LockWord own{control_channel_.compute_server(), control_channel_.incarnation(),
                     LockWord::kExclusive};
  const Capabilities& capabilities = fabric_->capabilities();
  hocl_ = std::make_unique<Hocl>(Hocl::Options{.techniques = options_.techniques,
                                               .handover_max = options_.handover_max,
                                               .write_unlock = capabilities.write_unlock,
                                               .own_word = own.Encode(),
                                               .times = times_,
                                               .on_stuck_word = [this] { LeaveStuckWord(); }});
  bool crc = false;
  for (const ServerRecord& server : servers_) {
    members_.Publish(server.id, server.info.life, 0);
    hocl_->AddServer(server.id, server.info.life, server.info.superblock.lock_words,
                     server.info.superblock.dead_offset);
    allocator_.AddServer(server.id, server.info.free_bytes, server.info.life);
    crc = crc || (server.info.superblock.features.incompatible & kIncompatibleLineCrc) != 0;
  }
  environment_ =
      std::make_unique<IndexEnvironment>(IndexEnvironment{.capabilities = capabilities,
                                                          .hocl = *hocl_,
                                                          .cache = *cache_,
                                                          .places = *places_,
                                                          .allocator = allocator_,
                                                          .control = control_channel_,
                                                          .members = members_,
                                                          .techniques = options_.techniques,
                                                          .combine_max = options_.combine_max,
                                                          .crc = crc,
                                                          .times = times_});
  control_->set_membership(&members_);
  if (registry_ == nullptr || capabilities.event_driven) return absl::OkStatus();
  watch_ = std::make_unique<MemberWatch>(
      registry_, capabilities.name, &members_,
      MemberWatch::Callbacks{
          .is_connected = [this](ServerId server) { return fabric_->IsConnected(server); },
          .add = [this](const ServerLocation& location) { return AddMember(location); }});
  return watch_->Start();
}

void ClientImpl::LeaveStuckWord() {
  if (heartbeat_ != nullptr) return heartbeat_->GiveUp();
  PANDO_LOG(ERROR)
      << "a lock of this compute server could not be freed or was lost, and memory servers without "
         "leases (--lease_ms=0) free its locks only when this client is closed";
}

void ClientImpl::KeepAlive(const ServerRecord& server) {
  if (server.info.lease_us == 0) return;
  heartbeat_->Add({server.id, static_cast<int64_t>(server.info.lease_us) * kMicrosecondNs});
}

ClientImpl::~ClientImpl() {
  PANDO_CHECK(Scheduler::Current() == nullptr) << "clients are closed outside a session's tasks";
  watch_.reset();  // first: it may have the last handle to an owned tree, which needs the member
  LeaveOwners();
  PANDO_CHECK(sessions_.empty()) << "a session outlives its client";
  for (const auto& [id, tree] : trees_) PANDO_CHECK(tree.expired()) << "a tree outlives its client";
  if (control_ == nullptr || control_channel_.incarnation() == 0) return;
  // A client that has left a lock behind must not leave in order: nobody would free it.
  if (fenced() || (hocl_ != nullptr && hocl_->has_left_locks())) return;
  control_->set_fenced_flag(nullptr);
  heartbeat_.reset();  // those that it has left need not hear of it
  (void)RunControl([this](OperationContext& context) -> absl::Status {
    // All at once: nobody waits for one that does not answer, without heartbeats. Best effort: a
    // server that cannot be told notices by itself.
    for (const ServerRecord& server : servers_) {
      control_->scheduler().Spawn(
          [this, id = server.id, until_ns = ListensUntilNs(server.id, context.deadline_ns())] {
            OperationContext leaving(control_.get(), until_ns);
            (void)control_channel_.Call(leaving, id, ControlOpcode::kLeave, "");
          });
    }
    return absl::OkStatus();
  });
}

absl::Status CheckMayBlock() {
  if (Scheduler::Current() == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError("call it outside of a session's tasks: it blocks");
}

absl::Status ClientImpl::RunControl(int64_t deadline_ns, const ControlJob& job) {
  PANDO_RETURN_IF_ERROR(CheckMayBlock());
  PANDO_ASSIGN_OR_RETURN(const auto lock, control_mutex_.LockBy(deadline_ns));
  return RunLocked(deadline_ns, job);
}

absl::Status ClientImpl::RunControl(const ControlJob& job) {
  PANDO_RETURN_IF_ERROR(CheckMayBlock());
  std::lock_guard lock(control_mutex_);
  return RunLocked(ConnectDeadlineNs(), job);
}

absl::Status ClientImpl::AskControl(int64_t turn_deadline_ns, const ControlJob& job) {
  PANDO_RETURN_IF_ERROR(CheckMayBlock());
  PANDO_ASSIGN_OR_RETURN(const auto lock, control_mutex_.LockBy(turn_deadline_ns));
  return RunLocked(std::max(turn_deadline_ns, control_->NowNs() + kAnswerNsMax), job);
}

absl::Status ClientImpl::RunLocked(int64_t deadline_ns, const ControlJob& job) {
  absl::Status status;
  control_->scheduler().Spawn([&] {
    OperationContext context(control_.get(), deadline_ns);
    status = job(context);
  });
  control_->scheduler().Drain();
  return status;
}

absl::StatusOr<std::shared_ptr<TreeImpl>> ClientImpl::CreateTree(std::string_view name,
                                                                 const TreeOptions& options) {
  const int64_t deadline_ns = ConnectDeadlineNs();
  if (options.mode == TreeOptions::Mode::kOwned) PANDO_RETURN_IF_ERROR(EnsureMember(deadline_ns));
  bool asked = false;
  absl::StatusOr<std::shared_ptr<TreeImpl>> tree =
      CreateAnyTree(deadline_ns, name, options, &asked);
  if (tree.ok()) tree = Introduced(deadline_ns, *std::move(tree));
  if (!asked || !absl::IsDeadlineExceeded(tree.status())) return tree;
  return OutcomeUnknownError(
      absl::StrCat("tree '", std::string(name),
                   "' may exist now: call CreateTree() again: ", tree.status().ToString()));
}

absl::StatusOr<std::shared_ptr<TreeImpl>> ClientImpl::CreateAnyTree(int64_t deadline_ns,
                                                                    std::string_view name,
                                                                    const TreeOptions& options,
                                                                    bool* asked) {
  if (options.delete_persistence_ms > 0 &&
      options.delete_persistence_ms < kDeletePersistenceMsMin) {
    return absl::InvalidArgumentError(absl::StrCat("delete_persistence_ms is 0, or at least ",
                                                   kDeletePersistenceMsMin, ", not ",
                                                   options.delete_persistence_ms));
  }
  TreeShape shape = ShapeOf(options);
  PANDO_ASSIGN_OR_RETURN(const NodeLayout layout, shape.Layout(options.narrow_reads));
  shape.node_bytes = layout.node_bytes();
  CreateTreeRequest request{
      .name = std::string(name),
      .shape = shape,
      .mode = options.mode == TreeOptions::Mode::kOwned ? TreeMode::kOwned : TreeMode::kShared,
      .windows = options.narrow_reads,
      .delete_persistence_ms = options.delete_persistence_ms};
  std::shared_ptr<TreeImpl> tree;
  PANDO_RETURN_IF_ERROR(RunControl(deadline_ns, [&](OperationContext& context) -> absl::Status {
    for (const ServerRecord& server : servers_) {
      request.shape.packet_bytes =
          std::min(request.shape.packet_bytes, server.info.superblock.packet_bytes);
    }
    *asked = true;
    PANDO_ASSIGN_OR_RETURN(
        const std::string body,
        control_channel_.Call(context, catalog_server_, ControlOpcode::kCreateTree,
                              EncodeCreateTree(request)));
    PANDO_ASSIGN_OR_RETURN(CatalogEntry entry, ParseCatalogEntry(body));
    return Attach(context, std::move(entry), &tree);
  }));
  return tree;
}

absl::StatusOr<CatalogEntry> ClientImpl::FindEntry(OperationContext& context,
                                                   std::string_view name) {
  PANDO_ASSIGN_OR_RETURN(const std::string body,
                         control_channel_.Call(context, catalog_server_, ControlOpcode::kOpenTree,
                                               EncodeTreeName(name)));
  return ParseCatalogEntry(body);
}

absl::StatusOr<std::shared_ptr<TreeImpl>> ClientImpl::OpenTree(std::string_view name) {
  std::shared_ptr<TreeImpl> tree;
  const auto open = [&](OperationContext& context) -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(CatalogEntry entry, FindEntry(context, name));
    return Attach(context, std::move(entry), &tree);
  };
  const int64_t deadline_ns = ConnectDeadlineNs();
  absl::Status opened = RunControl(deadline_ns, open);
  if (absl::IsUnavailable(opened) && AwaitServersOf(deadline_ns, name)) {
    opened = RunControl(deadline_ns, open);
  }
  if (opened == NeedsMember()) {
    PANDO_RETURN_IF_ERROR(EnsureMember(deadline_ns));
    opened = RunControl(deadline_ns, open);
  }
  PANDO_RETURN_IF_ERROR(opened);
  return Introduced(deadline_ns, std::move(tree));
}

absl::Status ClientImpl::Attach(OperationContext& context, CatalogEntry entry,
                                std::shared_ptr<TreeImpl>* tree) {
  const uint32_t id = entry.tree_id;
  const auto known = trees_.find(id);
  if (known != trees_.end()) *tree = known->second.lock();
  if (*tree != nullptr) return (*tree)->context().CheckFate();
  // Its last handle has gone, and is about to say what became of the tree's nodes (rule R6).
  const bool is_closing = known != trees_.end();
  PANDO_RETURN_IF_ERROR(RoutedTree::CheckKind(entry));
  if (entry.mode() == TreeMode::kOwned && member() == nullptr) return NeedsMember();
  PANDO_ASSIGN_OR_RETURN(const NodeLayout layout, entry.Layout());
  if (entry.shape.packet_bytes > fabric_->capabilities().packet_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("tree '", entry.name, "' was made for packets of ", entry.shape.packet_bytes,
                     " bytes, this path has only ", fabric_->capabilities().packet_bytes));
  }
  if (hocl_->Words(entry.root_record.server()) == 0) {
    return absl::DataLossError(
        absl::StrCat("tree '", entry.name, "' has its root record on an unknown memory server"));
  }
  const absl::Status attached = AttachToAll(context, &entry);
  if (!attached.ok()) {
    if (!is_closing) {
      DetachFromAll(context, {id, TreeDetach::kSettled}, ReturnAll(context, id),
                    /*is_dropped=*/absl::IsNotFound(attached));
    }
    return attached;
  }
  allocator_.NoteGrown(id, entry.servers);
  *tree = std::make_shared<TreeImpl>(this, std::move(entry), layout, environment_.get(), member());
  trees_[id] = *tree;
  return absl::OkStatus();
}

void ClientImpl::CloseTree(const TreeContext& tree) {
  (void)RunControl([&](OperationContext& context) -> absl::Status {
    // Opened again meanwhile: the new handle goes on with what the old one had.
    if (!trees_[tree.id()].expired()) return absl::OkStatus();
    trees_.erase(tree.id());
    ServerDoubts doubts = ReturnAll(context, tree.id());
    // A client that was cut off, or lost a lock, does not know the outcome of its last writes. One
    // whose lock was on a server that is gone does not know what has landed there.
    if (fenced()) doubts.AddAll();
    for (const ServerRecord& server : servers_) {
      if (hocl_->MayHaveLeftLocksOn(server.id)) doubts.Add(server.id);
    }
    const bool cells_due = allocator_.TakeCellsDue(tree.id());
    cache_->InvalidateTree(tree.id());
    const auto as = cells_due ? TreeDetach::kCellsDue : TreeDetach::kSettled;
    DetachFromAll(context, {tree.id(), as}, doubts, dropped_.erase(tree.id()) > 0);
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<TreeInfo>> ClientImpl::ListTrees() {
  std::vector<TreeInfo> trees;
  const int64_t deadline_ns = ConnectDeadlineNs();
  PANDO_RETURN_IF_ERROR(RunControl(deadline_ns, [&](OperationContext& context) -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(
        const std::string body,
        control_channel_.Call(context, catalog_server_, ControlOpcode::kListTrees, ""));
    PANDO_ASSIGN_OR_RETURN(const std::vector<CatalogEntry> entries, ParseCatalogList(body));
    for (const CatalogEntry& entry : entries) {
      trees.push_back({.name = entry.name,
                       .key_bytes_max = entry.shape.key_bytes_max,
                       .value_bytes_max = entry.shape.value_bytes_max,
                       .node_bytes = entry.shape.node_bytes,
                       .mode = ModeOf(entry),
                       .delete_persistence_ms = entry.delete_persistence_ms,
                       .narrow_reads = entry.windows(),
                       .inline_value_bytes_max = InlineBytesOf(entry.shape)});
    }
    return absl::OkStatus();
  }));
  return trees;
}

absl::StatusOr<std::unique_ptr<SessionContext>> ClientImpl::NewSessionContext(int more_coroutines,
                                                                              int64_t deadline_ns) {
  PANDO_RETURN_IF_ERROR(CheckMayBlock());
  PANDO_ASSIGN_OR_RETURN(const auto members_lock, members_mutex_.LockBy(deadline_ns));
  PANDO_ASSIGN_OR_RETURN(
      std::unique_ptr<Endpoint> endpoint,
      fabric_->Connect(control_channel_.compute_server(), control_channel_.incarnation()));
  std::lock_guard sessions_lock(sessions_mutex_);
  const uint64_t number = next_session_++;
  const uint64_t seed = options_.seed != 0 ? options_.seed : endpoint->random_seed();
  auto session = std::make_unique<SessionContext>(std::move(endpoint), &cache_->epochs(),
                                                  options_.coroutines_per_session + more_coroutines,
                                                  DeriveSeed(seed, number), 1 + more_coroutines);
  PANDO_RETURN_IF_ERROR(session->Prepare(std::min(1 + more_coroutines, kPreparedCoroutines)));
  // Now, since a release that finds no memory for it would leave the lock behind.
  PANDO_RETURN_IF_ERROR(session->ZeroWord().status());
  if (heartbeat_ != nullptr) session->set_fenced_flag(&heartbeat_->fenced());
  session->set_membership(&members_);
  sessions_.push_back(session.get());
  return session;
}

void ClientImpl::RemoveSession(const SessionContext* session) {
  std::lock_guard lock(sessions_mutex_);
  session->counters().AddTo(&finished_);
  std::erase(sessions_, session);
}

ClientStats ClientImpl::Stats() const {
  std::lock_guard lock(sessions_mutex_);
  ClientStats stats = finished_;
  control_->counters().AddTo(&stats);
  for (const SessionContext* session : sessions_) session->counters().AddTo(&stats);
  stats.tree.cache_bytes = cache_->level1_bytes();
  stats.tree.place_bytes = places_->bytes();
  stats.tree.cache_evictions = cache_->evictions();
  stats.tree.nodes_reused = allocator_.nodes_reused();
  if (member() != nullptr) member()->AddTo(&stats.owned);
  return stats;
}

}  // namespace pando
