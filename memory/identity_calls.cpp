// The control calls by which clients come and go: who joins, is introduced, leaves (rules C0, C1).
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/status.h"
#include "memory/memory_server.h"

namespace pando::memory {

absl::StatusOr<std::string> MemoryServer::OnJoin(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const JoinRequest join, ParseJoinRequest(request.body));
  ids_.RaiseAbove(join.id_floor);
  PANDO_ASSIGN_OR_RETURN(const ClientId client, clients_.Join(request.peer, &ids_));
  trees_.NoteIncarnation(client.incarnation);
  leases_.Renew(request.peer, options_.clock->NowNs());
  ++counts_.joins;
  JoinReply reply = {.compute_server = client.compute_server, .incarnation = client.incarnation};
  if (options_.identity_key != nullptr) {
    reply.proof = options_.identity_key->Sign(reply.compute_server, reply.incarnation);
  }
  return EncodeJoinReply(reply);
}

absl::StatusOr<std::string> MemoryServer::OnAttach(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const JoinReply identity, ParseJoinReply(request.body));
  const ClientId client = {identity.compute_server, identity.incarnation};
  if (request.sender.compute_server != 0 && request.sender != client) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.sender.ToString(), " cannot introduce ", client.ToString()));
  }
  if (fenced_lives_.Contains(client.incarnation)) {
    return absl::FailedPreconditionError(
        absl::StrCat(client.ToString(), " was fenced: others take over from it; connect again"));
  }
  // The catalog's server knows every identity already, but for those of its earlier lives.
  if (options_.is_catalog && ids_.MayHaveIssued(client.incarnation) &&
      !clients_.HasWithdrawn(client)) {
    PANDO_RETURN_IF_ERROR(clients_.Check(request.peer, client));
    return std::string();
  }
  if (options_.identity_key != nullptr &&
      !options_.identity_key->Verify(client.compute_server, client.incarnation, identity.proof)) {
    return absl::PermissionDeniedError(absl::StrCat(
        client.ToString(), " shows no proof that this cluster's catalog has issued it: all memory ",
        "servers of a cluster need one registry and the same --secret_file (or none)"));
  }
  const bool proved = options_.identity_key != nullptr;
  if (options_.is_catalog && !proved && !ids_.IsBelievable(client.incarnation)) {
    return absl::InvalidArgumentError(
        absl::StrCat(client.ToString(), " is made up: no catalog has come so far"));
  }
  PANDO_RETURN_IF_ERROR(clients_.Attach(request.peer, client));
  if (options_.is_catalog) ids_.RaiseAbove(client.incarnation, proved);
  trees_.NoteIncarnation(client.incarnation);
  leases_.Renew(request.peer, options_.clock->NowNs());
  ++counts_.attaches;
  return std::string();
}

absl::StatusOr<std::string> MemoryServer::OnLeave(const Request& request) {
  ReleaseClient(request.sender);
  clients_.Leave(request.sender);
  if (!clients_.AnyJoined(request.peer)) leases_.Forget(request.peer);
  ++counts_.leaves;
  return std::string();
}

absl::StatusOr<std::string> MemoryServer::OnWithdraw(const Request& request) {
  const bool was_joined = clients_.AnyJoined(request.peer);
  PANDO_RETURN_IF_ERROR(clients_.Withdraw(request.peer, request.sender));
  leases_.Forget(request.peer);
  if (was_joined) ReleaseClient(request.sender);
  return std::string();
}

absl::StatusOr<std::string> MemoryServer::OnClientState(const Request& request) {
  PANDO_ASSIGN_OR_RETURN(const JoinReply identity, ParseJoinReply(request.body));
  const ClientId client = {identity.compute_server, identity.incarnation};
  return EncodeClientState(fencing_.IsPending(client) ? ClientLiveness::kJoined
                                                      : clients_.StateOf(client));
}

}  // namespace pando::memory
