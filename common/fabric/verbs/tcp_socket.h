// TCP for the control connections: "host:port" addresses, non-blocking sockets that notice a dead
// peer. Free functions; thread-safe as the system calls are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/unique_fd.h"

namespace pando {

struct HostPort {
  std::string host;  // a name, or an address; IPv6 addresses in brackets in the text
  std::string port;

  std::string ToString() const;
};
// InvalidArgument: no "host:port".
absl::StatusOr<HostPort> ParseHostPort(std::string_view text);

struct TcpListener {
  UniqueFd socket;
  // With the port that the kernel chose, where 0 was asked for. Without a host: every address of
  // this host, whether it was asked for by none, by "0.0.0.0" or by "::".
  HostPort bound;
};
// AlreadyExists: somebody listens there. InvalidArgument: no such address on this host.
absl::StatusOr<TcpListener> ListenTcp(const HostPort& address);

// Unavailable: nobody listens there, or no answer before `deadline_ns` (RealClock).
absl::StatusOr<UniqueFd> ConnectTcp(const HostPort& address, int64_t deadline_ns);

// The same without waiting: a socket that is being connected, or is already. A name is looked up
// first.
absl::StatusOr<UniqueFd> StartTcp(const HostPort& address);
// Of such a socket: whether it is connected by now. Unavailable: it will not be.
absl::StatusOr<bool> IsConnectedTcp(int socket);

// A connected socket: small messages at once, and an error after `silence_ms` without a sign of
// life of the other host.
void TuneTcp(int socket, int silence_ms);

// "host:port" of the other side, for messages.
std::string PeerOfTcp(int socket);

// Whom the other side's connections count for: its IPv4 address, or its IPv6 network (the first 64
// bits, which one host has to itself).
std::string OriginOfTcp(int socket);

enum class TcpResult { kSome, kNothing, kGone };
// Reads what there is, up to a bound, and appends it.
TcpResult ReceiveTcp(int socket, std::string* bytes);
// Sends from the front of `bytes` and removes what was sent. kNothing: the socket is full.
TcpResult SendTcp(int socket, std::string* bytes);

}  // namespace pando
