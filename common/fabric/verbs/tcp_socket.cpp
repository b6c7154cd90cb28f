#include "common/fabric/verbs/tcp_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/status.h"

namespace pando {
namespace {

constexpr int kBacklog = 1024;
constexpr size_t kReceiveBytes = 64 << 10;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

absl::StatusOr<Addresses> Resolve(const HostPort& address, bool to_listen) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int error = getaddrinfo(address.host.empty() ? nullptr : address.host.c_str(),
                                address.port.c_str(), &hints, &list);
  if (error == 0) return Addresses(list);
  const std::string message = absl::StrCat("'", address.ToString(), "': ", gai_strerror(error));
  if (to_listen || error == EAI_SERVICE) return absl::InvalidArgumentError(message);
  return absl::UnavailableError(message);
}

UniqueFd NewSocket(const addrinfo& address) {
  return AboveStandard(
      UniqueFd(socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)));
}

bool IsUnspecified(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return address.ss_family == AF_INET6 &&
         IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

absl::StatusOr<HostPort> BoundTo(int socket, const HostPort& asked) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  std::array<char, NI_MAXSERV> port = {};
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, nullptr, 0, port.data(),
                  port.size(), NI_NUMERICSERV) != 0) {
    return absl::InternalError("which port the kernel chose cannot be found out");
  }
  return HostPort{IsUnspecified(address) ? "" : asked.host, port.data()};
}

// 0 or an errno.
int FinishConnect(int socket, int64_t deadline_ns) {
  for (;;) {
    const int64_t left_ms = (deadline_ns - RealClock().NowNs()) / kMillisecondNs;
    pollfd entry = {socket, POLLOUT, 0};
    const int ready = left_ms <= 0 ? 0 : poll(&entry, 1, static_cast<int>(left_ms));
    if (ready == 0) return ETIMEDOUT;
    if (ready < 0 && errno == EINTR) continue;
    int error = 0;
    socklen_t bytes = sizeof(error);
    getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes);
    return error;
  }
}

void SetOption(int socket, int level, int name, int value) {
  // A kernel without one of these is slower to notice, and no worse.
  setsockopt(socket, level, name, &value, sizeof(value));
}

}  // namespace

std::string HostPort::ToString() const {
  const bool brackets = host.find(':') != std::string::npos;
  return brackets ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == text.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", std::string(text), "' is no address of the form host:port"));
  }
  std::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return HostPort{std::string(host), std::string(text.substr(colon + 1))};
}

absl::StatusOr<TcpListener> ListenTcp(const HostPort& address) {
  PANDO_ASSIGN_OR_RETURN(const Addresses list, Resolve(address, true));
  int error = 0;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    UniqueFd socket = NewSocket(*entry);
    if (!socket) {
      error = errno;
      continue;
    }
    SetOption(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(socket.get(), entry->ai_addr, entry->ai_addrlen) != 0 ||
        listen(socket.get(), kBacklog) != 0) {
      error = errno;
      continue;
    }
    PANDO_ASSIGN_OR_RETURN(HostPort bound, BoundTo(socket.get(), address));
    return TcpListener{std::move(socket), std::move(bound)};
  }
  const std::string message =
      absl::StrCat("cannot listen at ", address.ToString(), ": ", std::strerror(error));
  if (error == EADDRINUSE) return absl::AlreadyExistsError(message);
  return absl::InvalidArgumentError(message);
}

absl::StatusOr<UniqueFd> ConnectTcp(const HostPort& address, int64_t deadline_ns) {
  PANDO_ASSIGN_OR_RETURN(const Addresses list, Resolve(address, false));
  int error = 0;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    UniqueFd socket = NewSocket(*entry);
    error = 0;
    if (!socket || connect(socket.get(), entry->ai_addr, entry->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) error = FinishConnect(socket.get(), deadline_ns);
    if (error == 0) return socket;
  }
  return absl::UnavailableError(absl::StrCat(std::strerror(error),
                                             ": is pando-memory running there, and does a firewall "
                                             "let its TCP port through?"));
}

absl::StatusOr<UniqueFd> StartTcp(const HostPort& address) {
  PANDO_ASSIGN_OR_RETURN(const Addresses list, Resolve(address, false));
  UniqueFd socket = NewSocket(*list);
  if (!socket) return absl::ErrnoToStatus(errno, "socket");
  if (connect(socket.get(), list->ai_addr, list->ai_addrlen) == 0 || errno == EINPROGRESS) {
    return socket;
  }
  return absl::UnavailableError(std::strerror(errno));
}

absl::StatusOr<bool> IsConnectedTcp(int socket) {
  pollfd entry = {socket, POLLOUT, 0};
  if (poll(&entry, 1, 0) <= 0) return false;
  int error = 0;
  socklen_t bytes = sizeof(error);
  getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error == 0) return true;
  return absl::UnavailableError(std::strerror(error));
}

void TuneTcp(int socket, int silence_ms) {
  SetOption(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  SetOption(socket, IPPROTO_TCP, TCP_KEEPCNT, std::max(1, silence_ms / 1000));
  SetOption(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, silence_ms);
}

std::string PeerOfTcp(int socket) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  std::array<char, NI_MAXHOST> host = {};
  std::array<char, NI_MAXSERV> port = {};
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), bytes, host.data(), host.size(),
                  port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "somebody";
  }
  return HostPort{host.data(), port.data()}.ToString();
}

std::string OriginOfTcp(int socket) {
  sockaddr_storage address = {};
  socklen_t bytes = sizeof(address);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) return "";
  if (address.ss_family != AF_INET6) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    return absl::BytesToHexString({reinterpret_cast<const char*>(&ipv4.sin_addr), 4});
  }
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  const char* const first = reinterpret_cast<const char*>(&ipv6);
  return IN6_IS_ADDR_V4MAPPED(&ipv6) ? absl::BytesToHexString({first + 12, 4})
                                     : absl::BytesToHexString({first, 8});
}

TcpResult ReceiveTcp(int socket, std::string* bytes) {
  std::array<char, kReceiveBytes> buffer;
  for (;;) {
    const ssize_t received = recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (received > 0) {
      bytes->append(buffer.data(), static_cast<size_t>(received));
      return TcpResult::kSome;
    }
    if (received == 0) return TcpResult::kGone;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? TcpResult::kNothing
                                                                  : TcpResult::kGone;
  }
}

TcpResult SendTcp(int socket, std::string* bytes) {
  size_t sent = 0;
  TcpResult result = TcpResult::kSome;
  while (sent < bytes->size()) {
    const ssize_t count =
        send(socket, bytes->data() + sent, bytes->size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) {
      sent += static_cast<size_t>(count);
      continue;
    }
    if (errno == EINTR) continue;
    result = errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM ? TcpResult::kNothing
                                                                    : TcpResult::kGone;
    break;
  }
  bytes->erase(0, sent);
  return result;
}

}  // namespace pando
