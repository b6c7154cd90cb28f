#include "memory/client_table.h"

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/rule.h"
#include "common/base/status.h"

namespace pando::memory {

void ClientTable::SetState(Entry* entry, ClientState state) {
  joined_ -= entry->state == ClientState::kJoined;
  dead_ -= entry->state == ClientState::kDead;
  entry->state = state;
  joined_ += entry->state == ClientState::kJoined;
  dead_ += entry->state == ClientState::kDead;
}

// Ids go round, so that an id is used again as late as possible; those of the dead only when no
// other is left.
absl::StatusOr<uint16_t> ClientTable::FreeComputeServer() {
  if (joined_ >= kComputeServerMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(joined_, " compute servers are joined: no id is left"));
  }
  const bool take_dead = joined_ + dead_ >= kComputeServerMax;
  for (uint32_t tried = 0; tried < kComputeServerMax; ++tried) {
    last_id_ = last_id_ % kComputeServerMax + 1;
    const auto entry = entries_.find(static_cast<uint16_t>(last_id_));
    const bool is_free = entry == entries_.end() || entry->second.state == ClientState::kLeft ||
                         entry->second.state == ClientState::kWithdrawn;
    if (is_free) break;
    if (take_dead && entry->second.state == ClientState::kDead) break;
  }
  return static_cast<uint16_t>(last_id_);
}

ClientTable::Entry* ClientTable::FindLife(const ClientId& client) {
  const auto entry = entries_.find(client.compute_server);
  if (entry == entries_.end() || entry->second.incarnation != client.incarnation) return nullptr;
  return &entry->second;
}

absl::Status ClientTable::CheckMayJoin(PeerId peer, const ClientId* client) const {
  if (fenced_.contains(peer)) {
    return absl::FailedPreconditionError("this connection was cut off: connect again");
  }
  if (withdrawn_.contains(peer)) {
    return absl::FailedPreconditionError(
        "over this connection an introduction was withdrawn: connect again");
  }
  const auto identity = identities_.find(peer);
  if (identity == identities_.end()) return absl::OkStatus();
  if (client != nullptr && identity->second == *client) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("this connection is that of ",
                                                    identity->second.ToString(),
                                                    ", and has no other identity: connect again"));
}

absl::StatusOr<ClientId> ClientTable::Join(PeerId peer, IdSource* ids) {
  PANDO_RETURN_IF_ERROR(CheckMayJoin(peer, nullptr));
  PANDO_ASSIGN_OR_RETURN(const uint16_t id, FreeComputeServer());
  PANDO_ASSIGN_OR_RETURN(const uint32_t incarnation, ids->Peek());
  if (RuleHolds(Rule::kC0)) ids->Take();
  Entry& entry = entries_[id];
  PANDO_CHECK(entry.state != ClientState::kJoined);
  entry.incarnation = incarnation;
  entry.peer = peer;
  SetState(&entry, ClientState::kJoined);
  return identities_[peer] = ClientId{id, incarnation};
}

absl::Status ClientTable::Attach(PeerId peer, const ClientId& client) {
  if (client.compute_server == 0 || client.incarnation == 0) {
    return absl::InvalidArgumentError(
        "an identity has an id and an incarnation above 0: join first");
  }
  PANDO_RETURN_IF_ERROR(CheckMayJoin(peer, &client));
  Entry& entry = entries_[client.compute_server];
  if (entry.incarnation == client.incarnation && entry.state != ClientState::kWithdrawn) {
    return Check(peer, client);
  }
  if (entry.incarnation > client.incarnation) {
    return absl::FailedPreconditionError(absl::StrCat(client.ToString(), " is over: incarnation ",
                                                      entry.incarnation, " has replaced it"));
  }
  if (entry.state == ClientState::kJoined) {
    lingering_.insert({client.compute_server, entry.incarnation});
  }
  entry.incarnation = client.incarnation;
  entry.peer = peer;
  SetState(&entry, ClientState::kJoined);
  identities_[peer] = client;
  return absl::OkStatus();
}

absl::Status ClientTable::Check(PeerId peer, const ClientId& client) const {
  const auto entry = entries_.find(client.compute_server);
  if (entry == entries_.end() || entry->second.incarnation != client.incarnation ||
      entry->second.state == ClientState::kWithdrawn) {
    return absl::FailedPreconditionError(
        absl::StrCat(client.ToString(), " is not known here: connect again"));
  }
  if (entry->second.state != ClientState::kJoined) {
    return absl::FailedPreconditionError(
        absl::StrCat(client.ToString(),
                     entry->second.state == ClientState::kDead ? " was declared dead" : " has left",
                     ": connect again"));
  }
  if (entry->second.peer != peer) {
    return absl::PermissionDeniedError(
        absl::StrCat(client.ToString(), " belongs to another connection"));
  }
  return absl::OkStatus();
}

void ClientTable::Leave(const ClientId& client) {
  const auto entry = entries_.find(client.compute_server);
  PANDO_CHECK(entry != entries_.end() && entry->second.incarnation == client.incarnation);
  SetState(&entry->second, ClientState::kLeft);
}

bool ClientTable::HasWithdrawn(const ClientId& client) const {
  const Entry* const entry = FindLife(client);
  return entry != nullptr && entry->state == ClientState::kWithdrawn;
}

absl::Status ClientTable::Withdraw(PeerId peer, const ClientId& client) {
  const auto identity = identities_.find(peer);
  if (identity != identities_.end()) {
    PANDO_RETURN_IF_ERROR(Check(peer, client));
    SetState(FindLife(client), ClientState::kWithdrawn);
    identities_.erase(identity);
  }
  withdrawn_.insert(peer);
  return absl::OkStatus();
}

void ClientTable::Fence(PeerId peer) {
  fenced_.insert(peer);
  const auto identity = identities_.find(peer);
  if (identity == identities_.end()) return;
  lingering_.insert(identity->second);
  if (AnyJoined(peer)) SetState(FindLife(identity->second), ClientState::kDead);
}

std::optional<PeerId> ClientTable::ConnectionOf(const ClientId& client) const {
  for (const auto& [peer, identity] : identities_) {
    if (identity != client) continue;
    if (IsFenced(peer) && !IsLingering(client)) return std::nullopt;
    return peer;
  }
  return std::nullopt;
}

absl::Status ClientTable::CheckIsNobodyElse(const ClientId& client) const {
  for (const auto& [peer, identity] : identities_) {
    if (identity.incarnation != client.incarnation || identity == client) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("there is no ", client.ToString(), ": it is ", identity.ToString()));
  }
  return absl::OkStatus();
}

bool ClientTable::AnyJoined(PeerId peer) const {
  const auto identity = identities_.find(peer);
  if (identity == identities_.end()) return false;
  const Entry* const entry = FindLife(identity->second);
  return entry != nullptr && entry->state == ClientState::kJoined;
}

bool ClientTable::IsLingering(const ClientId& client) const { return lingering_.contains(client); }

std::optional<ClientId> ClientTable::PeerGone(PeerId peer) {
  std::optional<ClientId> gone;
  withdrawn_.erase(peer);
  const auto identity = identities_.find(peer);
  if (identity != identities_.end()) {
    const ClientId& client = identity->second;
    if (AnyJoined(peer)) {
      gone = client;
      SetState(FindLife(client), ClientState::kDead);
    } else if (lingering_.erase(client) > 0) {
      gone = client;
    }
    // A client that was cut off is reported again when its connection ends; until then it joins
    // nothing.
    if (!gone.has_value() || !fenced_.contains(peer)) identities_.erase(identity);
  }
  if (!gone.has_value()) fenced_.erase(peer);  // cut off before, now the connection has ended, too
  return gone;
}

ClientLiveness ClientTable::StateOf(const ClientId& client) const {
  const auto entry = entries_.find(client.compute_server);
  if (entry == entries_.end() || entry->second.incarnation < client.incarnation) {
    return ClientLiveness::kUnknown;
  }
  if (IsLingering(client)) return ClientLiveness::kJoined;
  if (entry->second.incarnation > client.incarnation) return ClientLiveness::kDead;
  switch (entry->second.state) {
    case ClientState::kJoined:
      return ClientLiveness::kJoined;
    case ClientState::kLeft:
      return ClientLiveness::kLeft;
    case ClientState::kDead:
      return ClientLiveness::kDead;
    case ClientState::kWithdrawn:
      return ClientLiveness::kUnknown;
  }
  return ClientLiveness::kUnknown;
}

}  // namespace pando::memory
