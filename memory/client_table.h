// The compute servers that this memory server knows: who joined over which connection.
//
// Not thread-safe: one control thread. Invariants:
//   1. An incarnation is issued once, by the catalog's server, in ascending order (rule C0).
//   2. At most one life of a compute-server id is joined; leaving in order and death are different
//      ends.
//   3. A life that ended never comes back. One whose introduction was withdrawn has not begun here:
//      it has posted nothing to this server, and been granted nothing (rule R8), so that its
//      connection ends without a death, and it is unknown until it is introduced over another one.
//   4. A connection has one identity, once: what it can fill, and what its end costs, is one entry.
//      Over one that has withdrawn nobody is introduced, whatever comes late: that a client is
//      introduced again, and its old connection ends then, harms nobody.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/fabric/server.h"
#include "common/wire/control.h"
#include "memory/client_id.h"
#include "memory/id_source.h"

namespace pando::memory {

enum class ClientState : uint8_t { kJoined, kLeft, kDead, kWithdrawn };

class ClientTable {
 public:
  static constexpr uint32_t kComputeServerMax = 65535;

  // Ids of compute servers are given out from behind this one on: who was introduced to an earlier
  // life of the catalog can mostly keep his.
  explicit ClientTable(uint32_t last_id = 0) : last_id_(last_id) {}

  // Catalog's server: a new identity. ResourceExhausted: 65,535 compute servers are joined;
  // FailedPrecondition: this connection has, or had, an identity.
  absl::StatusOr<ClientId> Join(PeerId peer, IdSource* ids);
  // Other servers: introduces an identity. An earlier life under the same id that is still joined
  // here has ended elsewhere; it is over, and dead as soon as its connection is gone: until then
  // something of it may be in flight. InvalidArgument: no identity; FailedPrecondition: that life
  // has ended, or this connection has another identity; PermissionDenied: it belongs to another
  // connection.
  absl::Status Attach(PeerId peer, const ClientId& client);

  // What is joined over this connection is dead from now on, although the connection still exists:
  // until PeerGone() something of it may be in flight. Nothing joins over it any more.
  void Fence(PeerId peer);
  bool IsFenced(PeerId peer) const { return fenced_.contains(peer); }
  // The connection had ended before it could be cut off: PeerGone() comes once, not twice.
  void FencedTooLate(PeerId peer) { fenced_.erase(peer); }
  // The connection over which something of this life may be in flight, be it joined, left or
  // superseded. nullopt: there is none, or it was cut off and nothing is any more.
  std::optional<PeerId> ConnectionOf(const ClientId& client) const;
  // InvalidArgument: that incarnation is here, and another compute server's.
  absl::Status CheckIsNobodyElse(const ClientId& client) const;

  // OK if `client` is joined over `peer`. FailedPrecondition: unknown or ended; PermissionDenied:
  // another peer's.
  absl::Status Check(PeerId peer, const ClientId& client) const;
  bool AnyJoined(PeerId peer) const;
  // Of a joined client.
  void Leave(const ClientId& client);
  // Who is introduced over this connection never was, and nobody is any more. FailedPrecondition:
  // that life has ended; PermissionDenied: it belongs to another connection.
  absl::Status Withdraw(PeerId peer, const ClientId& client);
  bool HasWithdrawn(const ClientId& client) const;
  // The client of this connection, if it had not left: it is dead now. Superseded or fenced ones
  // are reported here, too.
  std::optional<ClientId> PeerGone(PeerId peer);

  // Of a life that is not the latest of its id only this is known: it is over. Who is over is dead
  // unless its connection still exists.
  ClientLiveness StateOf(const ClientId& client) const;

  size_t joined() const { return joined_; }
  size_t dead() const { return dead_; }

 private:
  struct Entry {
    uint32_t incarnation = 0;
    ClientState state = ClientState::kLeft;
    PeerId peer = 0;
  };
  absl::StatusOr<uint16_t> FreeComputeServer();
  void SetState(Entry* entry, ClientState state);

  // Whether the connection may get this identity; nullptr: a new one.
  absl::Status CheckMayJoin(PeerId peer, const ClientId* client) const;
  // Its life is over, its connection still exists.
  bool IsLingering(const ClientId& client) const;
  // The entry of this life; nullptr: another life has it.
  Entry* FindLife(const ClientId& client);
  const Entry* FindLife(const ClientId& client) const {
    return const_cast<ClientTable*>(this)->FindLife(client);
  }

  absl::btree_map<uint16_t, Entry> entries_;  // the latest life of each id
  uint32_t last_id_;
  absl::flat_hash_map<PeerId, ClientId> identities_;  // of every connection that has, or had, one
  absl::flat_hash_set<ClientId> lingering_;           // superseded or fenced
  absl::flat_hash_set<PeerId> fenced_;
  absl::flat_hash_set<PeerId> withdrawn_;  // they have no identity, and get none
  size_t joined_ = 0, dead_ = 0;
};

}  // namespace pando::memory
