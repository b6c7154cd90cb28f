// Client and server prove to each other that they have the same secret, before either is told
// anything worth keeping. No I/O here: bytes in, bytes out. HMAC-SHA256 over both nonces and both
// sides' handshake bytes, with a label for each role:
//
//   client                                  server
//   hello: nonce C              ------->
//                               <-------    nonce S, HMAC("server", handshakes, C, S)
//   HMAC("client", handshakes, C, S) --->
//                               <-------    accepted
//
// How it is used. Both sides have exchanged their hello frames (versions, server id, addresses;
// nothing secret). Then, each message in a frame of the transport's own:
//
//   server:  ServerProof proof(secret, {client_hello, server_hello});
//            while (!proof.done()) {
//              bytes = Receive(at most kAuthMessageBytesMax);
//              std::string reply;
//              absl::Status status = proof.Handle(bytes, &reply);
//              if (!reply.empty()) Send(reply);              // also if it failed: it says why
//              if (!status.ok()) { Close(); return status; }
//            }
//            // Only now: queue pairs, rkeys, anything.
//   client:  ClientProof proof(secret, {client_hello, server_hello});
//            Send(proof.Hello());
//            the same loop
//
// `secret` is null where the process was started without --secret_file. If neither side has one
// they are done after one exchange, unproven; if one has, both get PermissionDenied. The verbs
// fabric says in its hello frames whether there is a secret: where one side alone has one both end
// there, and where neither has there is no proof.
//
// What it gives: a peer without the secret gets nothing from either side; recorded messages are
// worth nothing in another handshake, nor are messages sent back to where they came from; a changed
// hello frame is noticed. What it does not: the bytes that follow are neither encrypted nor signed,
// so a third party that can change packets on the way can still do so afterwards. And a secret that
// can be guessed can be guessed from a recorded handshake: take 32 random bytes.
//
// Statuses of Handle(). PermissionDenied: the other side has no secret, another one, or handshake
// bytes other than ours; or it says so of us. DataLoss, FailedPrecondition: as ParseAuthMessage();
// DataLoss also for a message out of turn. After an error, or once done(), a proof takes no more
// messages (FailedPrecondition).
//
// Not thread-safe. `secret` outlives the proof.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "common/auth/auth_message.h"
#include "common/auth/cluster_secret.h"

namespace pando {

// What both sides have sent and received before; both must see the same bytes.
struct Handshakes {
  std::string client, server;
};

class ServerProof {
 public:
  ServerProof(const ClusterSecret* secret, Handshakes handshakes);

  // `*reply`, if not empty, is to be sent whatever the status.
  absl::Status Handle(std::string_view bytes, std::string* reply);
  // The client has the secret (or there is none).
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State { kHello, kProof, kDone, kFailed };
  absl::Status Step(const AuthMessage& message, std::string* reply);

  const ClusterSecret* const secret_;
  const Handshakes handshakes_;
  State state_ = State::kHello;
  AuthNonce client_nonce_ = {}, server_nonce_ = {};
};

class ClientProof {
 public:
  ClientProof(const ClusterSecret* secret, Handshakes handshakes);

  // The first message.
  std::string Hello() const;
  absl::Status Handle(std::string_view bytes, std::string* reply);
  // The server has the secret and has accepted this client (or there is none).
  bool done() const { return state_ == State::kDone; }

 private:
  enum class State { kServer, kVerdict, kDone, kFailed };
  absl::Status Step(const AuthMessage& message, std::string* reply);

  const ClusterSecret* const secret_;
  const Handshakes handshakes_;
  State state_ = State::kServer;
  AuthNonce nonce_ = {};
};

}  // namespace pando
