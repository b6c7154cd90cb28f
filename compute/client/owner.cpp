// How a client comes to own keys of owned trees, and ends that: the member and its cluster tree.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status.h"
#include "common/sched/scheduler.h"
#include "common/wire/control.h"
#include "compute/client/client_impl.h"
#include "compute/owner/to_caller.h"

namespace pando {
namespace {

// Beside those of a session of users: loops, flushes with sixteen leaves in flight, recoveries.
constexpr int kMemberCoroutines = 64;
// Of a session that does nothing but flush.
constexpr int kFlushCoroutines = 32;
// Requests of peers that are executed at a time, beside those of a session of users: of a session,
// and of all. A stack takes two of the mappings that a process may have (vm.max_map_count).
constexpr int kServiceCoroutinesMax = 4096, kServiceCoroutinesOfAll = 16'384;

}  // namespace

int64_t ClientImpl::ConnectDeadlineNs() const {
  return control_->NowNs() + options_.connect_timeout_ms * kMillisecondNs;
}

absl::Status ClientImpl::AddSessions(int64_t deadline_ns, MemberParts* parts) {
  const auto add = [&](int count, int coroutines,
                       std::vector<std::unique_ptr<SessionContext>>* to) {
    for (int i = 0; i < count; ++i) {
      absl::StatusOr<std::unique_ptr<SessionContext>> session =
          NewSessionContext(coroutines, deadline_ns);
      if (!session.ok()) return session.status();
      to->push_back(*std::move(session));
    }
    return absl::OkStatus();
  };
  const int threads = options_.service_threads;
  const int coroutines = std::min(kServiceCoroutinesMax, kServiceCoroutinesOfAll / threads);
  absl::Status added = add(threads, coroutines, &parts->service_sessions);
  // One of those that flush is the member's own.
  if (added.ok()) added = add(options_.flush_threads - 1, kFlushCoroutines, &parts->flush_sessions);
  if (added.ok()) return added;
  for (const auto* const sessions : {&parts->service_sessions, &parts->flush_sessions}) {
    for (const auto& made : *sessions) RemoveSession(made.get());
  }
  RemoveSession(parts->session.get());
  return added;
}

absl::Status ClientImpl::EnsureMember(int64_t deadline_ns) {
  PANDO_ASSIGN_OR_RETURN(const auto lock, owner_mutex_.LockBy(deadline_ns));
  if (member_ != nullptr) return absl::OkStatus();
  int64_t serving_lease_ns = 0;
  bool leases = false;
  {
    PANDO_ASSIGN_OR_RETURN(const auto control_lock, control_mutex_.LockBy(deadline_ns));
    for (const ServerRecord& server : servers_) {
      leases = leases || server.info.lease_us > 0;
      if (server.id != catalog_server_) continue;
      serving_lease_ns = static_cast<int64_t>(server.info.serving_lease_us) * kMicrosecondNs;
    }
  }
  const Capabilities& capabilities = fabric_->capabilities();
  if (serving_lease_ns == 0 && capabilities.can_cut_off) {
    return absl::FailedPreconditionError(
        "owned trees need leases on this fabric: start the memory servers without --lease_ms=0");
  }
  bool asked = false;
  PANDO_ASSIGN_OR_RETURN(std::shared_ptr<TreeImpl> cluster_tree,
                         CreateAnyTree(deadline_ns, kClusterTreeName,
                                       {.key_bytes_max = kClusterKeyBytesMax,
                                        .value_bytes_max = kClusterValueBytesMax},
                                       &asked));
  Member::Parts parts;
  PANDO_ASSIGN_OR_RETURN(parts.session, NewSessionContext(kMemberCoroutines, deadline_ns));
  PANDO_RETURN_IF_ERROR(AddSessions(deadline_ns, &parts));
  parts.on_session_end = [this](const SessionContext* ended) { RemoveSession(ended); };
  parts.event_driven = capabilities.event_driven;
  parts.control = &control_channel_;
  parts.members = &members_;
  parts.catalog_server = catalog_server_;
  parts.cluster_tree = &cluster_tree->context();
  parts.fabric = fabric_.get();
  parts.service_address = options_.service_address;
  parts.find_function = [this](UpsertFunction function, std::string_view operand,
                               uint32_t value_bytes_max) -> absl::StatusOr<const UpsertCallback*> {
    PANDO_RETURN_IF_ERROR(CheckOperand(function, operand, value_bytes_max));
    const UpsertCallback* const found = upserts_.Find(function);
    if (found != nullptr) return found;
    return absl::InvalidArgumentError(
        absl::StrCat("the key's owner has no upsert function ", static_cast<uint32_t>(function),
                     ": register it there, too (Client::RegisterUpsertFunction())"));
  };
  parts.is_gone = [this, leases](ServerId server) {
    return !leases && !fabric_->IsConnected(server);
  };
  parts.on_fenced = [this] {
    if (heartbeat_ != nullptr) heartbeat_->GiveUp();
  };
  parts.lease_clock = capabilities.event_driven ? &control_->endpoint().clock() : &BoottimeClock();
  parts.serving_lease_ns = serving_lease_ns;
  parts.packet_bytes = capabilities.packet_bytes;
  parts.times = times_;
  const auto dirty_percent = static_cast<size_t>(options_.dirty_percent);
  parts.options = {.hot_bytes = options_.hot_bytes,
                   .dirty_bytes_max = options_.hot_bytes / 100 * dirty_percent +
                                      options_.hot_bytes % 100 * dirty_percent / 100,
                   .log_bytes = options_.log_bytes,
                   .spread_ranges = options_.spread_ranges,
                   .ranges_min = static_cast<size_t>(options_.ranges_min),
                   .lend_after_ns = options_.lend_after_ms * kMillisecondNs};
  cluster_tree_ = std::move(cluster_tree);
  absl::StatusOr<std::unique_ptr<Member>> member = Member::Create(std::move(parts));
  if (!member.ok()) {
    cluster_tree_.reset();
    return member.status();
  }
  member_ = *std::move(member);
  current_member_.store(member_.get(), std::memory_order_release);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<TreeImpl>> ClientImpl::Introduced(int64_t deadline_ns,
                                                                 std::shared_ptr<TreeImpl> tree) {
  if (tree->routed().owned() == nullptr) return tree;
  PANDO_RETURN_IF_ERROR(tree->Introduce(member_.get(), deadline_ns));
  return tree;
}

void ClientImpl::GiveUpTree(OwnedTree* tree) {
  // What is left is in the log, where the next client that needs it finds it.
  (void)member_->Close(tree, ConnectDeadlineNs());
}

absl::Status ClientImpl::CheckAsked(TreeImpl& tree) const {
  PANDO_RETURN_IF_ERROR(CheckMayBlock());
  if (fenced()) return FencedError();
  if (&tree.client() != this) return absl::InvalidArgumentError("the tree is another client's");
  if (tree.routed().owned() != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("tree '", tree.context().entry.name, "' is shared: nobody owns its keys"));
}

absl::StatusOr<OwnerInfo> ClientImpl::OwnerOf(TreeImpl& tree, std::string_view key) {
  PANDO_RETURN_IF_ERROR(CheckAsked(tree));
  return member_->OwnerOf(tree.routed().owned(), key, ConnectDeadlineNs());
}

absl::StatusOr<std::vector<RangeInfo>> ClientImpl::ListRanges(TreeImpl& tree) {
  PANDO_RETURN_IF_ERROR(CheckAsked(tree));
  return member_->ListRanges(tree.routed().owned(), ConnectDeadlineNs());
}

absl::StatusOr<std::vector<MemberInfo>> ClientImpl::ListMembers() {
  PANDO_RETURN_IF_ERROR(CheckMayBlock());
  // Where nobody has made the cluster tree there are no members; it is not made for this.
  absl::Status exists;
  const int64_t deadline_ns = ConnectDeadlineNs();
  PANDO_RETURN_IF_ERROR(RunControl(deadline_ns, [&](OperationContext& context) {
    exists = FindEntry(context, kClusterTreeName).status();
    return absl::IsNotFound(exists) ? absl::OkStatus() : exists;
  }));
  if (absl::IsNotFound(exists)) return std::vector<MemberInfo>();
  PANDO_RETURN_IF_ERROR(EnsureMember(deadline_ns));
  return member_->ListMembers(deadline_ns);
}

absl::Status ClientImpl::Leave(int64_t timeout_ms) {
  PANDO_RETURN_IF_ERROR(CheckMayBlock());
  if (fenced()) return FencedError();
  if (member() == nullptr) return absl::OkStatus();
  if (timeout_ms <= 0) timeout_ms = options_.connect_timeout_ms;
  timeout_ms = std::min(timeout_ms, kTimeoutMsMax);
  return ToCaller(member()->Retire(control_->NowNs() + timeout_ms * kMillisecondNs),
                  "the client goes on as before: call again");
}

void ClientImpl::LeaveOwners() {
  if (member_ != nullptr && !fenced()) {
    const absl::Status left = member_->Leave(ConnectDeadlineNs());
    if (!left.ok()) {
      PANDO_LOG(WARNING) << "this compute server ends without having given up everything that it "
                            "owned; others take it over from its log ("
                         << left << ")";
    }
  }
  current_member_.store(nullptr, std::memory_order_release);
  member_.reset();
  cluster_tree_.reset();
}

}  // namespace pando
