#include "bench/host/channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"

namespace pando::bench {
namespace {

constexpr size_t kMessageBytesMax = 128 * 1024;

absl::Status Gone() { return absl::UnavailableError("the other end of the channel is gone"); }

}  // namespace

absl::StatusOr<std::pair<Channel, Channel>> Channel::CreatePair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("socketpair: ", std::strerror(errno)));
  }
  return std::pair(Channel(fds[0]), Channel(fds[1]));
}

absl::Status Channel::Send(const nlohmann::json& message) {
  const std::string text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > kMessageBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a message of ", text.size(), " bytes"));
  }
  while (send(fd_, text.data(), text.size(), MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return Gone();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<nlohmann::json>> Channel::Receive(int timeout_ms) {
  pollfd ready = {fd_, POLLIN, 0};
  const int count = poll(&ready, 1, timeout_ms);
  if (count < 0 && errno != EINTR) return Gone();
  if (count <= 0) return std::nullopt;
  std::string text(kMessageBytesMax, '\0');
  const ssize_t bytes = recv(fd_, text.data(), text.size(), 0);
  if (bytes < 0 && errno == EINTR) return std::nullopt;
  if (bytes <= 0) return Gone();
  text.resize(static_cast<size_t>(bytes));
  nlohmann::json message = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!message.is_object()) return absl::DataLossError("a message that is no JSON object");
  return message;
}

void Channel::Close() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

}  // namespace pando::bench
