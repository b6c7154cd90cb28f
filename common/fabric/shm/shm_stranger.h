// Somebody at a control socket of shm who says only what a test says.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/fabric/shm/unix_socket.h"

namespace pando {

// Connected, or, after a failed expectation, invalid.
UniqueFd DialAsStranger(const std::string& path);
// What is answered within 10 s; nothing: the connection is closed.
std::optional<std::string> Hear(const UniqueFd& socket);
// The connection is closed, after at most one error that says why. Cancelled: without one.
absl::Status HearRefusal(const UniqueFd& socket);
// Nobody but its owner may connect to the socket.
void ExpectOwnersOnly(const std::string& path);

}  // namespace pando
