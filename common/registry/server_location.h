// Where a memory server is found. A type of its own so that fabrics need no registry.
#pragma once

#include <string>

#include "common/wire/remote_address.h"

namespace pando {

struct ServerLocation {
  ServerId id = 0;
  // For the fabric to understand. shm: path of the server's Unix socket; verbs: HOST:PORT (TCP).
  std::string address;
  std::string fabric = "shm";  // that the server offers
  std::string host;            // name of the host that it runs on; empty: this one

  friend bool operator==(const ServerLocation&, const ServerLocation&) = default;
};

}  // namespace pando
