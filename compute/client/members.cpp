// A client's memory servers as they come, go and come back: who is introduced to whom, and what
// trees have lost (rule R7).
#include <time.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status.h"
#include "compute/client/client_impl.h"

namespace pando {
namespace {

// How long dropping a tree waits for servers that the client does not know yet.
constexpr int64_t kAwaitServersNs = 2 * kSecondNs;
constexpr int64_t kLookPauseNs = kMillisecondNs;
// How long a server is waited for that hears that it need not know this client: the end of the
// connection follows, and what was said before it is read before it.
constexpr int64_t kWithdrawNs = 10 * kMillisecondNs;
// Of what a silent server is waited for when trees are closed, one after the other.
constexpr int kAnswerHalvingsMax = 6;

const TreeServer* Find(const TreeServerList& servers, ServerId server) {
  const auto found = std::find_if(servers.begin(), servers.end(),
                                  [server](const TreeServer& on) { return on.server == server; });
  return found == servers.end() ? nullptr : &*found;
}

}  // namespace

const ClientImpl::ServerRecord* ClientImpl::FindRecord(ServerId server) const {
  const auto found =
      std::find_if(servers_.begin(), servers_.end(),
                   [server](const ServerRecord& record) { return record.id == server; });
  return found == servers_.end() ? nullptr : &*found;
}

// --- Trees and servers.

absl::Status ClientImpl::AttachTo(OperationContext& context, const CatalogEntry& entry,
                                  ServerId server) {
  const TreeServer* const on = Find(entry.servers, server);
  const absl::Status attached =
      control_channel_
          .Call(context, server, ControlOpcode::kAttachTree,
                EncodeTreeAttach({entry.tree_id, on == nullptr ? 0 : on->life}))
          .status();
  return absl::IsDataLoss(attached) ? LostNodesError(entry.name, server) : attached;
}

absl::StatusOr<TreeServerList> ClientImpl::ListTreeServers(OperationContext& context,
                                                           uint32_t tree_id) {
  PANDO_ASSIGN_OR_RETURN(
      const std::string body,
      control_channel_.Call(context, catalog_server_, ControlOpcode::kListTreeServers,
                            EncodeTreeId(tree_id)));
  return ParseTreeServers(body);
}

absl::Status ClientImpl::AttachToAll(OperationContext& context, CatalogEntry* entry) {
  for (const ServerRecord& server : servers_) {
    const absl::Status attached = AttachTo(context, *entry, server.id);
    // What is gone is not touched any more; should it come back, IntroduceTree() sees to it.
    if (!attached.ok() && !absl::IsUnavailable(attached)) return attached;
  }
  if (entry->created != 0) return absl::OkStatus();
  // Again, for what the tree lost between the two (rule R7).
  PANDO_ASSIGN_OR_RETURN(entry->servers, ListTreeServers(context, entry->tree_id));
  for (const TreeServer& on : entry->servers) {
    const ServerRecord* const record = FindRecord(on.server);
    if (record == nullptr || record->info.life == on.life) continue;
    // The server says it, if it is there: then the life on record is over. Else it may be the next.
    const absl::Status attached = AttachTo(context, *entry, on.server);
    if (!absl::IsUnavailable(attached)) return attached;
    return absl::UnavailableError(
        absl::StrCat("tree '", entry->name, "' has nodes on memory server ", on.server,
                     ", which has started again and is not connected yet: try again"));
  }
  return absl::OkStatus();
}

void ClientImpl::DetachFromAll(OperationContext& context, const TreeDetach& detach,
                               const ServerDoubts& doubts, bool is_dropped) {
  // All at once: one that does not answer leaves no time for those after it.
  for (const ServerRecord& server : servers_) {
    TreeDetach own = detach;
    if (doubts.Has(server.id)) own.settled = TreeDetach::kInDoubt;
    control_->scheduler().Spawn([this, id = server.id, own, is_dropped,
                                 until_ns = ListensUntilNs(server.id, context.deadline_ns())] {
      OperationContext detaching(control_.get(), until_ns);
      const absl::Status told =
          control_channel_.Call(detaching, id, ControlOpcode::kDetachTree, EncodeTreeDetach(own))
              .status();
      if (!absl::IsDeadlineExceeded(told)) {
        silences_.erase(id);
        return;
      }
      ++silences_[id];
      if (is_dropped) return;
      // If the tree is opened again, the server hears of it when that is closed.
      if (own.settled == TreeDetach::kInDoubt) allocator_.NoteUncertain(own.tree_id, id);
      if (own.settled == TreeDetach::kCellsDue) allocator_.NoteCellsDue(own.tree_id);
    });
  }
}

ServerDoubts ClientImpl::ReturnAll(OperationContext& context, uint32_t tree_id) {
  return allocator_.ReturnAll(context, tree_id, [this](ServerId server, int64_t deadline_ns) {
    return ListensUntilNs(server, deadline_ns);
  });
}

int64_t ClientImpl::ListensUntilNs(ServerId server, int64_t deadline_ns) const {
  const auto silences = silences_.find(server);
  if (silences == silences_.end()) return deadline_ns;
  const int halvings = std::min(silences->second - 1, kAnswerHalvingsMax);
  return std::min(deadline_ns, control_->NowNs() + (kAnswerNsMax >> halvings));
}

absl::Status ClientImpl::TreeStatus(const TreeContext& tree) {
  PANDO_RETURN_IF_ERROR(tree.CheckFate());
  const int64_t deadline_ns = ConnectDeadlineNs();
  const auto check = [&](OperationContext& context) {
    const absl::Status there = tree.CheckServers(context, /*waits=*/false);
    // The question has had all the time that a server has to answer.
    return absl::IsDeadlineExceeded(there) ? absl::UnavailableError(there.message()) : there;
  };
  bool lacks = false;
  const absl::Status there = AskControl(deadline_ns, [&](OperationContext& context) {
    const absl::StatusOr<TreeServerList> servers = ListTreeServers(context, tree.id());
    lacks = servers.ok() && Lacks(*servers);
    return lacks ? absl::OkStatus() : check(context);
  });
  if (!lacks) return there;
  // Not inside a control call: the search for servers needs the control session.
  (void)AwaitLook(deadline_ns);
  return AskControl(deadline_ns, check);
}

bool ClientImpl::AwaitServersOf(int64_t deadline_ns, std::string_view name) {
  return AwaitServers(deadline_ns,
                      [&](OperationContext& context) -> absl::StatusOr<TreeServerList> {
                        PANDO_ASSIGN_OR_RETURN(CatalogEntry entry, FindEntry(context, name));
                        return std::move(entry.servers);
                      });
}

bool ClientImpl::AwaitServers(int64_t deadline_ns, const ListServers& list) {
  bool lacks = false;
  (void)RunControl(deadline_ns, [&](OperationContext& context) -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(const TreeServerList servers, list(context));
    lacks = Lacks(servers);
    return absl::OkStatus();
  });
  return lacks && AwaitLook(deadline_ns);
}

bool ClientImpl::Lacks(const TreeServerList& servers) const {
  return std::any_of(servers.begin(), servers.end(), [this](const TreeServer& on) {
    const ServerRecord* const record = FindRecord(on.server);
    return record == nullptr || record->info.life != on.life;
  });
}

bool ClientImpl::AwaitLook(int64_t deadline_ns) {
  const uint64_t look = members_.AskForLook();
  // Half of the time is for what they are waited for.
  const int64_t now_ns = RealClock().NowNs();
  const int64_t until_ns = now_ns + std::min(kAwaitServersNs, (deadline_ns - now_ns) / 2);
  while (look != 0 && !members_.HasLooked(look) && RealClock().NowNs() < until_ns) {
    const timespec pause = {0, kLookPauseNs};
    nanosleep(&pause, nullptr);
  }
  return look != 0;
}

absl::Status ClientImpl::DropTree(std::string_view name) {
  const int64_t deadline_ns = ConnectDeadlineNs();
  (void)AwaitServersOf(deadline_ns, name);
  CatalogEntry entry;
  PANDO_RETURN_IF_ERROR(RunControl(deadline_ns, [&](OperationContext& context) -> absl::Status {
    PANDO_ASSIGN_OR_RETURN(entry, FindEntry(context, name));
    // Whether some server may have dropped it, which is not undone.
    bool begun = false;
    const auto drop = [&](ServerId server) {
      auto dropped = control_channel_.Call(context, server, ControlOpcode::kDropTree,
                                           EncodeTreeId(entry.tree_id));
      begun = begun || dropped.ok() || absl::IsUnavailable(dropped.status()) ||
              absl::IsDeadlineExceeded(dropped.status());
      return dropped;
    };
    const auto refusal = [&](const absl::Status& why) {
      // NotFound: somebody else has ended a drop of it.
      if (!begun || absl::IsNotFound(why)) return why;
      return OutcomeUnknownError(absl::StrCat(
          "tree '", entry.name,
          "' may be dropped on some memory servers and not on others: call DropTree() again: ",
          why.ToString()));
    };
    std::vector<ServerId> unreached;
    // The catalog last: until then a drop that was interrupted can be repeated by name.
    for (const ServerRecord& server : servers_) {
      if (server.id == catalog_server_) continue;
      const absl::Status dropped = drop(server.id).status();
      if (dropped.ok()) continue;
      // What was on a server that is gone is gone with it.
      if (!absl::IsUnavailable(dropped)) return refusal(dropped);
      unreached.push_back(server.id);
    }
    const absl::StatusOr<std::string> body = drop(catalog_server_);
    if (!body.ok()) return refusal(body.status());
    if (trees_.contains(entry.tree_id)) {
      dropped_.insert(entry.tree_id);
    } else {
      allocator_.ForgetTree(entry.tree_id);
    }
    PANDO_ASSIGN_OR_RETURN(const TreeServerList servers, ParseTreeServers(*body));
    for (const TreeServer& on : servers) {
      const bool reached =
          FindRecord(on.server) != nullptr &&
          std::find(unreached.begin(), unreached.end(), on.server) == unreached.end();
      if (reached) continue;
      PANDO_LOG(WARNING)
          << "tree '" << entry.name << "' is dropped; memory server " << on.server
          << ", which had nodes of it, is not there, or cannot be reached: should it "
             "live, it keeps their memory until it ends";
    }
    return absl::OkStatus();
  }));
  // It is dropped, whatever becomes of this: members see to what is left, too.
  if (entry.mode() == TreeMode::kOwned && EnsureMember(deadline_ns).ok()) {
    (void)member_->Tidy(entry.tree_id, deadline_ns);
  }
  return absl::OkStatus();
}

// --- Servers that come.

absl::StatusOr<ClientImpl::ServerRecord> ClientImpl::Examine(OperationContext& context,
                                                             ServerId server) {
  PANDO_ASSIGN_OR_RETURN(ServerInfo info, ReadServerInfo(context, server));
  if (info.superblock.server_id != server) {
    return absl::FailedPreconditionError(
        absl::StrCat("it calls itself server ", info.superblock.server_id));
  }
  const ServerRecord* const before = FindRecord(server);
  if (before != nullptr && before->info.life == info.life) {
    return absl::FailedPreconditionError(
        "it is alive, but the connection to it was lost and it has declared this client gone: "
        "connect again");
  }
  if ((info.is_catalog != 0) != (server == catalog_server_)) {
    return absl::FailedPreconditionError(
        absl::StrCat("the catalog is kept by memory server ", catalog_server_,
                     "; exactly one must (pando-memory --catalog)"));
  }
  if (info.lease_us > 0 && heartbeat_ == nullptr) {
    return absl::FailedPreconditionError("it has leases, which this client does not renew");
  }
  return ServerRecord{server, info};
}

absl::StatusOr<CatalogEntry> ClientImpl::EntryFor(OperationContext& context,
                                                  const TreeContext& tree, ServerId server) {
  CatalogEntry now = tree.entry;
  // The catalog's server has forgotten its trees with everything else.
  if (server == catalog_server_) return now;
  absl::StatusOr<TreeServerList> servers = ListTreeServers(context, tree.id());
  if (servers.ok()) {
    now.servers = *std::move(servers);
    return now;
  }
  if (!absl::IsNotFound(servers.status())) return servers.status();
  dropped_.insert(tree.id());
  // Dropped: its handles go on with what they have. Where that is nobody knows any more, so it may
  // be on the server's earlier life; and the next one has not heard that the tree was dropped.
  if (FindRecord(server) != nullptr) {
    return absl::NotFoundError(absl::StrCat(", and memory server ", server,
                                            ", which it may have had nodes on, has started again"));
  }
  return now;
}

absl::Status ClientImpl::IntroduceTree(OperationContext& context, TreeContext& tree,
                                       const absl::StatusOr<CatalogEntry>& now,
                                       const ServerRecord& server) {
  if (!now.ok()) {
    tree.fate.Lose(DroppedTreeError(tree.entry.name, std::string(now.status().message())));
    return absl::OkStatus();
  }
  if (server.id == catalog_server_) {
    tree.fate.Lose(LostNodesError(now->name, server.id));
    return absl::OkStatus();
  }
  // The server compares: if it answers, another life that is on record is over.
  absl::Status attached = AttachTo(context, *now, server.id);
  if (absl::IsNotFound(attached)) {
    attached = DroppedTreeError(now->name, absl::StrCat(" on memory server ", server.id));
  } else if (!absl::IsDataLoss(attached)) {
    return attached;
  }
  tree.fate.Lose(std::move(attached));
  return absl::OkStatus();
}

absl::Status ClientImpl::WhyRefused(OperationContext& context, ServerId server,
                                    const absl::Status& refusal) {
  const auto body =
      control_channel_.Call(context, server, ControlOpcode::kClientState,
                            EncodeJoinReply({.compute_server = identity_.compute_server,
                                             .incarnation = identity_.incarnation}));
  if (!body.ok()) return refusal;
  const auto state = ParseClientState(*body);
  if (!state.ok() || *state != ClientLiveness::kDead) return refusal;
  if (heartbeat_ != nullptr) {
    PANDO_LOG(WARNING) << "memory server " << server << " took this compute server for dead while "
                       << "they were introduced: it leaves";
    heartbeat_->GiveUp();
  }
  return absl::FailedPreconditionError(
      "it declared this client dead while they were introduced, as it lost the connection or heard "
      "nothing for a lease: close the client and connect again");
}

absl::Status ClientImpl::IntroduceTo(OperationContext& context, const ServerRecord& server,
                                     const std::vector<std::shared_ptr<TreeImpl>>& trees,
                                     const std::vector<absl::StatusOr<CatalogEntry>>& entries) {
  absl::Status status =
      control_channel_.Call(context, server.id, ControlOpcode::kAttach, EncodeJoinReply(identity_))
          .status();
  if (absl::IsFailedPrecondition(status)) return WhyRefused(context, server.id, status);
  for (size_t i = 0; status.ok() && i < trees.size(); ++i) {
    status = IntroduceTree(context, trees[i]->context(), entries[i], server);
  }
  if (status.ok()) return status;
  // It has met this client, and then taken it for dead.
  if (absl::IsFailedPrecondition(status)) status = WhyRefused(context, server.id, status);
  if (fenced()) return status;
  OperationContext withdrawing(control_.get(), control_->NowNs() + kWithdrawNs);
  (void)control_channel_.Call(withdrawing, server.id, ControlOpcode::kWithdraw, "");
  return status;
}

absl::Status ClientImpl::AddMember(const ServerLocation& location) {
  if (fenced()) return FencedError();
  // Closing a tree takes mutexes, and gives nodes back: the last reference goes after all of them.
  std::vector<std::shared_ptr<TreeImpl>> trees;
  // A session that begins meanwhile would reach the server before the trees are introduced. None
  // waits for a server that says nothing.
  std::unique_lock members_lock(members_mutex_, std::defer_lock);
  PANDO_ASSIGN_OR_RETURN(const uint32_t added,
                         fabric_->AddServer(location, [&] { members_lock.lock(); }));
  ServerRecord record;
  const absl::Status status = RunControl([&](OperationContext& context) -> absl::Status {
    control_->endpoint().AdoptServers(added);
    PANDO_ASSIGN_OR_RETURN(record, Examine(context, location.id));
    // What was spare there is gone. Before the trees' servers are listed: from now on no grant of
    // the ended life is taken, and the catalog has heard of those that were (rule R7).
    allocator_.NoteGone(record.id);
    for (const auto& [id, weak] : trees_) {
      if (std::shared_ptr<TreeImpl> tree = weak.lock()) trees.push_back(std::move(tree));
    }
    // In an order that is the same in every process: a simulated run is one of its seed alone.
    std::sort(trees.begin(), trees.end(),
              [](const auto& a, const auto& b) { return a->context().id() < b->context().id(); });
    // Once the server has met this client it may take it for dead when the connection ends, where
    // that cannot be withdrawn: whatever depends on another server comes before.
    std::vector<absl::StatusOr<CatalogEntry>> entries;
    for (const auto& tree : trees) {
      entries.push_back(EntryFor(context, tree->context(), location.id));
      const absl::Status& found = entries.back().status();
      if (!found.ok() && !absl::IsNotFound(found)) return found;
    }
    PANDO_RETURN_IF_ERROR(IntroduceTo(context, record, trees, entries));
    std::erase_if(servers_, [&](const ServerRecord& old) { return old.id == location.id; });
    servers_.push_back(record);
    std::sort(servers_.begin(), servers_.end(),
              [](const ServerRecord& a, const ServerRecord& b) { return a.id < b.id; });
    return absl::OkStatus();
  });
  if (!status.ok()) {
    fabric_->Disconnect(location.id);
    return status;
  }
  const Superblock& superblock = record.info.superblock;
  hocl_->AddServer(record.id, record.info.life, superblock.lock_words, superblock.dead_offset);
  members_.Publish(record.id, record.info.life, added);
  allocator_.AddServer(record.id, record.info.free_bytes, record.info.life);
  KeepAlive(record);
  return absl::OkStatus();
}

}  // namespace pando
