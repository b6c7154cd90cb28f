// The seam for proving knowledge of a cluster's secret while a connection is set up: before a queue
// pair is connected, and before any remote key is sent. Tokens are opaque to the fabric: the client
// speaks first, each side answers the other's token, until both are done.
//
// One exchange a connection. Not thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace pando {

class AuthExchange {
 public:
  virtual ~AuthExchange() = default;
  // `*reply`: the token to send for what the other side sent ("" at the client's start), whatever
  // the status; "": none. An error ends the connection.
  virtual absl::Status Next(std::string_view received, std::string* reply) = 0;
  // The other side has proved itself.
  virtual bool done() const = 0;
};

// Makes one for each connection, of what both sides have said before (both must have seen the same
// bytes); empty: no secret.
using AuthFactory = std::function<std::unique_ptr<AuthExchange>(std::string_view client_hello,
                                                                std::string_view server_hello)>;

// More rounds than any exchange takes.
inline constexpr int kAuthRoundsMax = 8;

}  // namespace pando
