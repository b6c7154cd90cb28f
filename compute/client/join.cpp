// How a client becomes one of the cluster: which servers answer, what they can do, and who it is;
// and what servers say of themselves later.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "common/wire/control.h"
#include "common/wire/lock_word.h"
#include "compute/client/client_impl.h"

namespace pando {
namespace {

constexpr int kHeartbeatCoroutines = 1024;  // one a server, made when needed

}  // namespace

absl::Status ClientImpl::CheckServer(const ServerInfo& info) const {
  const Superblock& superblock = info.superblock;
  PANDO_RETURN_IF_ERROR(ValidateSuperblock(superblock));
  const Capabilities& capabilities = fabric_->capabilities();
  const bool crc = (superblock.features.incompatible & kIncompatibleLineCrc) != 0;
  if (capabilities.needs_crc && !crc) {
    return absl::FailedPreconditionError(absl::StrCat(
        "fabric ", capabilities.name, " needs line checksums; the server was formatted without"));
  }
  if (!servers_.empty() &&
      superblock.features.incompatible != servers_.front().info.superblock.features.incompatible) {
    return absl::FailedPreconditionError(
        "the memory servers were formatted with different features");
  }
  if (superblock.packet_bytes > capabilities.packet_bytes) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server's packets have ", superblock.packet_bytes,
                     " bytes, this path only ", capabilities.packet_bytes));
  }
  if (superblock.lock_words <= kRootLockWords) {
    return absl::FailedPreconditionError(
        absl::StrCat("a lock table of ", superblock.lock_words, " words is too small"));
  }
  return absl::OkStatus();
}

absl::StatusOr<ServerInfo> ClientImpl::ReadServerInfo(OperationContext& context, ServerId server) {
  OperationContext soon(&context.session,
                        std::min(context.deadline_ns(), context.session.NowNs() + kAnswerNsMax));
  PANDO_ASSIGN_OR_RETURN(const std::string body,
                         control_channel_.Call(registry_ == nullptr ? context : soon, server,
                                               ControlOpcode::kServerInfo, ""));
  PANDO_ASSIGN_OR_RETURN(ServerInfo info, ParseServerInfo(body));
  const absl::Status usable = CheckServer(info);
  if (!usable.ok()) return Annotate(usable, absl::StrCat("memory server ", server));
  return info;
}

absl::Status ClientImpl::ReadServerInfos(OperationContext& context,
                                         std::vector<absl::Status>* missing) {
  int catalogs = 0;
  for (const ServerId id : fabric_->servers()) {
    absl::StatusOr<ServerInfo> info = ReadServerInfo(context, id);
    const bool silent =
        absl::IsUnavailable(info.status()) || absl::IsDeadlineExceeded(info.status());
    if (silent && registry_ != nullptr) {
      missing->push_back(info.status());
      fabric_->Disconnect(id);
      continue;
    }
    PANDO_RETURN_IF_ERROR(info.status());
    if (info->is_catalog) {
      catalog_server_ = id;
      ++catalogs;
    }
    servers_.push_back({id, *std::move(info)});
  }
  if (catalogs == 1) return absl::OkStatus();
  if (catalogs == 0 && registry_ != nullptr) {
    return absl::UnavailableError(
        absl::StrCat("none of the ", servers_.size(),
                     " memory servers that answer keeps the catalog: is the one that does "
                     "(pando-memory --catalog, by default server 1) running?"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat(catalogs, " of ", servers_.size(),
                   " memory servers keep a catalog; exactly one must (pando-memory --catalog)"));
}

absl::Status ClientImpl::TakeIdentity(OperationContext& context,
                                      std::vector<absl::Status>* missing) {
  JoinRequest request;
  for (const ServerRecord& server : servers_) {
    request.id_floor = std::max(request.id_floor, server.info.highest_id);
  }
  PANDO_ASSIGN_OR_RETURN(const std::string body,
                         control_channel_.Call(context, catalog_server_, ControlOpcode::kJoin,
                                               EncodeJoinRequest(request)));
  PANDO_ASSIGN_OR_RETURN(identity_, ParseJoinReply(body));
  control_channel_.SetIdentity(identity_.compute_server, identity_.incarnation);
  // The catalog's server first: its lease has begun.
  std::stable_partition(servers_.begin(), servers_.end(), [this](const ServerRecord& server) {
    return server.id == catalog_server_;
  });
  KeepAlive(servers_.front());
  std::vector<ServerId> gone;
  for (const ServerRecord& server : servers_) {
    if (server.id == catalog_server_) continue;
    const absl::Status attached =
        control_channel_
            .Call(context, server.id, ControlOpcode::kAttach, EncodeJoinReply(identity_))
            .status();
    if (absl::IsUnavailable(attached) && registry_ != nullptr) {
      missing->push_back(attached);
      gone.push_back(server.id);
      fabric_->Disconnect(server.id);
      continue;
    }
    PANDO_RETURN_IF_ERROR(attached);
    KeepAlive(server);
  }
  std::erase_if(servers_, [&](const ServerRecord& server) {
    return std::find(gone.begin(), gone.end(), server.id) != gone.end();
  });
  std::sort(servers_.begin(), servers_.end(),
            [](const ServerRecord& a, const ServerRecord& b) { return a.id < b.id; });
  return absl::OkStatus();
}

absl::Status ClientImpl::PrepareHeartbeat(uint64_t seed) {
  const auto leases =
      std::count_if(servers_.begin(), servers_.end(),
                    [](const ServerRecord& server) { return server.info.lease_us > 0; });
  if (leases == 0) return absl::OkStatus();
  PANDO_ASSIGN_OR_RETURN(std::unique_ptr<Endpoint> endpoint, fabric_->Connect(0, 0));
  auto session = std::make_unique<SessionContext>(std::move(endpoint), &cache_->epochs(),
                                                  kHeartbeatCoroutines, seed);
  // Who is not pinged takes this client for dead.
  PANDO_RETURN_IF_ERROR(session->Prepare(std::min(static_cast<int>(leases), kHeartbeatCoroutines)));
  session->set_membership(&members_);
  const bool event_driven = fabric_->capabilities().event_driven;
  Heartbeat::AskAnew ask_anew;
  if (!event_driven) {
    ask_anew = [this](ServerId server) -> absl::StatusOr<ClientLiveness> {
      PANDO_ASSIGN_OR_RETURN(
          const std::string body,
          ControlChannel::CallOnFreshConnection(
              *fabric_, server, ControlOpcode::kClientState,
              EncodeJoinReply({.compute_server = control_channel_.compute_server(),
                               .incarnation = control_channel_.incarnation()})));
      return ParseClientState(body);
    };
  }
  auto heartbeat = std::make_unique<Heartbeat>(std::move(session), &control_channel_, event_driven,
                                               std::move(ask_anew), times_.ping_max_ns);
  PANDO_RETURN_IF_ERROR(heartbeat->Start());
  heartbeat_ = std::move(heartbeat);
  control_->set_fenced_flag(&heartbeat_->fenced());
  return absl::OkStatus();
}

std::vector<ServerStatus> ClientImpl::Servers() {
  std::vector<ServerStatus> result;
  const auto ask = [&](OperationContext& asking) -> absl::Status {
    const int64_t deadline_ns = asking.deadline_ns();
    result.resize(servers_.size());
    // All at once: one that does not answer leaves no time for those after it.
    for (size_t i = 0; i < servers_.size(); ++i) {
      result[i].id = servers_[i].id;
      control_->scheduler().Spawn([this, deadline_ns, status = &result[i]] {
        OperationContext context(control_.get(), deadline_ns);
        ReadStatus(context, status);
      });
    }
    return absl::OkStatus();
  };
  const absl::Status asked = AskControl(ConnectDeadlineNs(), ask);
  // It is not known what they would have said; they are the client's all the same.
  if (absl::IsDeadlineExceeded(asked)) {
    for (const ServerId server : members_.Ids()) result.push_back({.id = server});
  }
  return result;
}

void ClientImpl::ReadStatus(OperationContext& context, ServerStatus* status) {
  const auto body = control_channel_.Call(context, status->id, ControlOpcode::kServerInfo, "");
  if (!body.ok()) return;
  const auto info = ParseServerInfo(*body);
  if (!info.ok()) return;
  status->available = true;
  status->is_catalog = info->is_catalog != 0;
  status->region_bytes = info->superblock.region_bytes;
  status->free_bytes = info->free_bytes;
  status->used_bytes = info->used_bytes;
  const auto stats = control_channel_.Call(context, status->id, ControlOpcode::kStats, "");
  if (!stats.ok()) return;
  if (auto counters = ParseCounters(*stats); counters.ok()) status->counters = *counters;
}

}  // namespace pando
